# scripts/gpu_check.sh bench: tokens/s of GPT-2 124M and 1.5B against PyTorch, each side at its best
# batch; attention, memory-bound kernels and matrix products by themselves. Ends with the ratios
# that docs/gpu.md asks for. Sourced; see lib.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with lib.sh and gpu_check.sh

# ours MODEL BATCH: prints the median rate of 12 steps; 4 before them warm up, and choose cuBLASLt's
# algorithms, as torch.compile chooses kernels.
ours() {
    local dir=$work/ours.$1.$2 ms
    until_logged 16 "$dir" --model "$1" --batch "$2" --autotune || return 1
    ms=$(step_ms "$dir" 5)
    calculate "./train $1 batch $2: %.0f tokens/s, %.1f ms\n" "$2 * 1024 / $ms * 1e3, $ms"
}

ours_batches() { # ours_batches MODEL BATCH...: fails only if none works
    local batch good=1
    for batch in "${@:2}"; do
        ours "$1" "$batch" && good=0
    done
    return $good
}

# theirs MODEL BATCHES SECONDS: that those did not suffice is no failure.
theirs() {
    with_torch speed "$1" "$2" --seconds "$3" | tee "$work/theirs"
    local status=${PIPESTATUS[0]}
    [ "$status" != 1 ] || ! grep -q 'no figure within' "$work/theirs" || status=124
    return "$status"
}
export -f ours ours_batches theirs

best() { # best PROGRAM MODEL: the highest rate
    results bench | sed -n "s|^$1 $2 batch [0-9]*: \([0-9]*\) tokens/s.*|\1|p" | sort -g |
        tail -n 1
}

# Model FLOPs of a token: 6 per parameter, and the causal half of attention's products.
flops_per_token() { # flops_per_token PARAMETERS LAYERS CHANNELS
    calculate "%.0f" "6 * $1 + 6 * $2 * $3 * 1024"
}

theirs_of() { # theirs_of NAME: PyTorch's TFLOP/s of attention there and back, HS 64, T 1024
    results bench | sed -n \
        "s|^$1 HS 64 T 1024: .*, forward and backward \([0-9.]*\) TFLOP/s.*|\1|p" | sort -g |
        tail -n 1
}

judge_training() {
    local model rate theirs flops sustained
    for model in gpt2 gpt2-xl; do
        rate=$(best ./train $model) theirs=$(best PyTorch $model)
        if [ -n "$rate" ] && [ -n "$theirs" ]; then
            judge "$model, $rate tokens/s to PyTorch's $theirs" "$rate / $theirs" 1.05
        else
            missing "$model, tokens/s to PyTorch's"
        fi
    done
    rate=$(best ./train gpt2-xl)
    sustained=$(results bench | sed -n 's/^sustained \([0-9.]*\) TFLOP.*/\1/p' | tail -n 1)
    flops=$(flops_per_token 1557611200 48 1600)
    if [ -n "$rate" ] && [ -n "$sustained" ]; then
        judge "gpt2-xl, model FLOP/s to the $sustained TFLOP/s that its products sustain" \
            "$rate * $flops / 1e12 / $sustained" 0.70
    else
        missing "gpt2-xl, model FLOP/s to what its products sustain"
    fi
}

judge_kernels() {
    local ours flash fastest rows ratio name number=0 more=0 was
    ours=$(results bench | awk '$1 == "bf16" && $2 == 1024 && $3 == 64 { print $NF }' |
        tail -n 1)
    flash=$(theirs_of FlashAttention-2) fastest=$(theirs_of '[^ ]*')
    if [ -n "$ours" ] && [ -n "$flash" ]; then
        judge "attention, bf16, HS 64, T 1024, $ours TFLOP/s to FlashAttention-2's $flash" \
            "$ours / $flash" 0.9
        judge "the same to PyTorch's fastest, $fastest" "$ours / $fastest" 0.6
    else
        missing "attention to FlashAttention-2 and to PyTorch's fastest"
    fi
    # Where less is moved, what a launch takes counts as much; embed_backward sorts its tokens.
    rows=$(results bench |
        sed -n 's/^\(.*[^ ]\)  *\([0-9.]*\) MB .*  \([0-9.]*\) of a copy$/\2 \3 \1/p' |
        awk '$1 >= 48 && !/embed_backward/' | cut -d ' ' -f 2- | sort -g)
    [ -n "$rows" ] || missing "memory-bound kernels to a copy"
    # The slowest, and the slowest that is fast enough for all others.
    while read -r ratio name; do
        number=$((number + 1)) was=$below
        if [ $number -gt 8 ]; then # as judge counts, without a line
            awk "BEGIN { exit !($ratio < 0.85) }" || break
            below=$((below + 1)) more=$((more + 1))
            continue
        fi
        [ -z "$ratio" ] || judge "$name to a copy" "$ratio" 0.85
        [ "$below" != "$was" ] || break
    done <<<"$rows"
    [ $more = 0 ] || echo "- and $more more kernels BELOW TARGET"
}

bench_ratios() {
    judge_training
    judge_kernels
}

# What matters most comes first.
bench_plan() {
    plan bench "./train, GPT-2 124M" 40 ours_batches gpt2 32 64
    plan bench "PyTorch, GPT-2 124M" 90 theirs gpt2 32,64 80
    plan bench "./train, GPT-2 1.5B" 70 ours_batches gpt2-xl 16 8
    plan bench "PyTorch, GPT-2 1.5B" 110 theirs gpt2-xl 16,8 100
    plan bench "Attention, ours" 25 program tests/bench_attention
    plan bench "Attention, PyTorch" 35 with_torch attention
    plan bench "Products of GPT-2 1.5B by themselves" 30 with_torch matmul gpt2-xl 16
    plan bench "Memory-bound kernels, ours" 50 program tests/bench_cuda
}
