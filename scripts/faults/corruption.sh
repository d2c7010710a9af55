#!/bin/bash
# Flipped bits: in checkpoints every byte of the heads and FLIPS random bits of the bodies, for 1,
# 2, 3 and 7 ranks in one process each (tests/zero/test_corruption.c); and in every kind of file
# that a run of the real ./train reads again, RUNS random bits each.
#
#   scripts/faults/corruption.sh [FLIPS [RUNS]]      default: 2000 20
#
# What is looked for: a flip is found and the file named, and a resume goes on from the checkpoint
# before; a flip in the cache ends in the same weights, as what is damaged is made again, or in a
# line that names the file; no flip of a file is followed by other weights. ONLY (a kind of file)
# and SEED repeat some. The last line is `N flips: 0 not found, 0 wrong, 0 hangs, 0 signals`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/trial.sh
flips=${1:-2000} runs=${2:-20} seed=${SEED:-1}
all=0 unseen=0 wrong=0 hangs=0 signals=0

flip() { # flip FILE: one bit, by RANDOM; sets place
    local bytes at old
    bytes=$(stat -c %s "$1")
    at=$(((RANDOM * 32768 + RANDOM) % bytes))
    old=$(od -An -tu1 -j $at -N 1 "$1")
    printf "\\x$(printf %x $((old ^ 1 << RANDOM % 8)))" |
        dd of="$1" bs=1 seek=$at conv=notrunc status=none
    place="byte $at of ${1##*/}"
}

bad() { # bad WHAT
    echo "$1: $kind, $place: $(tail -n 1 "$work/said")"
    echo "    ONLY=$kind SEED=$((seed + i)) scripts/faults/corruption.sh 0 1"
}

# One flip in a file of what a run of two of four steps left, or of the cache, and the run that
# goes on. HOW: back (a line names the file, and the weights are right), mended (the file is made
# anew, or named), named (the run may be refused, in a line that names it), kept (the weights are
# right).
try() { # try KIND HOW PATTERN
    local how=$2 hash name file
    rm -rf "$work"
    cp -r "$folder/half-$scenario" "$work"
    # shellcheck disable=SC2086 # a pattern
    file=$(cd "$work" && ls -d $3 | shuf -n 1 --random-source=<(yes "$RANDOM"))
    name=${file##*/}
    flip "$work/$file"
    [ "$4" = resumed ] || rm -rf "$work/out"
    run_in "$work" -- --steps $steps --resume auto
    hash=$(hash_in "$work/said")
    all=$((all + 1))
    if [ "$seconds" -ge $((LIMIT * 1000000)) ]; then
        hangs=$((hangs + 1))
        bad hang
    elif [ $status -gt 128 ]; then
        signals=$((signals + 1))
        bad "status $status"
    elif [ $status = 0 ] && [ "$hash" != "$reference" ]; then
        wrong=$((wrong + 1))
        bad "other weights"
    elif [ $how = back ] && ! { [ $status = 0 ] && grep -aq "$name" "$work/said"; }; then
        unseen=$((unseen + 1))
        bad "not named and fallen back from"
    elif [ $how = mended ] && [ $status = 0 ] && ! grep -aq "$name" "$work/said" &&
        ! cmp -s "$work/$file" "$folder/half-$scenario/$file"; then
        unseen=$((unseen + 1))
        bad "trained on"
    elif [ $how = kept ] && [ $status != 0 ]; then
        unseen=$((unseen + 1))
        bad "status $status"
    elif [ $status != 0 ] &&
        ! { [ $status = 2 ] && grep -a '^train: ' "$work/said" | grep -aq "$name"; }; then
        unseen=$((unseen + 1))
        bad "status $status, and the file is not named"
    fi
}

try_kind() { # try_kind KIND SCENARIO HOW PATTERN resumed|fresh
    local i
    kind=$1 scenario=$2
    [ "${ONLY:-$1}" = "$1" ] && can_run "$2" || return
    scenario "$2"
    if [ ! -d "$folder/half-$2" ]; then
        run_references "$2" || exit 2
        work=$folder/half-$2
        mkdir "$work"
        args+=(--save-every 1)
        run_in "$work" -- --steps $((steps / 2))
        halves[$2]=$reference
    fi
    args+=(--save-every 1)
    reference=${halves[$2]}
    work=$folder/flipped
    for ((i = 0; i < runs; i++)); do
        RANDOM=$((seed + i))
        try "$1" "$3" "$4" "$5"
    done
    echo "$kind: $runs flips"
}

declare -A halves
if [ "$flips" -gt 0 ]; then
    FLIPS=$(((flips + 3) / 4)) "$helpers/test_corruption" | tee "$folder/in-process" |
        grep -E 'flips,|^rank' | sort | uniq -c | sort -rn | head -n 40
    while read -r n missed; do
        all=$((all + n)) unseen=$((unseen + missed))
    done < <(sed -n 's/.*ranks: \([0-9]*\) flips, \([0-9]*\) not found.*/\1 \2/p' \
        "$folder/in-process")
fi
try_kind state one back 'out/checkpoints/step-00000002/*.state' resumed
try_kind states threads back 'out/checkpoints/step-00000002/*.state' resumed
try_kind shard one mended 'cache/text-*/*.bin' fresh
try_kind shard-resumed one mended 'cache/text-*/*.bin' resumed
try_kind model tokenizer mended 'cache/text-*/tokenizer.model' fresh
try_kind model-resumed tokenizer mended 'cache/text-*/tokenizer.model' resumed
try_kind log one kept 'out/log.jsonl' resumed
try_kind config one named 'out/config.json' resumed
try_kind events one kept 'out/*tfevents*' resumed
echo "$all flips: $unseen not found, $wrong wrong, $hangs hangs, $signals signals"
[ $((unseen + wrong + hangs + signals)) = 0 ]
