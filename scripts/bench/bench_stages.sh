#!/bin/bash
# What stage 3 costs beside stage 0 on this machine's CPU: it gathers each unit's weights twice a
# step and throws them away again, where stage 0 keeps them.
#
#   scripts/bench/bench_stages.sh [ROUNDS]     default 5 rounds; half an hour on two cores
#
# MODEL (default gpt2, 124M) on 2 ranks, which are threads, with random tokens, BATCH sequences
# (default 2) of SEQ_LEN tokens (default 256) on each. In each of the DTYPES (default "fp32 bf16"):
#
#   a step of stage 3 takes at most 1.10 times one of stage 0
#
# Both take turns, and even rounds begin with the other, so that a machine that slows down slows
# both. Of each run 2 steps warm up and the median of the 4 after them counts; the ratio is taken
# round by round, and the median of the rounds' is judged. Nothing else should run meanwhile. A run
# that ends early or is not done after PART_SECONDS (default 900) fails the whole. The last line is
# `N passed, N failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C # numbers with points
rounds=${1:-5} limit=1.10
model=${MODEL:-gpt2} batch=${BATCH:-2} seq_len=${SEQ_LEN:-256} dtypes=${DTYPES:-fp32 bf16}
part_seconds=${PART_SECONDS:-900}
steps=6 warm=2 ranks=2
threads=$(nproc)
threads=$((threads > ranks ? threads / ranks : 1)) # of a rank
tmp=$(mktemp -d)
pid=''
trap '[ -z "$pid" ] || kill -KILL $pid 2>/dev/null; rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM HUP
. scripts/bench/figures.sh

die() { printf 'bench_stages: %s\n' "$*" >&2; exit 1; }
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "rounds '$rounds': expected a number from 1 on"

# run DTYPE STAGE: appends the median step to $tmp/DTYPE.STAGE. ./train is killed after its steps: a
# checkpoint is no part of the measurement.
run() {
    local dir=$tmp/out begin=$SECONDS logged
    rm -rf "$dir"
    ./train --device cpu --model "$model" --data random --dtype "$1" --ranks $ranks --zero "$2" \
        --batch "$batch" --seq-len "$seq_len" --threads "$threads" --steps 1000 --log-every 1 \
        --no-tensorboard --cache "$tmp/cache" --out "$dir" >"$tmp/log" 2>&1 &
    pid=$!
    while logged=$(grep -c step_ms "$dir/log.jsonl" 2>/dev/null); [ "${logged:-0}" -lt $steps ]; do
        kill -0 $pid 2>/dev/null && [ $((SECONDS - begin)) -lt "$part_seconds" ] || {
            tail -n 3 "$tmp/log" >&2
            die "$1, stage $2: no $steps steps after $((SECONDS - begin)) s"
        }
        sleep 0.2
    done
    { kill -KILL $pid && wait $pid; } 2>/dev/null # says "Killed" otherwise
    pid=''
    step_ms "$dir" $((warm + 1)) >>"$tmp/$1.$2"
}

compare() { # compare DTYPE
    local round stage stages near far
    echo "== $model, $1, $ranks ranks of $threads threads, B=$batch T=$seq_len, $rounds rounds"
    for ((round = 1; round <= rounds; round++)); do
        stages="0 3"
        ((round % 2)) || stages="3 0"
        for stage in $stages; do
            run "$1" "$stage"
        done
        near=$(tail -n 1 "$tmp/$1.0") far=$(tail -n 1 "$tmp/$1.3")
        calculate "%.4f\n" "$far / $near" >>"$tmp/$1.ratio"
        echo "  round $round: stage 0 $near ms, stage 3 $far ms: $(tail -n 1 "$tmp/$1.ratio")"
    done
    near=$(median <"$tmp/$1.0") far=$(median <"$tmp/$1.3")
    expect "$1: stage 3's $far ms by stage 0's $near" \
        "$(calculate %.3f "$(median <"$tmp/$1.ratio")")" 0 $limit
}

scripts/setup.sh || exit 1
make -s -j"$(nproc)" train >"$tmp/log" 2>&1 || { tail -n 5 "$tmp/log" >&2; die "the build failed"; }
for dtype in $dtypes; do
    compare "$dtype"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
