# A machine with a GPU that is made up, for tests of scripts/gpu_check.sh: source this file after
# tap.sh. In $folder lie a copy of the scripts, a source of a few files, and in $folder/bin what
# would be installed there. `make` puts $folder/programs into build/gpu. What programs and PyTorch
# say, and how they fail, comes from variables of the environment:
#
#   OPEN       seconds in which a process opens the GPU (0)
#   HANG       the model of which ./train neither logs nor ends, and has a child in a session of its
#              own; neither heeds SIGTERM
#   LEAVE      ./train leaves a process behind
#   WRONG      the check of gpu_smoke that fails; FAULT: that ends the process
#   OTHER      a flag of ./train that changes the weights hash and the losses
#   BROKEN     make fails; BROKEN_TRAIN: ./train --version does
#   CAPABILITY of the GPU (9.0); CARD: its name
#   PYTORCH, SUSTAINED, FLASH, CUDNN, SUM: figures of a benchmark
# shellcheck shell=bash
# shellcheck disable=SC2034 # its tests read status
# shellcheck disable=SC2016 # the stand-ins expand their variables themselves

folder=$(mktemp -d -t gpu_machine.XXXXXX)
export GPU_MACHINE=$folder PYTORCH=700000 SUSTAINED=9000 FLASH=280 CUDNN=400 SUM=0.85
root=$(cd "${BASH_SOURCE%/*}/../.." && pwd)

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
cp -r "$root"/scripts/{gpu,gpu_check.sh,help.sh} "$folder/scripts/"
(cd "$root" && cp --parents scripts/dev/{proc_tag,torch}.sh scripts/bench/figures.sh "$folder")
echo 'int main;' >"$folder/train.c"
touch "$folder/Makefile"
# Programs and sources of the tests are those of this tree, as gpu_check itself finds them.
names=$(cd "$root" && . scripts/gpu/build.sh && . scripts/gpu/tests.sh &&
    { kernel_tests && run_tests && echo test_cuda_ptx; } | xargs)
for name in $names step_kernels; do
    (cd "$root" && find tests -name "$name.c") | (cd "$folder" && xargs dirname | xargs mkdir -p)
    (cd "$root" && find tests -name "$name.c") | (cd "$folder" && xargs touch)
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
program "$folder/bin/nvidia-smi" <<'P'
case $* in
*gpu=name,compute_cap*) echo "${CARD:-NVIDIA X}, ${CAPABILITY:-9.0}" ;;
*memory.used*) echo "1000 MiB" ;;
esac
P
program "$folder/bin/strip" <<'P'
[ "$(head -c 2 "$3")" = "#!" ] && exec cp "$3" "$2"
exec /usr/bin/strip "$@"
P
program "$folder/bin/compute-sanitizer" <<'P'
echo "compute-sanitizer $*" >>"$GPU_MACHINE/sanitized"
sleep "${OPEN:-0}"
P
program "$folder/bin/python" <<'P'
[[ $* != *tests/torch* ]] || sleep "${OPEN:-0}"
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
sleep "${OPEN:-0}"
[ -z "${OTHER:-}" ] || [[ $all != *" $OTHER "* ]] || loss=4.6
if [[ $all == *" --steps 10 "* || $all == *" --steps 1 "* || $all == *" --steps 50 "* ]]; then
    exec echo "weights hash: 01234567${loss/./}"
fi
if [ -n "${LEAVE:-}" ]; then
    setsid sleep 300 >/dev/null 2>&1 &
fi
if [[ $all == *" --model ${HANG:-none} "* ]]; then
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
sleep "${OPEN:-0}"
echo "bf16   1024   64   16  32 |     100.0  250.0 |     250.0  280.0 |     350.0  270.0"
[ $# = 3 ] ||
    echo "bf16   4096   64    4  32 |     100.0  250.0 |     250.0  280.0 |     350.0    1.0"
P
program "$folder/programs/tests/bench_cuda" <<'P'
sleep "${OPEN:-0}"
echo "124M   8192 rows  norm_forward     bf16   50.4 MB    15.0 us  3355 GB/s  0.95 of a copy"
echo "124M   8192 rows  sum of squares, wte  bf16   77.3 MB  25.0 us  3091 GB/s  $SUM of a copy"
P
program "$folder/programs/tests/gpu_smoke" <<'P'
[ "$1" != list ] || exec printf 'matmul-%s\n' {nt,nn}-{bf16,fp16,fp32}
sleep "${OPEN:-0}"
[ "$1" != hold ] || exec cat
status=0
for name in "$@"; do
    word=right
    [ "$name" != "${FAULT:-}" ] || exit 134
    [ "$name" != "${WRONG:-}" ] || word=WRONG status=1
    echo "$name: $word, 1 ms"
done
exit $status
P
program "$folder/programs/tests/step_kernels" <<'P'
sleep "${OPEN:-0}"
echo "gpt2 batch 32: 1000 tokens/s, 2 ms a step"
P
for name in $names; do
    program "$folder/programs/tests/$name" <<<'sleep "${OPEN:-0}"; echo "ok 1 - it is"'
done

# gpu_check MODE NAME=VALUE...: in an empty folder, with $folder/green as REPORTS where that is
# there. The report is $folder/out/gpu_MODE.md; sets status.
gpu_check() {
    local more=()
    [ ! -e "$folder/green" ] || more=("$folder/green")
    [ "$1" != build ] || more=(90)
    rm -rf "$folder/made" "$folder/out"
    env PYTHON="$folder/bin/python" PATH="$folder/bin:$user_path" "${@:2}" \
        timeout -k 5 100 bash "$folder/scripts/gpu_check.sh" "$1" "$folder/out" "${more[@]}" \
        >"$folder/said" 2>&1
    status=$?
    report=$folder/out/gpu_$1.md
}

# Of the tests of kernels, which are all alike to gpu_check, one is left.
few_kernels() {
    find "$folder/tests/kernels" -name 'test_kernels_*' ! -name '*_norm.c' -delete
    names=$(cd "$folder" && find tests -name 'test_*.c' | sed 's,.*/,,; s/\.c$//' | xargs)
}

# In seconds instead of minutes: a hundredth of each limit, and what a process may take to start.
short_limits() {
    cat >>"$folder/scripts/gpu/lib.sh" <<'P'
eval "full_$(declare -f plan)"
plan() { full_plan "$1" "$2" $(($3 / 100 + 2)) "${@:4}"; }
P
}

# Real limits, of which each part sleeps a half first.
half_limits() {
    cat >>"$folder/scripts/gpu/lib.sh" <<'P'
eval "full_$(declare -f plan)"
plan() {
    local first=(after $(($3 / 2)))
    [ "$2" != Build ] || first=()
    full_plan "$1" "$2" "$3" "${first[@]}" "${@:4}"
}
after() { sleep "$1" && "${@:2}"; }
export -f after
P
}

keep() { # what the last call wrote is REPORTS of those to come
    rm -rf "$folder/green"
    cp -r "$folder/out" "$folder/green"
}

without() { # without MODE NAME: takes that part's section out of those REPORTS
    awk -v title="## $2" '/^## / { out = $0 == title } !out' "$folder/green/gpu_$1.md" \
        >"$folder/rest" && mv "$folder/rest" "$folder/green/gpu_$1.md"
}

said() { # what a test that fails shows
    cat "$folder/said"
    [ ! -e "$report" ] || tail -n "${1:-30}" "$report"
}

# card_call SECONDS NAME=VALUE...: `gpu_check.sh all` as on a machine that is lent: OUTDIR is empty
# before the call, which is killed after SECONDS, and what lies there then, in $folder/back, is
# REPORTS of the next call. What standard output had is $folder/shown. Sets status (137: killed).
card_call() {
    local more=()
    [ ! -e "$folder/back" ] || more=("$folder/back")
    rm -rf "$folder/out" && mkdir "$folder/out"
    { # says "Killed" otherwise
        env PYTHON="$folder/bin/python" PATH="$folder/bin:$user_path" "${@:2}" \
            timeout -s KILL "$1" \
            bash "$folder/scripts/gpu_check.sh" all "$folder/out" "${more[@]}" \
            >"$folder/shown" 2>"$folder/said"
    } 2>/dev/null
    status=$?
    [ -z "$(ls "$folder"/out/gpu_*.md 2>/dev/null)" ] || {
        rm -rf "$folder/back"
        cp -r "$folder/out" "$folder/back"
    }
}
