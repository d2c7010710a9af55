#!/bin/bash
# Is what --fit auto chooses the best of all that it may choose? Every candidate is run.
#
#   scripts/dev/fit_trial.sh [OUTDIR]
#
# A small model, so that a run takes seconds: on one rank every recomputation, offload and
# micro-batch, on two ranks every stage, recomputation and offload. Each candidate trains some
# steps, ROUNDS (2) times, in turns with all others so that what disturbs the machine disturbs them
# alike. A run's step is the median of its steps but for the first two, which warm up, and the last,
# behind which the host queues nothing, so that it looks short; a candidate's is the least of its
# runs. Then --fit auto chooses under three limits of memory each, six in all, and its choice is
# held against the fastest of the candidates that fit: within 10% it passes. Nothing else should run
# meanwhile; what is left in OUTDIR (default out/fit_trial) is the table of all candidates. FAMILIES
# names a part (one two); STEPS (8) may be fewer. The last line is `N passed, N failed`; 20 minutes
# on two quiet cores.
set -u
. "${0%"${0##*/}"}../help.sh"
train=$(realpath "${TRAIN:-./train}")
out=${1:-out/fit_trial}
rounds=${ROUNDS:-2} steps=${STEPS:-8} families=${FAMILIES:-one two}
[ "$steps" -ge 4 ] || { echo "fit_trial.sh: STEPS=$steps: expected 4 or more" >&2; exit 2; }
passed=0 failed=0
mkdir -p "$out" && out=$(realpath "$out") || exit 1
scratch=$(mktemp -d "$out/run.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT

model=(--device cpu --dtype bf16 --model gpt2 --layers 4 --channels 256 --heads 8 --seq-len 256
    --data random --vocab 4096 --master-dtype fp32 --cache "$out/cache")

# list FAMILY: the flags of each candidate, a line each.
list() {
    local stages="0 1 2 3" batches=4 stage level opt param act batch
    [ "$1" = one ] && stages=0 batches="1 2 4 8"
    for stage in $stages; do
        for level in none gelu attention mlp block; do
            for opt in none cpu; do
                for param in none cpu; do
                    for act in none cpu; do
                        for batch in $batches; do
                            echo "--zero $stage --recompute $level --offload-optimizer $opt" \
                                "--offload-param $param --offload-activations $act --batch $batch"
                        done
                    done
                done
            done
        done
    done
}

# said FAMILY: what is the same in all of its candidates.
said() {
    [ "$1" = one ] && echo --ranks 1 --global-batch 8
    [ "$1" = two ] && echo --ranks 2 --global-batch 8
}

# step_ms FLAGS...: as said above; nothing where the run fails.
step_ms() {
    rm -rf "$scratch/out"
    "$train" "${model[@]}" "$@" --steps "$steps" --val-batches 1 --no-tensorboard \
        --out "$scratch/out" >"$scratch/said" 2>&1 || return 1
    sed -n 's/.*"step":\([0-9]*\),.*"step_ms":\([0-9.]*\).*/\1 \2/p' "$scratch/out/log.jsonl" |
        awk -v last="$steps" '$1 > 2 && $1 < last { print $2 }' | sort -n |
        awk '{ ms[NR] = $1 } END { if (!NR) exit 1; print ms[int((NR + 1) / 2)] }'
}

# Every candidate of a family in turn, `rounds` times: lines of flags|ms in $out/FAMILY.runs, and
# the least of each in $out/FAMILY.least.
run_all() {
    local family=$1 round flags ms
    : >"$out/$family.runs"
    for ((round = 1; round <= rounds; round++)); do
        while read -r flags; do
            # shellcheck disable=SC2046,SC2086
            ms=$(step_ms $(said "$family") $flags) && echo "$flags|$ms" >>"$out/$family.runs"
        done < <(list "$family")
        echo "$family: round $round of $rounds, at $SECONDS s" >&2
    done
    sort -t '|' -k 1,1 -k 2,2n "$out/$family.runs" | sort -t '|' -k 1,1 -u -s >"$out/$family.least"
}

# The flags of --fit auto's choice under a limit, in the form of `list`.
choice() { # choice FAMILY LIMIT
    local dir=$scratch/chosen
    rm -rf "$dir"
    # shellcheck disable=SC2046
    "$train" "${model[@]}" $(said "$1") --device-mem "$2" --fit auto --steps 1 --val-batches 1 \
        --no-tensorboard --out "$dir" $([ "$1" = two ] && echo --batch 4) \
        >"$scratch/said" 2>&1 || return 1
    value() {
        sed -n "s/^[[:space:]]*\"$1\":[[:space:]]*\"\{0,1\}\([a-z0-9]*\).*/\1/p" "$dir/config.json"
    }
    echo "--zero $(value zero) --recompute $(value recompute) --offload-optimizer" \
        "$(value offload-optimizer) --offload-param $(value offload-param)" \
        "--offload-activations $(value offload-activations) --batch $(value batch)"
}

# fits FAMILY LIMIT FLAGS...
fits() {
    local family=$1 limit=$2
    shift 2
    # shellcheck disable=SC2046
    "$train" "${model[@]}" $(said "$family") "$@" --device-mem "$limit" --plan >/dev/null 2>&1
}

judge() { # judge FAMILY LIMIT
    local family=$1 limit=$2 flags ms chosen mine best="" best_flags="" n=0
    chosen=$(choice "$family" "$limit") || {
        echo "FAIL $family $limit: $(tail -n 1 "$scratch/said")"
        failed=$((failed + 1))
        return
    }
    while IFS='|' read -r flags ms; do
        # shellcheck disable=SC2086
        fits "$family" "$limit" $flags || continue
        n=$((n + 1))
        [ "$flags" = "$chosen" ] && mine=$ms
        if [ -z "$best" ]; then best=$ms best_flags=$flags; fi
    done < <(sort -t '|' -k 2,2n "$out/$family.least")
    local verdict=FAIL
    awk -v a="${mine:-0}" -v b="${best:-0}" 'BEGIN { exit !(a > 0 && a <= 1.1 * b) }' && verdict=ok
    [ $verdict = ok ] && passed=$((passed + 1)) || failed=$((failed + 1))
    echo "$verdict $family --device-mem $limit: $n candidates fit; chosen ${mine:-?} ms, best" \
        "${best:-?} ms"
    echo "    chosen: $chosen"
    echo "    best:   $best_flags"
}

for family in $families; do
    run_all "$family"
    limits="400M 100M 40M"
    [ "$family" = two ] && limits="400M 80M 45M"
    for limit in $limits; do
        judge "$family" "$limit"
    done
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
