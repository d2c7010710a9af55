#!/bin/bash
# Figures and ratios of scripts/gpu_check.sh bench and offload on a machine that is made up: each
# ratio's place in the summary, and the status. test_gpu_parts.sh and test_gpu_calls.sh have all
# else. Speaks TAP.
# shellcheck disable=SC1091,SC2086,SC2154 # gpu_machine.sh sets status and report
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
. "${BASH_SOURCE%/*}/../lib/gpu_machine.sh"
summary=$folder/out/gpu_summary.md

deps=$folder/deps
mkdir -p "$deps/usr/include" "$deps/usr/lib/x86_64-linux-gnu"
gpu_check bench DEPS="$deps" CPATH=/of/the/user LIBRARY_PATH=/too
[ $status = 0 ] && grep -q ', 0 ratios below target or not measured, 0 parts' "$summary" &&
    [ "$(grep -c '(at least ' "$summary")" = 6 ] && grep -q '^- 0.964 (at least 0.9)' "$summary"
result $? "all ratios reached: six lines, status 0" "$(said)"
[ "$(cat "$deps/seen")" = "$deps/usr/include:/of/the/user $deps/usr/lib/x86_64-linux-gnu:/too" ]
result $? "DEPS: the compiler looks there, in addition" "$(cat "$deps/seen")"
keep
cp -r "$folder/green" "$folder/reached"

# fails SED WORD [TIMES]: that change of a figure in the report alone makes the status 1 and names
# one ratio, or so many.
fails() {
    sed "$1" "$folder/reached/gpu_bench.md" >"$folder/green/gpu_bench.md"
    gpu_check bench
    [ $status = 1 ] && [ "$(grep -cE 'BELOW TARGET|NOT MEASURED' "$summary")" = "${3:-1}" ] &&
        [ "$(grep -cE "(BELOW TARGET|NOT MEASURED): .*$2" "$summary")" = "${3:-1}" ]
    result $? "below its target: $2" "$(said)"
}
fails '/T 1024/s/280 TFLOP/301 TFLOP/' 'FlashAttention-2'
fails '/cuDNN/s/400 TFLOP/451 TFLOP/' "PyTorch's fastest"
fails 's/0.85 of a copy/0.84 of a copy/' 'sum of squares, wte +bf16 to a copy'
fails 's/of a copy/of nothing/' 'memory-bound kernels to a copy'
fails 's/sustained 9000/sustained 13000/' 'products sustain'
fails 's/700000 tokens/790000 tokens/' "819200 tokens/s to PyTorch's 790000" 2
fails '/FlashAttention/d' attention

rm "$folder/green/gpu_bench.md"
gpu_check offload
[ $status = 0 ] && [ "$(grep -c '^- 1.000 (at least ' "$summary")" = 3 ] &&
    [ "$(grep -c ': losses 4.5 4.5 4.5 4.5 4.5$' "$report")" = 4 ]
result $? "offload: three ratios, status 0" "$(said)"
gpu_check offload OTHER=--offload-optimizer
[ $status = 1 ] && [ "$(grep 'OTHER LOSSES' "$summary" | sort | xargs)" = \
    "- OTHER LOSSES: optimizer - OTHER LOSSES: tenth" ]
result $? "offload: other losses are a failure, but for delayed updates" "$(said)"

echo "1..$count"
exit $failed
