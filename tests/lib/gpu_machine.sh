# A machine with a GPU that is made up, for tests of scripts/gpu_check.sh: source this file after
# tap.sh. In $folder lie a copy of the scripts, a source of a few files, and in $folder/bin what
# would be installed there. `make` puts $folder/programs into build/gpu. What programs and PyTorch
# say, and how they fail, comes from variables of the environment:
#
#   HANG       ./train neither logs nor ends, and has a child in a session of its own; neither heeds
#              SIGTERM
#   LEAVE      ./train leaves a process behind that no longer bears its part's mark
#   WRONG      the check of gpu_smoke that fails
#   OTHER      a flag of ./train that changes the weights hash and the losses
#   BROKEN     make fails; BROKEN_TRAIN: ./train --version does
#   CAPABILITY of the GPU (9.0); PYTORCH, SUSTAINED, FLASH, CUDNN, SUM: figures of a benchmark
# shellcheck shell=bash
# shellcheck disable=SC2034 # its tests read status
# shellcheck disable=SC2016 # the stand-ins expand their variables themselves

folder=$(mktemp -d -t gpu_machine.XXXXXX)
export GPU_MACHINE=$folder PYTORCH=700000 SUSTAINED=9000 FLASH=280 CUDNN=400 SUM=0.85
export PATIENCE=10 # the machine of a test may be busy
scripts=$(cd "${BASH_SOURCE%/*}/../../scripts" && pwd)

# What still runs of this machine, by a variable that all inherit; not the test itself.
processes() {
    local p pids words
    pids=$(grep -lzsxF "GPU_MACHINE=$folder" /proc/[0-9]*/environ | cut -d / -f 3)
    for p in $pids; do # those of this search have ended
        words=$({ tr '\0' ' ' <"/proc/$p/cmdline"; } 2>/dev/null)
        [ -z "$words" ] || [[ $words == *tests/scripts/test_gpu_* ]] || echo "$p $words"
    done
}

end_machine() {
    processes | while read -r p _; do
        kill -KILL "$p" 2>/dev/null
    done
    rm -rf "$folder"
}
trap end_machine EXIT

program() { # program FILE: made of standard input
    mkdir -p "$(dirname "$1")"
    { echo '#!/bin/bash' && cat; } >"$1"
    chmod +x "$1"
}

mkdir -p "$folder/scripts" "$folder"/tests/{bench,kernels,zero}
cp -r "$scripts/gpu" "$scripts"/{gpu_check,help,marked,torch,figures}.sh "$folder/scripts/"
echo 'int main;' >"$folder/train.c"
kernels=$(cd "$scripts/../tests/kernels" && ls test_kernels_*.c)
kernels="${kernels//.c/} test_cuda_ptx test_blas"
names="$kernels test_comm_gpu test_gpu_train test_gpu_offload"
touch "$folder/Makefile" \
    "$folder"/tests/{bench/step_kernels,zero/test_{comm_gpu,gpu_train,gpu_offload}}.c
for name in $kernels; do
    touch "$folder/tests/kernels/$name.c"
done
# Where the compiler of this machine is, too, is no nvcc.
user_path=$(tr : '\n' <<<"$PATH" | while read -r f; do [ -e "$f/nvcc" ] || echo "$f"; done |
    paste -sd :)

program "$folder/bin/make" <<'P'
[ -z "${DEPS:-}" ] || echo "$CPATH $LIBRARY_PATH" >"$DEPS/seen"
mkdir -p build/gpu
echo 'HAVE_URING := yes' >build/gpu/features.mk
[[ $* != *features ]] || exit 0
echo "$*" >>made
if [ -n "${BROKEN:-}" ]; then
    printf 'said %d\n' {1..100} && exit 2
fi
cp -r programs/. build/gpu/
P
program "$folder/bin/nvcc" <<<'printf "nvcc\nrelease 13.0\nend\n"'
program "$folder/bin/nvidia-smi" <<<'[[ $* == *compute-apps* ]] || echo "${CAPABILITY:-9.0}"'
program "$folder/bin/strip" <<'P'
[ "$(head -c 2 "$3")" = "#!" ] && exec cp "$3" "$2"
exec /usr/bin/strip "$@"
P
program "$folder/bin/compute-sanitizer" <<'P'
[ "$1" != --help ] || exec echo "  --kernel-name arg  which kernels"
echo "compute-sanitizer $*" >>"$GPU_MACHINE/sanitized"
P
program "$folder/bin/python" <<'P'
case "$*" in
*speed*) echo "PyTorch $3 batch 8: $PYTORCH tokens/s, 1 ms, 1.0 GiB" ;;
*matmul*) echo "sustained $SUSTAINED TFLOP/s" ;;
*attention*)
    echo "FlashAttention-2 HS 64 T 1024: forward 300 TFLOP/s, forward and backward $FLASH TFLOP/s"
    echo "FlashAttention-2 HS 64 T 4096: forward 300 TFLOP/s, forward and backward 999 TFLOP/s"
    echo "cuDNN HS 64 T 1024: forward 500 TFLOP/s, forward and backward $CUDNN TFLOP/s" ;;
esac
P
# Each step of 8 sequences takes 10 ms: 819,200 tokens/s, whatever the model.
program "$folder/programs/train" <<'P'
[ "$1" != --version ] || exit "${BROKEN_TRAIN:-0}"
all=" $* " batch=0 loss=4.5
while [ $# -gt 0 ]; do
    case $1 in
    --batch) batch=$2 ;;
    --out) out=$2 ;;
    esac
    shift
done
[[ $all != *" --plan "* ]] || exec printf '\t"peak":\t1000\n'
[ -z "${OTHER:-}" ] || [[ $all != *" $OTHER "* ]] || loss=4.6
if [[ $all == *" --steps 10 "* || $all == *" --steps 1 "* || $all == *" --steps 50 "* ]]; then
    exec echo "weights hash: 01234567${loss/./}"
fi
if [ -n "${LEAVE:-}" ]; then
    GPU_CHECK_PART=none setsid sleep 300 >/dev/null 2>&1 &
fi
if [ -n "${HANG:-}" ]; then
    trap '' TERM
    setsid bash -c 'trap "" TERM; touch "$GPU_MACHINE/hangs"; sleep 300; sleep 300' &
    sleep 300
    sleep 300
fi
mkdir -p "$out"
echo "  all, about  1.00"
for i in {1..16}; do
    echo "{\"step\":$i,\"loss\":$loss,\"step_ms\":$((batch * 10 / 8)).0}"
done >"$out/log.jsonl"
exec sleep 20
P
program "$folder/programs/tests/bench_attention" <<'P'
echo "bf16   1024   64   16  32 |     100.0  250.0 |     250.0  280.0 |     350.0  270.0"
[ $# = 3 ] ||
    echo "bf16   4096   64    4  32 |     100.0  250.0 |     250.0  280.0 |     350.0    1.0"
P
program "$folder/programs/tests/bench_cuda" <<'P'
echo "124M   8192 rows  norm_forward     bf16   50.4 MB    15.0 us  3355 GB/s  0.95 of a copy"
echo "124M   8192 rows  sum of squares, wte  bf16   77.3 MB  25.0 us  3091 GB/s  $SUM of a copy"
P
program "$folder/programs/tests/gpu_smoke" <<'P'
[ "$1" != list ] || exec printf '%s\n' libraries kernel attention-bf16 matmul-nt-bf16 matmul-nn-fp32
echo "$1: error 0"
[ "$1" != "${WRONG:-}" ]
P
program "$folder/programs/tests/step_kernels" <<<'echo "gpt2 batch 32: 1000 tokens/s, 2 ms a step"'
for name in $names; do
    program "$folder/programs/tests/$name" <<<'echo "ok 1 - it is"'
done

# gpu_check MODE NAME=VALUE...: the report is $folder/out/gpu_MODE.md; sets status.
gpu_check() {
    local more=()
    [ "$1" != build ] || more=(90)
    rm -f "$folder/made" "$folder/out/gpu_$1.md"
    env PYTHON="$folder/bin/python" PATH="$folder/bin:$user_path" "${@:2}" \
        timeout -k 5 100 bash "$folder/scripts/gpu_check.sh" "$1" "$folder/out" "${more[@]}" \
        >"$folder/said" 2>&1
    status=$?
    report=$folder/out/gpu_$1.md
}

said() { # what a test that fails shows
    cat "$folder/said"
    [ ! -e "$report" ] || tail -n "${1:-30}" "$report"
}
