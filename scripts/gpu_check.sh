#!/bin/bash
# What only a GPU can show, as one report in Markdown.
#
#   scripts/gpu_check.sh tests OUTDIR    writes OUTDIR/gpu_tests.md
#   scripts/gpu_check.sh bench OUTDIR    writes OUTDIR/gpu_bench.md
#   scripts/gpu_check.sh offload OUTDIR  writes OUTDIR/gpu_offload.md
#
# Needs bash, make, gcc, nvcc and the driver; python3 with PyTorch for comparisons with it (PYTHON
# names another one). cuBLASLt may also come with PyTorch's packages. DEPS=DIR names a folder of
# unpacked Debian packages (DIR/usr/include, DIR/usr/lib/x86_64-linux-gnu) where cJSON, cmocka or
# liburing are not installed. Builds for the GPU that is there, in build/gpu. Nothing is fetched.
#
#   tests   every kernel's test and the tests of whole runs on the GPU; the losses of 50 steps
#           against PyTorch; a run again, and stages 0 to 3 with 1, 2 and 4 ranks on the card: one
#           weights hash; compute-sanitizer on small kernels
#   bench   tokens/s of GPT-2 124M and 1.5B against PyTorch, each side at its best batch;
#           attention, memory-bound kernels and matrix products by themselves
#   offload GPT-2 1.5B, 256 sequences a step: without offload; with the optimizer on the CPU; the
#           same with late updates; and all states on the CPU, with a tenth of the device's memory
#
# Each part has a time limit and a section in the report. A part that fails is reported, and the
# others still run. All of it ends within LIMIT seconds (default 480). A report of bench ends with
# the ratios that docs/gpu.md asks for. Status 0: no part failed, and no ratio is below its target.
set -u
export LC_ALL=C
mode=${1:-} out=${2:-}
if [[ $mode != tests && $mode != bench && $mode != offload ]] || [ -z "$out" ]; then
    echo "usage: scripts/gpu_check.sh tests|bench|offload OUTDIR" >&2
    exit 2
fi
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.." || exit 2
limit=${LIMIT:-480}
report=$out/gpu_$mode.md
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 passed=0 parts=0
SECONDS=0

# ---- the report ----

# part NAME SECONDS COMMAND...: a section with what it printed, at most 60 lines of it.
part() {
    local name=$1 most=$2 begin=$SECONDS left=$((limit - SECONDS)) status
    shift 2
    [ "$most" -le "$left" ] || most=$left
    echo "gpu_check: $name"
    if [ "$most" -le 0 ]; then
        status=124
        echo "no time was left" >"$work/log"
    else # in a shell of its own, which may be a function's: what it started ends with it
        timeout -k 5 "$most" bash -c '"$@"' part "$@" >"$work/log" 2>&1 </dev/null
        status=$?
    fi
    case $status in
    0) result=passed passed=$((passed + 1)) ;;
    77) result="not run" ;;
    124 | 137) result="FAILED: not done after $most s" failed=$((failed + 1)) ;;
    *) result="FAILED: status $status" failed=$((failed + 1)) ;;
    esac
    {
        # shellcheck disable=SC2016
        printf '\n## %s\n\n%s, %d s: `%s`\n\n```\n' "$name" "$result" $((SECONDS - begin)) "$*"
        tail -n 60 "$work/log"
        printf '```\n'
    } >>"$report"
    parts=$((parts + 1))
    cp "$work/log" "$work/log.$parts"
}

calculate() { awk "BEGIN { printf \"$1\", $2 }"; }
median() {
    sort -g | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'
}

machine() {
    nvidia-smi --query-gpu=name,memory.total,driver_version,compute_cap,clocks.max.sm --format=csv
    grep -m 1 'model name' /proc/cpuinfo
    echo "cores: $(nproc)"
    grep -E '^Mem(Total|Available)' /proc/meminfo
    "$nvcc" --version | tail -n 2 | head -n 1
    gcc --version | head -n 1
    "$python" -c 'import torch; print("PyTorch", torch.__version__)' || echo "no PyTorch"
    echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
}

# ---- what is here ----

nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) || nvcc=''
archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
{
    echo "# GPU $mode"
    echo
    echo "Written by \`scripts/gpu_check.sh $mode\` on $(date -u +%F)."
} >"$report"
if [ -z "$nvcc" ] || [ -z "$archs" ]; then
    echo "No nvcc or no GPU on this machine: nothing was run." | tee -a "$report"
    exit 1
fi
# PyTorch's packages carry NVIDIA's libraries, each in a folder nvidia/NAME/lib.
folders=$("$python" -c '
import glob, nvidia
print(":".join(f for p in nvidia.__path__ for f in sorted(glob.glob(p + "/*/lib"))))' 2>/dev/null)
export LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
make=(make -s "-j$(nproc)" MODE=gpu "CUDA_ARCHS=$archs")
if [ -n "${DEPS:-}" ]; then # the compiler, and so probe.sh, finds them as if they were installed
    libraries=$(cd "$DEPS/usr/lib/x86_64-linux-gnu" && pwd)
    headers=$(cd "$DEPS/usr/include" && pwd)
    export CPATH=$headers${CPATH:+:$CPATH} LIBRARY_PATH=$libraries${LIBRARY_PATH:+:$LIBRARY_PATH}
    export LD_LIBRARY_PATH=$libraries:$LD_LIBRARY_PATH
fi
export nvcc python work train=$PWD/build/gpu/train

# ---- tests ----

# Runs one program of tests that speaks TAP, and shows only what failed and the count.
one_test() {
    [ -x "build/gpu/tests/$1" ] || { echo "not built: see Build" && return 77; }
    CMOCKA_MESSAGE_OUTPUT=TAP "build/gpu/tests/$1" >"$work/tap" 2>&1
    local status=$?
    grep -aE '^not ok|^# |says|CUDA' "$work/tap" | head -n 40
    echo "$(grep -acE '^ok ' "$work/tap") passed," \
        "$(grep -acE '^not ok ' "$work/tap") failed, status $status"
    return $status
}

small_run() { # small_run FOLDER FLAG...: prints the weights hash
    "$train" --device cuda --model tiny --data README.md --tokenizer byte --steps 10 --batch 4 \
        --no-tensorboard --out "$work/$1" "${@:2}" 2>&1 | sed -n 's/^weights hash: //p'
}

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
    "$python" tests/losses_gpt2_torch.py shards "$dir" || return 1
    run=("$train" --device cuda --model gpt2 --vocab 50257 --seq-len 1024 --batch 4
        --data "$dir/batch-*.bin" --val-data "$dir/val.bin" --val-batches 1 --no-tensorboard)
    if ! { "${run[@]}" --lr 0 --steps 1 --out "$dir/init" &&
        "${run[@]}" --lr 3e-4 --steps 50 --out "$dir/fp32" &&
        "${run[@]}" --lr 3e-4 --steps 50 --dtype bf16 --out "$dir/bf16"; } >"$dir/log" 2>&1; then
        tail -n 5 "$dir/log"
        return 1
    fi
    "$python" tests/losses_gpt2_torch.py compare "$dir"
}

sanitize() { # sanitize TOOL TEST
    command -v compute-sanitizer >/dev/null || return 77
    compute-sanitizer --tool "$1" --error-exitcode 9 "build/gpu/tests/$2" 2>&1 | tail -n 20
    return "${PIPESTATUS[0]}"
}

# Kernels first, then what whole runs compute; the tests of many small runs take longest.
tests_mode() {
    local name kernels=() runs=(test_gpu_train)
    "${make[@]}" features >"$work/features" 2>&1
    # There is no rule for it without liburing.
    grep -qs 'HAVE_URING := yes' build/gpu/features.mk && runs+=(test_gpu_offload)
    for name in tests/test_kernels_*.c tests/test_matmul_edges.c tests/test_cuda_ptx.c \
        tests/test_blas.c tests/test_comm_gpu.c; do
        kernels+=("$(basename "$name" .c)")
    done
    part "Build" 200 "${make[@]}" -k all "${kernels[@]/#/build/gpu/tests/}" \
        "${runs[@]/#/build/gpu/tests/}"
    for name in "${kernels[@]}"; do
        part "$name" 60 one_test "$name"
    done
    part "50 steps against PyTorch" 150 losses
    part "One hash: again, and stages 0 to 3" 90 hashes
    for name in "${runs[@]}"; do
        part "$name" 120 one_test "$name"
    done
    part "compute-sanitizer memcheck" 60 sanitize memcheck test_kernels_norm
    part "compute-sanitizer racecheck" 60 sanitize racecheck test_kernels_norm
}

# ---- bench ----

# until_logged STEPS DIR FLAG...: runs ./train until so many steps are logged and ends it there,
# since a checkpoint is no part of the measurement.
until_logged() {
    local steps=$1 dir=$2 pid
    rm -rf "$dir" "$dir.memory"
    "$train" --device cuda --data random --dtype bf16 --seq-len 1024 --steps 1000 \
        --no-tensorboard "${@:3}" --out "$dir" >"$dir.log" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        if [ -e "$dir/log.jsonl" ] && [ "$(grep -c step_ms "$dir/log.jsonl")" -ge "$steps" ]; then
            nvidia-smi --query-gpu=memory.used --format=csv,noheader >"$dir.memory"
            { kill -KILL $pid && wait $pid; } 2>/dev/null # says "Killed" otherwise
            break
        fi
        sleep 0.2
    done
    [ -e "$dir.memory" ] && return
    echo "./train ${*:3}: failed"
    tail -n 3 "$dir.log"
    return 1
}

step_ms() { # step_ms DIR FIRST: the median from a step on
    sed -n 's/.*"step_ms": *\([0-9.]*\).*/\1/p' "$1/log.jsonl" | tail -n "+$2" | median
}

# ours MODEL BATCH: prints the median rate of 12 steps; 4 before them warm up, and choose cuBLASLt's
# algorithms, as torch.compile chooses kernels.
ours() {
    local dir=$work/ours.$1.$2 ms
    until_logged 16 "$dir" --model "$1" --batch "$2" --autotune || return 1
    ms=$(step_ms "$dir" 5)
    calculate "./train $1 batch $2: %.0f tokens/s, %.1f ms\n" "$2 * 1024 / $ms * 1e3, $ms"
    echo "  the card's memory: $(cat "$dir.memory") used; the table of ./train says (MiB):"
    grep -E '^ *all ' "$dir.log"
}

ours_batches() { # ours_batches MODEL BATCH...: fails only if none works
    local batch good=1
    for batch in "${@:2}"; do
        ours "$1" "$batch" && good=0
    done
    return $good
}

best() { # best PROGRAM MODEL: the highest rate in the logs
    cat "$work"/log.* | sed -n "s|^$1 $2 batch [0-9]*: \([0-9]*\) tokens/s.*|\1|p" | sort -g |
        tail -n 1
}

# Model FLOPs of a token: 6 per parameter, and the causal half of attention's products.
flops_per_token() { # flops_per_token PARAMETERS LAYERS CHANNELS
    calculate "%.0f" "6 * $1 + 6 * $2 * $3 * 1024"
}

# judge WHAT RATIO LEAST: one line, and a failure of the whole where the ratio is below.
judge() {
    if awk "BEGIN { exit !($2 >= $3) }"; then
        calculate "%.3f (at least $3): $1\n" "$2"
    else
        calculate "%.3f (at least $3), BELOW TARGET: $1\n" "$2"
        below=$((below + 1))
    fi
}

missing() { # missing WHAT: a ratio that could not be taken is no ratio that was reached
    echo "NOT MEASURED: $1"
    below=$((below + 1))
}

theirs_of() { # theirs_of NAME: PyTorch's TFLOP/s of attention there and back, HS 64, T 1024
    cat "$work"/log.* | sed -n \
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
    sustained=$(cat "$work"/log.* | sed -n 's/^sustained \([0-9.]*\) TFLOP.*/\1/p' | tail -n 1)
    flops=$(flops_per_token 1557611200 48 1600)
    if [ -n "$rate" ] && [ -n "$sustained" ]; then
        judge "gpt2-xl, model FLOP/s to the $sustained TFLOP/s that its products sustain" \
            "$rate * $flops / 1e12 / $sustained" 0.70
    else
        missing "gpt2-xl, model FLOP/s to what its products sustain"
    fi
}

judge_kernels() {
    local ours flash fastest rows ratio name
    ours=$(cat "$work"/log.* | awk '$1 == "bf16" && $2 == 1024 && $3 == 64 { print $NF }' |
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
    rows=$(cat "$work"/log.* |
        sed -n 's/^\(.*[^ ]\)  *\([0-9.]*\) MB .*  \([0-9.]*\) of a copy$/\2 \3 \1/p' |
        awk '$1 >= 48 && !/embed_backward/' | cut -d ' ' -f 2-)
    [ -n "$rows" ] || missing "memory-bound kernels to a copy"
    while read -r ratio name; do
        [ -z "$ratio" ] || judge "$name to a copy" "$ratio" 0.85
    done <<<"$rows"
}

# The ratios that docs/gpu.md names, and how many of them were not reached.
verdict() {
    below=0
    judge_training
    judge_kernels
    echo "$below below target or not measured"
    [ "$below" = 0 ]
}

bench_mode() {
    local torch=("$python" tests/bench_gpt2_torch.py)
    # After `tests` there is little left to build. What takes longest comes last: when time runs
    # out, all else has been measured.
    part "Build" 200 "${make[@]}" all build/gpu/tests/bench_attention build/gpu/tests/bench_cuda
    part "./train, GPT-2 124M" 60 ours_batches gpt2 32 64
    part "PyTorch, GPT-2 124M" 100 "${torch[@]}" speed gpt2 32,64 --seconds 90
    part "Attention, ours" 40 build/gpu/tests/bench_attention
    part "Attention, PyTorch" 40 "${torch[@]}" attention
    part "Memory-bound kernels, ours" 60 build/gpu/tests/bench_cuda
    part "Products of GPT-2 1.5B by themselves" 40 "${torch[@]}" matmul gpt2-xl 16
    part "./train, GPT-2 1.5B" 90 ours_batches gpt2-xl 16 8
    part "PyTorch, GPT-2 1.5B" 150 "${torch[@]}" speed gpt2-xl 16,8 --seconds 140
    {
        printf '\n## In short\n\n```\n'
        verdict || failed=$((failed + 1))
        printf '```\n'
    } >>"$report"
}

# ---- offload ----

xl=(--model gpt2-xl --global-batch 256 --recompute block)

# far NAME FLAG...: 5 steps, of which the last 3 count.
far() {
    local dir=$work/far.$1 ms
    until_logged 5 "$dir" "${@:2}" || return 1
    ms=$(step_ms "$dir" 3)
    calculate "$1: %.0f tokens/s, %.1f ms a step\n" "256 * 1024 / $ms * 1e3, $ms"
    echo "  losses $(losses_of "$1")"
    grep -E '^ *(each|sum|all) ' "$dir.log"
}

losses_of() { # losses_of NAME: of its first 5 steps, all digits
    sed -n 's/.*"loss": *\([^,}]*\).*/\1/p' "$work/far.$1/log.jsonl" | head -n 5 | tr '\n' ' '
}

# tenth FLAG...: the largest micro-batch with which all states on the CPU leave a tenth of the
# memory that the device needs without offload.
tenth() {
    local batch peak all
    peak=$("$train" --device cuda --plan --json --dtype bf16 "$@" --batch 16 |
        sed -n 's/^\t*"peak":[ \t]*\([0-9]*\).*/\1/p' | tail -n 1)
    all=(--offload-optimizer cpu --offload-param cpu --offload-activations cpu
        --device-mem $((peak / 10)))
    for batch in 16 8 4 2 1; do
        "$train" --device cuda --plan --dtype bf16 "$@" --batch $batch "${all[@]}" \
            >/dev/null 2>&1 || continue
        echo $batch >"$work/tenth"
        far tenth "$@" --batch $batch "${all[@]}"
        return
    done
    echo "no micro-batch fits into $((peak / 10)) bytes"
    return 1
}

judge_offload() { # judge_offload NAME LEAST SAME: SAME: the losses must be, too
    local near far
    near=$(step_ms "$work/far.near" 3) far=$(step_ms "$work/far.$1" 3)
    if [ -z "$near" ] || [ -z "$far" ]; then
        missing "$1: share of the speed without offload"
        return
    fi
    judge "$1: share of the speed without offload" "$near / $far" "$2"
    [ "$3" = no ] || [ "$(losses_of near)" = "$(losses_of "$1")" ] || {
        echo "OTHER LOSSES: $1"
        below=$((below + 1))
    }
}

offload_mode() {
    part "Build" 200 "${make[@]}" all
    part "Without offload" 90 far near "${xl[@]}" --batch 16
    part "Optimizer on the CPU" 90 far optimizer "${xl[@]}" --batch 16 --offload-optimizer cpu
    part "Optimizer on the CPU, late updates" 90 far late "${xl[@]}" --batch 16 \
        --offload-optimizer cpu --delay-update
    part "All on the CPU, a tenth of the memory" 120 tenth "${xl[@]}"
    {
        printf '\n## In short\n\n```\n'
        below=0
        judge_offload optimizer 0.90 yes
        judge_offload late 0.95 no
        # Other micro-batches are added up in another order.
        judge_offload tenth 0.85 "$([ "$(cat "$work/tenth")" = 16 ] && echo yes || echo no)"
        echo "$below below target or not measured"
        [ "$below" = 0 ] || failed=$((failed + 1))
        printf '```\n'
    } >>"$report"
}

export -f machine calculate median one_test small_run hashes losses sanitize ours ours_batches \
    until_logged step_ms far losses_of tenth
part "Machine" 20 machine
"${mode}_mode"
printf '\n%d parts passed, %d failed, %d s.\n' $passed $failed $SECONDS >>"$report"
echo "gpu_check: $passed parts passed, $failed failed: $report"
[ $failed = 0 ]
