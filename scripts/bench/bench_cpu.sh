#!/bin/bash
# How fast ./train is on this machine's CPU, against PyTorch and against what the machine can do.
#
#   scripts/bench/bench_cpu.sh [ROUNDS]          default 5 rounds; half an hour on two cores
#   MODELS=gpt2 scripts/bench/bench_cpu.sh       without the others; 15 minutes
#
# Whole steps (forward, backward, clipping, AdamW) of GPT-2 124M and of Qwen2.5-0.5B's shape, which
# takes 16 GB of memory. The two programs take turns; each figure is the median of the rounds. What
# must hold:
#
#   GPT-2
#   bf16, B=4 T=512    at least 1.5 times PyTorch (autocast, the faster of eager and compiled)
#                      at least 0.70 of the speed of light: the rate of large matrix products alone
#   fp32, B=4 T=64     at least 0.60 of the speed of light
#   Qwen2.5-0.5B
#   bf16, B=1 T=512    at least 1.5 times PyTorch with transformers' model
#   memory             peak resident memory within 10% of the table printed at the start
#
# PyTorch is that of $PYTHON, or what torch.sh finds or installs. Without it the benchmark fails.
# Nothing else should run meanwhile. The last line is `N passed, N failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C # numbers with points
rounds=${1:-5}
models=${MODELS:-gpt2 qwen2.5-0.5b}
steps=5 skipped=2 # of one run of ./train: how many, and how many of them warm up
threads=$(nproc)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. scripts/dev/torch.sh
. scripts/bench/figures.sh

die() { printf 'bench: %s\n' "$*" >&2; exit 1; }
[[ $rounds =~ ^[0-9]+$ && $rounds -ge 1 ]] || die "rounds '$rounds': expected a number from 1 on"

# ---- the two programs ----

# Starts PyTorch, which then waits on a pipe between its turns.
torch_start() { # torch_start MODEL DTYPE BATCH SEQ_LEN
    # The pipes are named, since they are used from subshells.
    rm -f "$tmp/to" "$tmp/from"
    mkfifo "$tmp/to" "$tmp/from"
    "$python" tests/torch/bench_torch.py --model "$1" --dtype "$2" --batch "$3" --seq-len "$4" \
        --threads "$threads" <"$tmp/to" >"$tmp/from" 2>"$tmp/torch.log" &
    torch_pid=$!
    exec 7>"$tmp/to" 8<"$tmp/from"
    local ready
    if ! read -r ready <&8 || [[ $ready != ready* ]]; then
        cat "$tmp/torch.log" >&2
        die "PyTorch failed"
    fi
    echo "  ${ready#ready }"
}

torch_step() { # milliseconds
    local ms
    echo step >&7
    read -r ms <&8 || {
        cat "$tmp/torch.log" >&2
        die "PyTorch failed"
    }
    echo "$ms" >>"$tmp/torch.ms"
}

torch_stop() {
    exec 7>&- 8<&-
    wait "$torch_pid"
}

# Runs ./train until its log has $steps steps, and ends it there: a checkpoint is no part of
# the measurement. Appends to ours.ms the median step, to light the speed of light, to rss the
# peak resident memory and to table what was printed, both in MiB.
ours_run() { # ours_run MODEL DTYPE BATCH SEQ_LEN
    local pid peak=0 now log=$tmp/out/log.jsonl
    rm -rf "$tmp/out" "$tmp/cache"
    ./train --device cpu --model "$1" --data random --dtype "$2" --batch "$3" --seq-len "$4" \
        --steps 1000 --threads "$threads" --cache "$tmp/cache" --out "$tmp/out" \
        >"$tmp/ours.log" 2>&1 &
    pid=$!
    while now=$(awk '/^VmHWM/ { print $2 }' "/proc/$pid/status" 2>/dev/null) && [ -n "$now" ]; do
        peak=$now
        if [ -e "$log" ] && [ "$(grep -c step_ms "$log")" -ge $steps ]; then
            kill -KILL $pid
            break
        fi
        sleep 0.1
    done
    wait $pid 2>/dev/null
    [ $? = 137 ] || {
        cat "$tmp/ours.log" >&2
        die "./train failed"
    }
    step_ms "$tmp/out" $((skipped + 1)) >>"$tmp/ours.ms"
    awk -F '|' '/FLOP/ { print $NF + 0 }' "$tmp/cache/machine.txt" >>"$tmp/light"
    calculate "%.1f\n" "$peak / 1024" >>"$tmp/rss"
    awk '$1 == "all," { print $3 }' "$tmp/ours.log" >>"$tmp/table"
    parameters=$(awk '$1 == "parameters:" { print $2 }' "$tmp/ours.log")
}

# Layers x heads x head size, of which attention's products are made.
declare -A attention=([gpt2]=$((12 * 768)) [qwen2.5-0.5b]=$((24 * 896)))

# compare MODEL DTYPE BATCH SEQ_LEN TIMES SHARE: alternates the two; at least TIMES PyTorch's rate
# (0: said only) and SHARE of the speed of light (likewise). Ratios are taken round by round,
# between neighbours in time: a machine whose speed changes meanwhile (a shared host) changes both
# sides of one.
compare() {
    local model=$1 name="$1, $2 B=$3 T=$4" i ours torch light flops ratio rss table
    rm -f "$tmp"/*.ms "$tmp/light" "$tmp/rss" "$tmp/table" "$tmp/times" "$tmp/share"
    [[ " $models " == *" $model "* ]] || return
    echo "== $name, $threads threads, $rounds rounds"
    torch_start "$@"
    shift
    for ((i = 0; i < rounds; i++)); do
        ours_run "$model" "$@"
        torch_step
        ours=$(tail -n 1 "$tmp/ours.ms") torch=$(tail -n 1 "$tmp/torch.ms")
        light=$(tail -n 1 "$tmp/light")
        # 6 per parameter and token, and the causal half of attention (as ./train counts).
        flops="(6 * $parameters + 6 * ${attention[$model]} * $3) * $2 * $3"
        calculate "%.3f\n" "$torch / $ours" >>"$tmp/times"
        calculate "%.3f\n" "$flops / ($ours / 1e3) / $light" >>"$tmp/share"
        echo "  round $((i + 1)): ./train $ours ms, PyTorch $torch ms: $(tail -n 1 "$tmp/times")" \
            "times; $(tail -n 1 "$tmp/share") of $(calculate "%.0f" "$light / 1e9") GFLOP/s"
    done
    torch_stop
    ours=$(median <"$tmp/ours.ms") torch=$(median <"$tmp/torch.ms")
    echo "  ./train $(calculate "%.0f" "$2 * $3 / $ours * 1e3") tokens/s," \
        "PyTorch $(calculate "%.0f" "$2 * $3 / $torch * 1e3") tokens/s"
    ratio=$(median <"$tmp/times")
    if [ "$4" != 0 ]; then
        expect "$name: times PyTorch" "$ratio" "$4"
    else
        echo "      $name: $ratio times PyTorch"
    fi
    ratio=$(median <"$tmp/share")
    if [ "$5" != 0 ]; then
        expect "$name: of the speed of light" "$ratio" "$5"
    else
        echo "      $name: $ratio of the speed of light"
    fi
    rss=$(median <"$tmp/rss") table=$(median <"$tmp/table")
    ratio=$(calculate "%.3f" "$rss / $table")
    expect "$name: peak memory $rss MiB, to the table's $table" "$ratio" 0.9 1.1
}

scripts/setup.sh --test --bench || exit 1
torch_install || die "no PyTorch, and the comparison is the point"
echo "bench: PyTorch $(torch_version) of $python"
make -s -j"$threads" all || die "the build failed"

[[ $models != *qwen* ]] || "$python" -c 'import transformers' 2>/dev/null ||
    "$python" -m pip install -q transformers || die "no transformers"
compare gpt2 bf16 4 512 1.5 0.70
compare gpt2 fp32 4 64 0 0.60
compare qwen2.5-0.5b bf16 1 512 1.5 0

echo "$passed passed, $failed failed"
[ $failed = 0 ]
