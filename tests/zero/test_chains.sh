#!/bin/bash
# ./train --plan --show-chain as a user meets it: how one group travels in a step. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"

chain() {
    "$train" --plan --data random --model gpt2 --device cpu --batch 4 --threads 1 --dtype bf16 \
        "$@" 2>&1
}
said=$(chain --ranks 4 --zero 3 --offload-param cpu --offload-optimizer cpu --global-batch 32 \
    --show-chain block.0 | sed -n '/^chains/,/^memory/p' | sed '$d' | tr -s ' ')
want="chains of block.0 on rank 0: 7087872 parameters in bf16, gradients in fp32, micro-batches: 2
 fetch (forward) h2d in 2 x 6.76 MiB to the device
 fetch (forward) all_gather comm 2 x 20.28 MiB sent, dp of 4
 fetch (backward) h2d in 2 x 6.76 MiB to the device
 fetch (backward) all_gather comm 2 x 20.28 MiB sent, dp of 4
 accumulate h2d in 1 x 6.76 MiB to the device
 reduce reduce_scatter comm 2 x 40.56 MiB sent, dp of 4
 reduce grad_norm comm 1 x 6.76 MiB of memory by kernels
 reduce d2h out 2 x 13.52 MiB from the device
 update host_adamw host compute 1 x 50.70 MiB of memory by kernels"
[ "$said" = "$want" ]
result $? "--show-chain: the hops of a block at stage 3 with offload" "$said"
said=$(chain --ranks 4 --pp 2 --zero 1 --show-chain block.11)
grep -q "^chains of block.11 on rank 2: " <<<"$said" &&
    grep -q "^  publish  *all_gather  *comm  *1 x .* dp of 2" <<<"$said"
result $? "of a block of another stage, on a rank that has it" "$said"
said=$(chain --show-chain head)
[ $? = 2 ] && error_is "E_SHOW_CHAIN --show-chain head: *expected ends" &&
    ! grep -q "^memory" <<<"$said"
result $? "a group that the model has not" "$said"
said=$("$train" --data random --show-chain ends 2>&1)
[ $? = 2 ] && error_is "E_SHOW_CHAIN --show-chain ends: *--plan"
result $? "of a run there is none" "$said"

echo "1..$count"
exit $failed
