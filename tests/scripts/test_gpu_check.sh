#!/bin/bash
# Figures and ratios of scripts/gpu_check.sh bench and offload on a machine that is made up: each
# ratio's place in the report, and the status. test_gpu_parts.sh has all else. Speaks TAP.
# shellcheck disable=SC1091,SC2086,SC2154 # gpu_machine.sh sets status and report
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
. "${BASH_SOURCE%/*}/../lib/gpu_machine.sh"

# fails WORD NAME=VALUE: that change alone makes the status 1 and names one ratio.
fails() {
    gpu_check bench "$2"
    [ $status = 1 ] && [ "$(grep -cE 'BELOW TARGET|NOT MEASURED' "$report")" = 1 ] &&
        grep -qE "(BELOW TARGET|NOT MEASURED): .*$1" "$report"
    result $? "below its target: $1" "$(said)"
}

gpu_check smoke
gpu_check bench
[ $status = 0 ] && grep -q '^0 below target or not measured' "$report" &&
    [ "$(grep -c '(at least ' "$report")" = 7 ] && grep -q '^0.964 (at least 0.9)' "$report"
result $? "all ratios reached: seven lines, status 0" "$(said)"
fails 'FlashAttention-2' FLASH=301
fails "PyTorch's fastest" CUDNN=451
fails 'sum of squares, wte +bf16 to a copy' SUM=0.84
fails 'products sustain' SUSTAINED=13000
gpu_check bench PYTORCH=790000
[ $status = 1 ] &&
    [ "$(grep -c "BELOW TARGET: gpt2.*, 819200 tokens/s to PyTorch's 790000" "$report")" = 2 ]
result $? "below its target: tokens/s of both models" "$(said)"
gpu_check bench FLASH=
[ $status = 1 ] && grep -q '^NOT MEASURED: attention' "$report"
result $? "what was not measured was not reached" "$(said)"

gpu_check offload
[ $status = 0 ] && [ "$(grep -c '^1.000 (at least ' "$report")" = 3 ] &&
    [ "$(grep -c '^  losses 4.5 4.5 4.5 4.5 4.5' "$report")" = 4 ]
result $? "offload: three ratios, status 0" "$(said)"
gpu_check offload OTHER=--offload-optimizer
[ $status = 1 ] && [ "$(grep '^OTHER LOSSES' "$report" | sort | xargs)" = \
    "OTHER LOSSES: optimizer OTHER LOSSES: tenth" ]
result $? "offload: other losses are a failure, but for delayed updates" "$(said)"

deps=$folder/deps
mkdir -p "$deps/usr/include" "$deps/usr/lib/x86_64-linux-gnu"
gpu_check bench DEPS="$deps" CPATH=/of/the/user LIBRARY_PATH=/too
[ "$(cat "$deps/seen")" = "$deps/usr/include:/of/the/user $deps/usr/lib/x86_64-linux-gnu:/too" ]
result $? "DEPS: the compiler looks there, in addition" "$(cat "$deps/seen")"

echo "1..$count"
exit $failed
