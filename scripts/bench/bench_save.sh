#!/bin/bash
# What a checkpoint that is written in the background costs the steps that are made meanwhile.
#
#   scripts/bench/bench_save.sh [SAVES]        default 5 saves; two minutes on two cores
#
# MODEL (default gpt2, 124M: a checkpoint of 1.5 GB) in bf16 on one rank with --threads 1 and
# --save-async, so that a core is left for the thread that writes; random tokens, BATCH sequences
# (default 2) of SEQ_LEN tokens (default 256), a save after each 8th step.
#
#   a step while a checkpoint is written takes at most 1.10 times the median of the steps else
#
# Steps count as such from the one behind a save to the last one before the line `saved`. The pause
# between two steps, in which the state is copied, is told beside it. Nothing else should run
# meanwhile. The last line is `N passed, N failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C # numbers with points
saves=${1:-5} limit=1.10 every=8
model=${MODEL:-gpt2} batch=${BATCH:-2} seq_len=${SEQ_LEN:-256}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM HUP
. scripts/bench/figures.sh

die() { printf 'bench_save: %s\n' "$*" >&2; exit 1; }
[[ $saves =~ ^[1-9][0-9]*$ ]] || die "saves '$saves': expected a number from 1 on"
[ "$(nproc)" -ge 2 ] || die "one core: two are needed, one of them to write"

scripts/setup.sh || exit 1
make -s -j"$(nproc)" train >"$tmp/log" 2>&1 || { tail -n 5 "$tmp/log" >&2; die "the build failed"; }
echo "== $model, bf16, 1 thread, B=$batch T=$seq_len, $saves saves"
./train --device cpu --model "$model" --data random --dtype bf16 --threads 1 --batch "$batch" \
    --seq-len "$seq_len" --log-every 1 --no-tensorboard --cache "$tmp/cache" --out "$tmp/out" \
    --steps $((every * saves + every / 2)) --save-every $every --keep 1 --save-async 2>&1 |
    while IFS= read -r line; do
        echo "$EPOCHREALTIME $line"
    done >"$tmp/said"
[ "${PIPESTATUS[0]}" = 0 ] || { tail -n 3 "$tmp/said" >&2; die "./train failed"; }

# A line for each step: its milliseconds, the seconds since the step before had ended, and the step
# behind which the checkpoint of the last save was told of (0: it was not yet).
sed -n 's/.*"step":\([0-9]*\),.*"step_ms":\([0-9.]*\).*/ms \1 \2/p' "$tmp/out/log.jsonl" |
    cat - "$tmp/said" | awk -v every=$every '
    $1 == "ms" { ms[$2] = $3; next }
    $2 == "step" && $3 ~ /\// { n = $3 + 0; gap[n] = $1 - end; end = $1 }
    $2 == "saved" { sub(/.*step-0*/, "", $3); told[$3] = n }
    END {
        for (s = every; s in told; s += every)
            for (i = s + 1; i < s + every && (i in ms); i++) {
                what = i == s + 1 || i < told[s] ? "during" : "else"
                print what, ms[i]
                if (i == s + 1)
                    print "pause", gap[i] * 1e3 - ms[i]
            }
    }' >"$tmp/steps"
for what in during else pause; do
    sed -n "s/^$what //p" "$tmp/steps" >"$tmp/$what"
done
during=$(median <"$tmp/during") otherwise=$(median <"$tmp/else")
[ -n "$during" ] && [ -n "$otherwise" ] || die "no save ended on the way"
echo "  pause to copy the state: $(calculate %.0f "$(median <"$tmp/pause")") ms, median of $saves"
counted=$(wc -l <"$tmp/during")
expect "$counted steps during saves: $during ms, by others' $otherwise" \
    "$(calculate %.3f "$during / $otherwise")" 0 $limit
echo "$passed passed, $failed failed"
[ $failed = 0 ]
