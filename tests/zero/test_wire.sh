#!/bin/bash
# Weights that travel in 8 bits (--zero-quantized-weights) and gradients that do in 4
# (--zero-quantized-gradients): one result for every stage, tier and launcher, the bytes that were
# predicted, near and far, checkpoints that go on exactly and for any other grid, and what is
# refused. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/mpi_jobs.sh"
. "${BASH_SOURCE%/*}/../lib/planned_run.sh"

model=("${here[@]}" --data random --vocab 300 --layers 2 --channels 32 --heads 2 --seq-len 16
    --batch 1 --threads 1 --log-every 1 --val-batches 1 --no-tensorboard)
q=--zero-quantized-weights
g=--zero-quantized-gradients

train 4 --zero 1
plain=$hash
for dtype in fp32 bf16; do
    compare 4 $q --zero 1 --dtype $dtype
    [ "$want" != "$plain" ]
    result $? "$dtype: other weights than without" "$plain"
    same 4 $q --dtype $dtype --zero 3 --overlap off
    same 4 $q --dtype $dtype --zero 3 --offload-optimizer nvme --offload-param nvme \
        --nvme-path "$folder"
    processes 4 $q --zero 1 --dtype $dtype
    processes 4 $q --zero 3 --dtype $dtype
done

# ---- what leaves a node is counted apart ----

# sent KEY: a figure of a step's traffic, of the last run.
sent() {
    python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["measured"]["traffic"][sys.argv[2]])' "$folder/out/memory.json" \
        "$1"
}

train 6 --zero 3 --node-size 3 --dtype bf16
before=$(sent all_gather)
train 6 $q --zero 3 --node-size 3 --dtype bf16
exact && [ "$(sent all_gather)" -lt $((before * 54 / 100)) ]
result $? "weights in 8 bits are little more than half of bf16" "$before; $said"
all=$(sent far)
train 6 $q --zero 3 --node-size 3 --dtype bf16 --zero-hpz-partition-size 3
exact && [ "$(sent far)" -lt "$all" ]
result $? "and with a second partition fewer of them leave their node" "$all; $said"

# ---- gradients, in two hops ----

for node in 1 2 4; do
    compare 4 $g --zero 1 --node-size $node
    [ "$want" != "$plain" ]
    result $? "gradients by nodes of $node: other weights than without" "$plain"
    same 4 $g --node-size $node --zero 3 --offload-param cpu --offload-optimizer cpu \
        --zero-hpz-partition-size 0
    processes 4 $g --zero 2 --node-size $node
done
train 4 $g --zero 1
[ "$hash" = "$want" ]
result $? "of threads all are on one node" "$said"

train 6 --zero 2 --node-size 3 --dtype bf16
before=$(sent far)
train 6 $g --zero 2 --node-size 3 --dtype bf16
exact && [ "$(sent far)" -lt $((before * 60 / 100)) ] # weights are what they were
result $? "less leaves a node" "$before; $said"
all=$(sent far)
train 6 $q $g --zero 2 --node-size 3 --dtype bf16
want=$hash
exact && [ "$(sent far)" -lt $((all * 62 / 100)) ]
result $? "and with both, a third of it" "$all; $said"
train 6 $q $g --zero 3 --node-size 3 --dtype bf16 --zero-hpz-partition-size 3
[ -n "$want" ] && [ "$hash" = "$want" ] && exact
result $? "all of ZeRO++ together: the hash of stage 2" "$want; $said"

# ---- checkpoints are of the weights as they were ----

# chain GRID...: the hash after two steps in each grid, "RANKS ARGUMENTS", one after another.
chain() {
    local grid steps=2
    rm -rf "$folder/out"
    for grid in "$@"; do
        # shellcheck disable=SC2086
        said=$("$train" "${model[@]}" --global-batch 12 --steps $steps --out "$folder/out" \
            --resume auto --ranks $grid 2>&1) || return
        steps=$((steps + 2))
    done
    hash=$(grep '^weights hash' <<<"$said")
}
for dtype in fp32 bf16; do
    train 4 $q --zero 2 --dtype $dtype --global-batch 12 --steps 8
    want=$hash
    chain "4 $q --zero 2 --dtype $dtype" "4 $q --zero 3 --save-async" \
        "4 $q --zero 2 --offload-optimizer cpu" \
        "4 $q --zero 3 --zero-hpz-partition-size 2 --offload-optimizer none"
    [ -n "$want" ] && [ "$hash" = "$want" ]
    result $? "$dtype: resumed three times, in other placements, it is the run that never stopped" \
        "$want; $said"
done
train 4 $q --zero 1 --offload-optimizer cpu --delay-update --steps 6
want=$hash
rm -rf "$folder/out"
for steps in 2 4 6; do
    said=$("$train" "${model[@]}" --steps $steps --out "$folder/out" --resume auto --ranks 4 $q \
        --zero 1 --offload-optimizer cpu --delay-update 2>&1)
done
[ -n "$want" ] && [ "$(grep '^weights hash' <<<"$said")" = "$want" ]
result $? "and with updates that come late" "$want; $said"

train 4 $q $g --node-size 2 --zero 3 --global-batch 12 --steps 4
want=$hash
chain "4 $q $g --node-size 2 --zero 2" "4 --zero 3 --offload-optimizer cpu"
[ -n "$want" ] && [ "$hash" = "$want" ]
result $? "gradients: resumed, elsewhere, it is the run that never stopped" "$want; $said"
said=$("$train" --out "$folder/out" --resume auto --steps 5 --node-size 4 2>&1)
[ $? = 2 ] && error_is 'E_CHECKPOINT_IDENTITY "--node-size 2", not "--node-size 4"'
result $? "with other nodes it would be another run: refused" "$said"

train 4 $q --zero 2
said=$("$train" --out "$folder/out" --resume auto --steps 5 --no-zero-quantized-weights 2>&1)
[ $? = 2 ] && error_is 'E_CHECKPOINT_IDENTITY "--zero-quantized-weights true"'
result $? "as many ranks with other weights on their way would be another run: refused" "$said"
want=$(grep '^weights hash' <<<"$hash")
resumed "other ranks go on from the same weights as they like" --steps 3 --ranks 2 --zero 0 \
    --batch 2 --no-zero-quantized-weights
train 1 $q --zero 1 --steps 4 --batch 4
one=$(grep 'step 4' <<<"$said" | grep -o 'loss [0-9.]*')
train 4 $q --zero 3 --steps 4
four=$(grep 'step 4' <<<"$said" | grep -o 'loss [0-9.]*')
[ -n "$one" ] && [ "${one%??}" = "${four%??}" ]
result $? "one rank rounds its weights as four do" "$one $four"

# Threads are one node; that is what processes say then.
"$train" "${model[@]}" $g --zero 2 --ranks 2 --steps 3 --save-every 3 --out "$folder/threads" \
    >/dev/null 2>&1
said=$(job 2 "$train" "${model[@]}" $g --zero 2 --node-size 2 --steps 4 --resume auto \
    --out "$folder/threads")
grep -q '^resumed after step 3' <<<"$said" && grep -q '^weights hash' <<<"$said"
result $? "processes go on from threads' gradients in 4 bits" "$said"
rm -rf "$folder/threads"

said=$(job 2 "$train" "${model[@]}" --steps 3 $g --zero 1 --out "$folder/job")
error_is E_QUANT_NODES
result $? "refused: processes that do not say how many a node has" "$said"

echo "1..$count"
exit $failed
