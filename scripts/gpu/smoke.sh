# scripts/gpu_check.sh smoke: within a minute, whether a GPU does at all what everything else builds
# on. The other modes do not start before this one has said "smoke: green".
#
# From the least to the most: libraries, one kernel, single instructions, attention, each product of
# training by itself, weights hashes, then how fast a step is and what its kernels take. Each line
# is in the report as soon as it is known, so that a run that is cut off has told what it saw. The
# limits sum to a minute. Sourced; see lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with lib.sh and gpu_check.sh

red=() table=()

# check NAME LIMIT SPARE COMMAND...: one line, and what it printed. The limit is strict, but for a
# machine that is slow PATIENCE multiplies it.
check() {
    local name=$1 most=$2 patience=${PATIENCE:-1} begin=${EPOCHREALTIME/[.,]/} ms
    shift 3
    if [ -n "$stop_reason" ]; then
        result="FAILED: not run: $stop_reason" failed=$((failed + 1)) ms=0
        printf '\n- %s: %s (limit %d s)\n' "$name" "$result" "$most" >>"$report"
    else
        echo "gpu_check: $name"
        run_limited $((most * patience)) "$@"
        count_result $((most * patience))
        ms=$(((${EPOCHREALTIME/[.,]/} - begin) / 1000))
        {
            printf '\n- %s: %s, %d ms (limit %d s)\n\n```\n' "$name" "$result" $ms "$most"
            tail -n 60 "$work/log"
            printf '```\n'
        } >>"$report"
    fi
    # What a test of a product calls "not run" is not there to be relied on, either.
    [ "$result" = passed ] || red+=("$name")
    table+=("| $name | $result | $ms |")
}

# One form, its line in the report, and its name among those that passed.
product() {
    local said status begin=${EPOCHREALTIME/[.,]/} ms
    said=$("$bin/tests/gpu_smoke" "$1" 2>&1)
    status=$? ms=$(((${EPOCHREALTIME/[.,]/} - begin) / 1000))
    [ $status != 0 ] || echo "$1" >>"$work/products"
    {
        printf -- '- %s: status %d, %d ms\n' "$1" $status $ms
        tail -n 6 <<<"$said" | sed 's/^/    /'
    } >>"$report"
}

# Each form in a process of its own, several at a time: most of what one takes is the start.
products() {
    local name together
    together=$(nproc)
    [ "$together" -le 12 ] || together=12
    : >"$work/products"
    "$bin/tests/gpu_smoke" list | grep '^matmul-' >"$work/all_products" || return 1
    printf '\n' >>"$report"
    while read -r name; do
        while [ "$(jobs -r | wc -l)" -ge "$together" ]; do
            wait -n
        done
        product "$name" &
    done <"$work/all_products"
    wait
    [ "$(wc -l <"$work/all_products")" = "$(wc -l <"$work/products")" ]
}

# Those that were wrong, and those that time did not suffice for.
failed_products() {
    [ -e "$work/products" ] && grep -vxFf "$work/products" "$work/all_products" | xargs
}

heads_of_64() { # heads_of_64 FOLDER FLAG...: two layers whose attention takes the tensor cores
    "$train" --device cuda --data random --layers 2 --heads 2 --channels 128 --seq-len 128 \
        --vocab 512 --dtype bf16 --batch 4 --steps 10 --no-tensorboard --out "$work/$1" \
        "${@:2}" >"$work/$1.log" 2>&1
    sed -n 's/^weights hash: //p' "$work/$1.log" >"$work/$1.hash"
}

# The same run twice; stages 0 and 3 with 2 ranks on the card. All at once: their start takes most.
two_hashes() {
    local name status=0
    heads_of_64 first &
    heads_of_64 again &
    heads_of_64 stage0 --ranks 2 --zero 0 &
    heads_of_64 stage3 --ranks 2 --zero 3 &
    wait
    for name in first again stage0 stage3; do
        echo "$name: $(cat "$work/$name.hash")"
        [ -s "$work/$name.hash" ] || { tail -n 5 "$work/$name.log" && status=1; }
    done
    cmp "$work/first.hash" "$work/again.hash" || status=1
    cmp "$work/stage0.hash" "$work/stage3.hash" || status=1
    return $status
}
export -f product products heads_of_64 two_hashes

attention_64() {
    "$bin/tests/gpu_smoke" attention-bf16 && "$bin/tests/gpu_smoke" attention-fp16
}

kernels_of_a_step() {
    [ -x "$bin/tests/step_kernels" ] || { echo "there is no step_kernels" && return 1; }
    "$bin/tests/step_kernels" measure gpt2 32 16
}
export -f attention_64 kernels_of_a_step

smoke_mode() {
    plan "Tools" 3 machine
    plan "Libraries" 4 "$bin/tests/gpu_smoke" libraries
    plan "One kernel" 2 "$bin/tests/gpu_smoke" kernel
    plan "PTX" 2 one_test test_cuda_ptx
    plan "Attention, heads of 64, against the plain kernels" 3 attention_64
    plan "Products" 10 products
    plan "Kernels of a bias gradient" 3 "$bin/tests/gpu_smoke" dbias-kernel 32768
    plan "Weights hashes" 6 two_hashes
    plan "GPT-2 124M, batch 32" 22 kernels_of_a_step
    plan "Attention, heads of 64, T 1024: speed" 5 "$bin/tests/bench_attention" 0 1024 64
    first_signal=KILL
    run_plan check
    {
        printf '\n## In short\n\n| check | result | ms |\n|---|---|---|\n'
        printf '%s\n' "${table[@]}"
        [[ " ${red[*]} " != *" Products "* ]] ||
            printf '\nProducts that did not pass: %s\n' "$(failed_products)"
    } >>"$report"
}

# The last line, after the last check of what is left.
smoke_verdict() {
    local name names
    [ "${#red[@]}" != 0 ] || [ "$failed" = 0 ] || red+=("what was left")
    if [ "${#red[@]}" = 0 ]; then
        printf '\nsmoke: green\n' >>"$report"
    else
        printf -v names '%s; ' "${red[@]}"
        printf '\nsmoke: RED: %s\n' "${names%; }" >>"$report"
    fi
    tail -n 1 "$report"
}

# For the other modes: whether smoke has said green, for this source on such a GPU.
is_green() { # is_green REPORT ARCHS
    grep -qsx "Source $source_hash on sm_$2." "$1" && [ "$(tail -n 1 "$1")" = "smoke: green" ]
}
