# scripts/gpu_check.sh tests: every kernel's test on the GPU; the losses of 50 steps against
# PyTorch; a run again, and stages 0 to 3 with 1, 2 and 4 ranks on the card: one weights hash;
# compute-sanitizer on attention and on the kernels around matrix products; tests of whole runs.
# Sourced; see lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with lib.sh and gpu_check.sh

# The same run twice; then each stage on 1, 2 and 4 ranks that share the card.
hashes() {
    local dtype ranks stage hash first status=0
    for dtype in bf16 fp16 fp32; do
        first=$(small_run h1 --dtype $dtype) hash=$(small_run h2 --dtype $dtype)
        echo "$dtype, the same run twice: $first $hash"
        [ -n "$first" ] && [ "$first" = "$hash" ] || status=1
    done
    for ranks in 1 2 4; do
        first=''
        for stage in 0 1 2 3; do
            hash=$(small_run "r$ranks.$stage" --dtype bf16 --ranks $ranks --zero $stage)
            echo "$ranks ranks, stage $stage: $hash"
            [ -n "$hash" ] && [ "${first:=$hash}" = "$hash" ] || status=1
        done
    done
    return $status
}

losses() {
    "$python" -c 'import torch' || return 77
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

# Names of kernels that are looked at, in the words that this version of the tool has for it. What
# is not ours, such as cuBLASLt's, would take most of the time.
kernel_filters() { # kernel_filters PART_OF_A_NAME...
    local option name
    option=$(compute-sanitizer --help 2>&1 | grep -oE -- '--(kernel-name|filter)\b' | sort |
        tail -n 1)
    for name in "$@"; do
        [ -z "$option" ] || printf '%s\nkns=%s\n' "$option" "$name"
    done
}

# sanitize TOOL CHECK...: checks of gpu_smoke, which launch each kernel a few times on small
# operands.
sanitize() {
    command -v compute-sanitizer >/dev/null || return 77
    local check words filters=() status=0
    for check in "${@:2}"; do
        words=''
        [[ $check != matmul-* ]] || words="matmul_ gelu_forward_kernel"
        # shellcheck disable=SC2086
        readarray -t filters < <(kernel_filters $words)
        echo "$check"
        compute-sanitizer --tool "$1" --error-exitcode 9 "${filters[@]}" \
            "$bin/tests/gpu_smoke" "$check" 64 2>&1 | tail -n 12
        [ "${PIPESTATUS[0]}" = 0 ] || status=1
    done
    return $status
}
export -f hashes losses kernel_filters sanitize

# Tests of kernels that run on a GPU. test_matmul_edges opens CPU devices alone, in every build.
kernel_tests() {
    local name
    for name in tests/kernels/test_{cuda_ptx,blas,kernels_*,gpu_attention,gpu_variants}.c \
        tests/zero/test_{gpu_host,comm_gpu}.c tests/model/test_families.c; do
        [ ! -e "$name" ] || basename "$name" .c
    done
}

# Tests of whole runs. Without liburing there is no rule for the second.
run_tests() {
    echo test_gpu_train
    [ ! -e tests/zero/test_gpu_offload.c ] || [ -n "$no_uring" ] || echo test_gpu_offload
}

# Kernels first, then what whole runs compute; the tests of many small runs take longest.
tests_mode() {
    local name
    plan "Machine" 10 machine
    while read -r name; do
        plan "$name" 7 one_test "$name"
    done < <(kernel_tests)
    plan "50 steps against PyTorch" 80 losses
    plan "One hash: again, and stages 0 to 3" 50 hashes
    plan "compute-sanitizer memcheck" 30 sanitize memcheck attention-bf16 \
        matmul-tn-dbias-{odd,add}-bf16 matmul-nn-dgelu-fp32 matmul-nt-bias-gelu-bf16
    plan "compute-sanitizer racecheck" 35 sanitize racecheck attention-bf16 \
        matmul-tn-dbias-{odd,add}-bf16 matmul-nn-dgelu-fp32 matmul-nt-bias-gelu-bf16
    while read -r name; do
        plan "$name" 50 one_test "$name"
    done < <(run_tests)
    plan "compute-sanitizer memcheck, norms" 20 sanitize_test memcheck test_kernels_norm
    run_plan part
}

sanitize_test() { # sanitize_test TOOL TEST
    command -v compute-sanitizer >/dev/null || return 77
    compute-sanitizer --tool "$1" --error-exitcode 9 "$bin/tests/$2" 2>&1 | tail -n 20
    return "${PIPESTATUS[0]}"
}
export -f sanitize_test
