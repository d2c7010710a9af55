#!/bin/bash
# gpu_smoke in the simulator: each of its checks passes there, several in one process; that which
# holds the GPU ends with its input; and bad arguments are refused. Speaks TAP for
# scripts/dev/run_tests.sh, which names the build in TRAIN.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
smoke=$(dirname "${TRAIN:-build/cusim/train}")/tests/gpu_smoke

names=$($smoke list)
[ "$(grep -c '^matmul-' <<<"$names")" = 30 ] && [ "$(sort -u <<<"$names" | wc -l)" = 34 ]
result $? "34 checks, 30 of them of products" "$names"

said_of() { # said_of NAME: what a check printed, up to its last line
    awk -v name="$1: " '{ said = said $0 "\n" }
        / (right|WRONG), [0-9]+ ms$/ { if (index($0, name) == 1) printf "%s", said; said = "" }' \
        <<<"$said"
}

# All products of a format in one process, which opens the GPU once, as on a GPU.
for kind in '^[^m]' 'matmul.*'{bf16,fp16,fp32}; do
    readarray -t some < <(grep "$kind" <<<"$names")
    said=$($smoke "${some[@]}" 64 2>&1)
    status=$?
    for name in "${some[@]}"; do
        case $name in
        matmul-*-bias-gelu-*) lines=5 ;;
        matmul-*dbias* | matmul-*accumulate*) lines=5 ;;
        matmul-*) lines=4 ;;
        attention-*) lines=9 ;;
        *) lines=2 ;;
        esac
        of_one=$(said_of "$name")
        [ $status = 0 ] && grep -q "^$name: right, " <<<"$of_one" && ! grep -q WRONG <<<"$of_one" &&
            [ "$(wc -l <<<"$of_one")" -ge $lines ]
        result $? "$name" "$said"
    done
done
said=$(sleep 0.2 | timeout 20 $smoke hold 2>&1)
[ $? = 0 ] && [ -z "$said" ]
result $? "hold: ends with its input" "$said"
open=$(mktemp -u)
mkfifo "$open"
timeout 0.5 $smoke hold <>"$open" >/dev/null 2>&1
[ $? = 124 ]
result $? "hold: not before"
rm "$open"

refused() { # refused ARGUMENT...
    local said
    said=$($smoke "$@" 2>&1)
    [ $? = 2 ] && [ "$(wc -l <<<"$said")" = 1 ]
    result $? "refused: $*" "$said"
}
refused
refused matmul-tt-bf16
refused kernel 12
refused 64 64
refused 64

echo "1..$count"
exit $failed
