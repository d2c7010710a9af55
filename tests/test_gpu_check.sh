#!/bin/bash
# scripts/gpu_check.sh bench on a machine that is made up: what the programs and PyTorch say is
# written here, so each ratio's place in the report and the status can be looked at. Speaks TAP.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. "${BASH_SOURCE%/*}/tap.sh"

program() { # program FILE: made of standard input
    mkdir -p "$(dirname "$1")"
    { echo '#!/bin/bash' && cat; } >"$1"
    chmod +x "$1"
}

mkdir -p "$folder/scripts"
cp "${BASH_SOURCE%/*}/../scripts/gpu_check.sh" "$folder/scripts/"
program "$folder/bin/make" <<<'[ -z "${DEPS:-}" ] || echo "$CPATH $LIBRARY_PATH" >"$DEPS/seen"'
program "$folder/bin/nvcc" <<<'echo nvcc; echo 13.0'
program "$folder/bin/nvidia-smi" <<<'echo 9.0'
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
program "$folder/build/gpu/train" <<'P'
while [ "$1" != --batch ]; do shift; done
batch=$2
while [ "$1" != --out ]; do shift; done
mkdir -p "$2"
echo "  all  1.00"
for i in {1..16}; do echo "{\"step\":$i,\"step_ms\":$((batch * 10 / 8)).0}"; done >"$2/log.jsonl"
exec sleep 20
P
program "$folder/build/gpu/tests/bench_attention" <<'P'
echo "bf16   1024   64   16  32 |     100.0  250.0 |     250.0  280.0 |     350.0  270.0"
echo "bf16   4096   64    4  32 |     100.0  250.0 |     250.0  280.0 |     350.0    1.0"
P
program "$folder/build/gpu/tests/bench_cuda" <<'P'
echo "124M   8192 rows  norm_forward     bf16   50.4 MB    15.0 us  3355 GB/s  0.95 of a copy"
echo "124M   8192 rows  sum of squares, wte  bf16   77.3 MB  25.0 us  3091 GB/s  $SUM of a copy"
P

# check NAME=VALUE...: the report is in $folder/out, the status is the script's.
check() {
    rm -rf "$folder/out"
    env PYTORCH=700000 SUSTAINED=9000 FLASH=280 CUDNN=400 SUM=0.85 PYTHON="$folder/bin/python" \
        PATH="$folder/bin:$PATH" "$@" timeout -k 5 100 bash "$folder/scripts/gpu_check.sh" bench \
        "$folder/out" >"$folder/said" 2>&1
}
report=$folder/out/gpu_bench.md

# fails WORD NAME=VALUE: that change alone makes the status 1 and names one ratio.
fails() {
    check "$2"
    [ $? = 1 ] && [ "$(grep -cE 'BELOW TARGET|NOT MEASURED' "$report")" = 1 ] &&
        grep -qE "(BELOW TARGET|NOT MEASURED): .*$1" "$report"
    result $? "below its target: $1" "$(tail -n 20 "$report")"
}

check
[ $? = 0 ] && grep -q '^0 below target or not measured' "$report" &&
    [ "$(grep -c '(at least ' "$report")" = 7 ] && grep -q '^0.964 (at least 0.9)' "$report"
result $? "all ratios reached: seven lines, status 0" "$(tail -n 20 "$report")"
fails 'FlashAttention-2' FLASH=301
fails "PyTorch's fastest" CUDNN=451
fails 'sum of squares, wte +bf16 to a copy' SUM=0.84
fails 'products sustain' SUSTAINED=13000
check PYTORCH=790000
[ $? = 1 ] &&
    [ "$(grep -c "BELOW TARGET: gpt2.*, 819200 tokens/s to PyTorch's 790000" "$report")" = 2 ]
result $? "below its target: tokens/s of both models" "$(tail -n 20 "$report")"
check FLASH=
[ $? = 1 ] && grep -q '^NOT MEASURED: attention' "$report"
result $? "what was not measured was not reached" "$(tail -n 20 "$report")"

deps=$folder/deps
mkdir -p "$deps/usr/include" "$deps/usr/lib/x86_64-linux-gnu"
check DEPS="$deps" CPATH=/of/the/user LIBRARY_PATH=/too
[ "$(cat "$deps/seen")" = "$deps/usr/include:/of/the/user $deps/usr/lib/x86_64-linux-gnu:/too" ]
result $? "DEPS: the compiler looks there, in addition" "$(cat "$deps/seen")"

echo "1..$count"
exit $failed
