#!/bin/bash
# gpu_smoke in the simulator: each of its checks passes there, and bad arguments are refused. Speaks
# TAP for scripts/run_tests.sh, which names the build in TRAIN.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
smoke=$(dirname "${TRAIN:-build/cusim/train}")/tests/gpu_smoke

names=$($smoke list)
[ "$(grep -c '^matmul-' <<<"$names")" = 30 ] && [ "$(sort -u <<<"$names" | wc -l)" = 35 ]
result $? "35 checks, 30 of them of products" "$names"
while read -r name; do
    said=$($smoke "$name" 64 2>&1)
    status=$?
    case $name in
    matmul-*-bias-gelu-*) lines=4 ;;
    matmul-*dbias* | matmul-*accumulate*) lines=4 ;;
    matmul-*) lines=3 ;;
    attention-*) lines=8 ;;
    dbias-kernel) lines=2 ;;
    *) lines=1 ;;
    esac
    [ $status = 0 ] && ! grep -q WRONG <<<"$said" && [ "$(wc -l <<<"$said")" -ge $lines ]
    result $? "$name" "$said"
done <<<"$names"

refused() { # refused ARGUMENT...
    local said
    said=$($smoke "$@" 2>&1)
    [ $? = 2 ] && [ "$(wc -l <<<"$said")" = 1 ]
    result $? "refused: $*" "$said"
}
refused
refused matmul-tt-bf16
refused kernel 12
refused kernel 64 64

echo "1..$count"
exit $failed
