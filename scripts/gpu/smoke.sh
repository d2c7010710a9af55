# scripts/gpu_check.sh smoke: within some minutes, whether a GPU does at all what everything else
# builds on. The other modes do not start before each of its parts was tried and none is RED.
#
# From the least to the most: libraries, one kernel, single instructions, attention, each product of
# training by itself, weights hashes, then how fast a step is and what its kernels take. Limits
# allow for 3 seconds in which a process opens the GPU, and a slow disk under cuBLASLt. Sourced; see
# lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with lib.sh and gpu_check.sh

# Each form of matrix product in a format, in one process. What a fault ends is told, and another
# process goes on after it.
products() { # products FORMAT
    local names at=0 told status=0 of_one
    readarray -t names < <("$bin/tests/gpu_smoke" list | grep "^matmul-.*-$1$")
    echo "${#names[@]} forms: ${names[*]}"
    while [ $at -lt ${#names[@]} ]; do
        "$bin/tests/gpu_smoke" "${names[@]:at}" 2>&1 | tee "$work/products.$1"
        of_one=${PIPESTATUS[0]}
        [ "$of_one" = 0 ] || status=1
        told=$(grep -cE '^matmul-[^ ]*: (right|WRONG), ' "$work/products.$1")
        at=$((at + told))
        [ $at = ${#names[@]} ] || {
            echo "${names[at]}: FAULT, status $of_one"
            at=$((at + 1)) status=1
        }
    done
    [ "${#names[@]}" != 0 ] || status=1
    return $status
}

heads_of_64() { # heads_of_64 NAME FLAG...: two layers whose attention takes the tensor cores
    trained "$1" --data random --layers 2 --heads 2 --channels 128 --seq-len 128 --vocab 512 \
        --dtype bf16 "${@:2}"
}

# The same run twice; stages 0 and 3 with 2 ranks on the card. All at once: their start takes most.
two_hashes() {
    local status=0
    heads_of_64 first &
    heads_of_64 again &
    heads_of_64 stage0 --ranks 2 --zero 0 &
    heads_of_64 stage3 --ranks 2 --zero 3 &
    wait
    hash_of first again || status=1
    hash_of stage0 stage3 || status=1
    return $status
}
export -f products heads_of_64 two_hashes

smoke_plan() {
    local format
    plan smoke "Tools" 10 machine
    plan smoke "Libraries" 20 program tests/gpu_smoke libraries
    plan smoke "One kernel" 10 program tests/gpu_smoke kernel
    plan smoke "PTX" 10 one_test test_cuda_ptx
    plan smoke "Attention, heads of 64, against the plain kernels" 15 \
        program tests/gpu_smoke attention-bf16 attention-fp16
    for format in bf16 fp16 fp32; do
        plan smoke "Products, $format" 20 products $format
    done
    plan smoke "Weights hashes" 30 two_hashes
    plan smoke "GPT-2 124M, batch 32" 40 program tests/step_kernels measure gpt2 32 16
    plan smoke "Attention, heads of 64, T 1024: speed" 15 program tests/bench_attention 0 1024 64
}
