# scripts/gpu_check.sh offload: GPT-2 1.5B, 256 sequences a step: without offload; with the
# optimizer on the CPU; the same with delayed updates; and all states on the CPU, with a tenth of
# the device memory that the run without offload plans. Ends with the ratios that docs/gpu.md asks
# for. Sourced; see lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with lib.sh and gpu_check.sh

# far NAME FLAG...: 5 steps, of which the last 3 count.
far() {
    local dir=$work/far.$1 ms
    until_logged 5 "$dir" "${@:2}" || return 1
    ms=$(step_ms "$dir" 3)
    calculate "$1: %.0f tokens/s, %.1f ms a step\n" "256 * 1024 / $ms * 1e3, $ms"
    echo "$1: losses" \
        "$(sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$dir/log.jsonl" | head -n 5 | xargs)"
}

# tenth FLAG...: the largest micro-batch with which all states on the CPU need a tenth of the device
# memory that the run without offload plans.
tenth() {
    local batch peak all
    peak=$("$train" --device cuda --plan --json --dtype bf16 "$@" --batch 16 |
        sed -n 's/^\t*"peak":[ \t]*\([0-9]*\).*/\1/p' | tail -n 1)
    all=(--offload-optimizer cpu --offload-param cpu --offload-activations cpu
        --device-mem $((peak / 10)))
    for batch in 16 8 4 2 1; do
        "$train" --device cuda --plan --dtype bf16 "$@" --batch $batch "${all[@]}" \
            >/dev/null 2>&1 || continue
        echo "tenth: micro-batch $batch"
        far tenth "$@" --batch $batch "${all[@]}"
        return
    done
    echo "no micro-batch fits into $((peak / 10)) bytes"
    return 1
}
export -f far tenth

ms_of() { results offload | sed -n "s/^$1: .* tokens.s, \([0-9.]*\) ms a step$/\1/p"; }
losses_of() { results offload | sed -n "s/^$1: losses //p"; }

judge_offload() { # judge_offload NAME LEAST SAME: SAME: the losses must be, too
    local near far
    near=$(ms_of near) far=$(ms_of "$1")
    if [ -z "$near" ] || [ -z "$far" ]; then
        missing "$1: share of the speed without offload"
        return
    fi
    judge "$1: share of the speed without offload" "$near / $far" "$2"
    [ "$3" = no ] || [ "$(losses_of near)" = "$(losses_of "$1")" ] || {
        echo "- OTHER LOSSES: $1"
        below=$((below + 1))
    }
}

offload_ratios() {
    judge_offload optimizer 0.90 yes
    judge_offload late 0.95 no
    # Other micro-batches are added up in another order.
    judge_offload tenth 0.85 "$(results offload | grep -q '^tenth: micro-batch 16$' && echo yes ||
        echo no)"
}

offload_plan() {
    local xl=(--model gpt2-xl --global-batch 256 --recompute block)
    plan offload "Without offload" 95 far near "${xl[@]}" --batch 16
    plan offload "Optimizer on the CPU" 100 far optimizer "${xl[@]}" --batch 16 \
        --offload-optimizer cpu
    plan offload "All on the CPU, a tenth of the memory" 115 tenth "${xl[@]}"
    plan offload "Optimizer on the CPU, delayed updates" 100 far late "${xl[@]}" --batch 16 \
        --offload-optimizer cpu --delay-update
}
