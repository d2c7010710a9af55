# scripts/gpu_check.sh tests: every kernel's test on the GPU; the losses of 50 steps against
# PyTorch; a run again, and stages 0 to 3 with 1, 2 and 4 ranks on the card: one weights hash;
# compute-sanitizer on attention and on the kernels around matrix products; tests of whole runs.
# Sourced; see lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with lib.sh and gpu_check.sh

no_uring=''

tiny() { # tiny NAME FLAG...
    trained "$1" --model tiny --data README.md --tokenizer byte "${@:2}"
}

# The same run twice; then each stage on 1, 2 and 4 ranks that share the card. Several at once:
# their start takes most.
hashes() {
    local dtype ranks stage status=0
    for dtype in bf16 fp16 fp32; do
        tiny $dtype --dtype $dtype &
        tiny $dtype.again --dtype $dtype &
    done
    wait
    for dtype in bf16 fp16 fp32; do
        hash_of $dtype $dtype.again || status=1
    done
    for ranks in 1 2 4; do
        for stage in 0 1 2 3; do
            tiny $ranks.$stage --dtype bf16 --ranks $ranks --zero $stage &
        done
        wait
        hash_of $ranks.{0,1,2,3} || status=1
    done
    return $status
}

losses() {
    torch_has "$python" || { echo "no PyTorch" && return 77; }
    local dir=$work/losses run
    mkdir -p "$dir"
    "$python" tests/torch/losses_gpt2_torch.py shards "$dir" || return 1
    run=("$train" --device cuda --dtype fp32 --model gpt2 --vocab 50257 --seq-len 1024 --batch 4
        --data "$dir/batch-*.bin" --val-data "$dir/val.bin" --val-batches 1 --no-tensorboard)
    if ! { "${run[@]}" --lr 0 --steps 1 --out "$dir/init" &&
        "${run[@]}" --lr 3e-4 --steps 50 --out "$dir/fp32" &&
        "${run[@]}" --lr 3e-4 --steps 50 --dtype bf16 --out "$dir/bf16"; } >"$dir/log" 2>&1; then
        tail -n 5 "$dir/log"
        return 1
    fi
    "$python" tests/torch/losses_gpt2_torch.py compare "$dir"
}

# No kernels are filtered by name: with a filter, racecheck of CUDA 13.0 ends with "failed to handle
# a hardware exception" (seen on an H200). What is cuBLASLt's takes a second.
sanitize() { # sanitize TOOL PROGRAM ARGUMENT...
    command -v compute-sanitizer >/dev/null || return 77
    compute-sanitizer --tool "$1" --error-exitcode 9 "$bin/tests/$2" "${@:3}" 2>&1 |
        tail -n 60
    return "${PIPESTATUS[0]}"
}

# sanitize_smoke TOOL: checks of gpu_smoke, which launch each kernel a few times on small operands.
sanitize_smoke() {
    sanitize "$1" gpu_smoke attention-bf16 matmul-tn-dbias-{odd,add}-bf16 matmul-nn-dgelu-fp32 \
        matmul-nt-bias-gelu-bf16 64
}
export -f tiny hashes losses sanitize sanitize_smoke

# Tests of kernels that run on a GPU, but for PTX, which smoke has. test_matmul_edges opens CPU
# devices alone, in every build.
kernel_tests() {
    local name
    for name in tests/kernels/test_{blas,blas_forms,kernels_*,gpu_attention,gpu_variants}.c \
        tests/zero/test_{gpu_host,comm_gpu}.c tests/model/test_families.c; do
        [ ! -e "$name" ] || basename "$name" .c
    done
}

# Tests of whole runs. Without liburing there is no rule for the second.
run_tests() {
    echo test_gpu_train
    [ -n "$no_uring" ] || echo test_gpu_offload
}

offload_test() {
    [ -z "$no_uring" ] || { echo "built without liburing" && return 77; }
    one_test test_gpu_offload
}
export -f offload_test

# Kernels first, then what whole runs compute; the tests of many small runs take longest.
tests_plan() {
    local name limit
    for name in $(kernel_tests); do
        case $name in # their oracle on the CPU takes most
        *attention | *matmul | *seen | *sparse | *families) limit=15 ;;
        *dropout | *fill | *nf4 | *quantize | *swiglu | *ends) limit=5 ;;
        *) limit=7 ;;
        esac
        plan tests "$name" $limit one_test "$name"
    done
    plan tests "50 steps against PyTorch" 80 losses
    plan tests "One hash: again, and stages 0 to 3" 50 hashes
    plan tests "compute-sanitizer memcheck" 45 sanitize_smoke memcheck
    plan tests "compute-sanitizer racecheck" 50 sanitize_smoke racecheck
    plan tests test_gpu_train 50 one_test test_gpu_train
    plan tests test_gpu_offload 45 offload_test
    plan tests "compute-sanitizer memcheck, norms" 25 sanitize memcheck test_kernels_norm
}
