#!/bin/bash
# Pipeline parallelism (--pp): one result for every count of stages and every cut, with what else a
# stage does, the bytes that were predicted, samples, and what is refused. Speaks TAP. The order of
# a step is test_pipe.c's.
set -u
. "${BASH_SOURCE%/*}/../lib/mpi_jobs.sh"
. "${BASH_SOURCE%/*}/../lib/planned_run.sh"

model=("${here[@]}" --data random --vocab 300 --layers 3 --channels 48 --heads 12 --tie off
    --seq-len 16 --batch 1 --threads 1 --log-every 1 --val-batches 1 --no-tensorboard)

for micros in 1 4 7; do
    compare 1 --global-batch $micros
    for p in 2 3 4 5; do
        same $p --pp $p --global-batch $micros
    done
done
compare 1 --global-batch 4
for how in "2 --pp-split 3,0" "2 --pp-split 0,3" "3 --pp-split 2,1,0" "3 --pp-split 0,1,2" \
    "3 --zero 3 --prefetch 0" "4 --zero 2 --offload-optimizer cpu --offload-param cpu" \
    "3 --overlap off" "2 --offload-activations cpu --pp-split 3,0 --prefetch 2" \
    "3 --zero 3 --offload-param cpu --offload-activations cpu --recompute block"; do
    read -r p rest <<<"$how"
    # shellcheck disable=SC2086
    same "$p" --pp "$p" --global-batch 4 $rest
done

# ---- with other axes of the grid ----

# each line: ranks and flags without stages, then flags that may change nothing
while IFS='|' read -r ranks how more; do
    # shellcheck disable=SC2086
    compare $ranks $how --global-batch 4
    for p in 2 3; do
        # shellcheck disable=SC2086
        same $((ranks * p)) --pp $p $how $more --global-batch 4
    done
done <<'END'
2|--zero 3 --prefetch 5|--recompute block
2|--zero 0|--zero 1
4|--zero 3 --zero-shard-size 2|
2|--zero 3|--zero-hpz-partition-size 2
2|--zero 3 --zero-quantized-weights|
2|--zero 2 --zero-quantized-gradients --node-size 2|--zero 3
4|--zero 3 --zero-quantized-gradients --zero-quantized-weights --node-size 2|
2|--tp 2|--zero 3
2|--tp 2 --sequence-parallel --zero 2|--recompute block
2|--tp 2|--recompute block --partition-activations --prefetch 0
2|--tp 2|--recompute block --partition-activations --offload-activations cpu --zero 3
1|--dtype bf16 --master-dtype split|--zero 3
1|--dtype fp16 --loss-scale 1099511627776|
1|--family llama --kv-heads 4 --ffn 96|--zero 2
END

compare 1 --global-batch 4
processes 3 --zero 3 --pp 3 --global-batch 4 --check-comm

# ---- traces ----

# units FILE: of which a rank's queues did something in the last step, by its trace
units() {
    python3 - "$1" <<'END'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
print(*sorted({e["args"]["unit"] for e in events if "unit" in e.get("args", {})} - {-1}))
END
}
for how in "--zero 3" "--zero 2 --offload-optimizer cpu --offload-param cpu"; do
    # shellcheck disable=SC2086
    train 4 --pp 2 --pp-split 1,2 --global-batch 4 --trace "$folder/trace.json" $how
    numbers=$(for r in "" .1 .2 .3; do units "$folder/trace.json$r"; done)
    [ "$(tr '\n' '|' <<<"$numbers")" = "0 1|0 1|2 3 4|2 3 4|" ]
    result $? "traces of stages, $how: units of the whole model" "$numbers; $said"
done

# ---- checkpoints, samples and exports do not know the stages ----

# goes FROM TO: three steps as FROM says, three more as TO says, with the weights of six as FROM.
goes() {
    # shellcheck disable=SC2086
    "$train" "${model[@]}" --global-batch 4 $1 --steps 3 --save-every 3 \
        --out "$folder/from" >/dev/null 2>&1
    # shellcheck disable=SC2086
    said=$("$train" "${model[@]}" --global-batch 4 $2 --steps 6 --resume auto \
        --out "$folder/from" 2>&1)
    [ -n "$six" ] && [ "$(grep '^weights hash' <<<"$said")" = "$six" ]
    result $? "resumed: $1, then $2" "$six; $said"
    rm -rf "$folder/from"
}
six=$("$train" "${model[@]}" --global-batch 4 --steps 6 --out "$folder/six" 2>&1 |
    grep '^weights hash')
rm -rf "$folder/six"
goes "--ranks 3 --pp 3" "--ranks 3 --pp 3"
goes "--ranks 3 --pp 3" "--ranks 1 --pp 1"
goes "--ranks 1" "--ranks 4 --pp 4 --zero 3"
goes "--ranks 2 --pp 2 --pp-split 2,1" "--ranks 3 --pp 3 --pp-split 1,1,1 --save-async"
goes "--ranks 3 --pp 3 --offload-optimizer cpu" "--ranks 2 --pp 2 --pp-split 0,3"
goes "--ranks 3 --pp 3 --pp-split 0,3,0" "--ranks 1 --pp 1"
goes "--ranks 2 --pp 2 --pp-split 1,2" "--ranks 2 --pp-split auto"
six=$("$train" "${model[@]}" --global-batch 4 --ranks 4 --zero 2 --zero-shard-size 2 --steps 6 \
    --out "$folder/six" 2>&1 | grep '^weights hash')
rm -rf "$folder/six"
goes "--ranks 4 --zero 2 --zero-shard-size 2 --pp 1" "--ranks 8 --pp 2 --zero 2 --zero-shard-size 2"

# Both ends have a tied head's matrix, and the first one tells it.
tied=("${model[@]}" --tie on --global-batch 4 --steps 6 --out "$folder/six")
six=$("$train" "${tied[@]}" --ranks 2 --pp 2 2>&1 | grep '^weights hash')
said=$("$train" "${tied[@]}" --ranks 1 --pp 1 --resume auto 2>&1)
[ -n "$six" ] && [ "$(grep '^weights hash' <<<"$said")" = "$six" ]
result $? "a stage alone has the weights hash of two that both have the tied matrix" "$six; $said"
rm -rf "$folder/six"
for to in "2 --pp 2" "3 --pp 3 --offload-optimizer cpu" "4 --pp 4 --zero 1 --save-async"; do
    goes "--tie on --ranks 3 --pp 3 --zero 1" "--tie on --ranks $to"
done

told() { # told ARGUMENT...: the sample and the hash of the exported weights
    "$train" "${here[@]}" --data README.md --tokenizer byte --layers 3 --channels 48 --heads 12 \
        --tie "$tie" --seq-len 16 --batch 1 --global-batch 4 --threads 1 --steps 2 \
        --sample-every 2 --sample-tokens 24 --export "hf:$folder/hf" --out "$folder/told" \
        "$@" 2>&1 |
        sed -n '/^--- sample/,/^---$/p'
    sha256sum <"$folder/hf/model.safetensors"
    rm -rf "$folder/told" "$folder/hf"
}
for tie in off on; do
    [ $tie = off ] && want=$(told) || want=$(told --ranks 2 --pp 2 --zero 1)
    for how in "--ranks 2 --pp 2" "--ranks 3 --pp 3" "--ranks 4 --pp 4"; do
        # shellcheck disable=SC2086
        said=$(told $how)
        [ "$(head -c 12 <<<"$said")" = "--- sample a" ] && [ "$said" = "$want" ]
        result $? "$how, --tie $tie: the same sample, the same export" "$said"
    done
done

# ---- evaluations ----

# judged ARGUMENT...: what a run says of both evaluations, before its first step and at its end
judged() {
    "$train" "${here[@]}" --data README.md --tokenizer byte --layers 3 --channels 48 --heads 12 \
        --tie off --seq-len 64 --batch 1 --global-batch 4 --threads 1 --steps 2 --eval-every 2 \
        --eval ppl,hellaswag:tests/fixtures/eval/items.jsonl --eval-limit 8 \
        --out "$folder/judged" "$@" 2>&1 | grep -E '^step [02]  (validation|hellaswag)'
}
want=$(judged)
# alone FLAG...: what is said of its checkpoint alone, and a sample of that
alone() {
    "$train" --out "$folder/judged" --resume auto --eval-only "$@" 2>/dev/null
    "$train" --out "$folder/judged" --resume auto --sample-only --prompt "zero.c " \
        --sample-tokens 24 "$@" 2>/dev/null
}
told=$(alone)
[ "$(wc -l <<<"$want")" = 4 ] && [ "$(grep -c '^step 2  ' <<<"$told")" = 2 ] &&
    grep -aq '^zero.c .' <<<"$told"
result $? "two evaluations, in a run and of its checkpoint, and a sample to compare with" "$told"
for how in "--ranks 2 --pp 2" "--ranks 3 --pp 3 --zero 3" "--ranks 4 --pp 2 --zero 2"; do
    # shellcheck disable=SC2086
    [ "$(alone $how)" = "$told" ]
    # shellcheck disable=SC2086
    result $? "$how: the checkpoint's, and its sample" "$(alone $how)"
done
for how in "--ranks 2 --pp 2" "--ranks 5 --pp 5"; do
    rm -rf "$folder/judged"
    # shellcheck disable=SC2086
    said=$(judged $how)
    [ "$said" = "$want" ]
    result $? "$how: the same in a run" "$want; $said"
done
rm -rf "$folder/judged"

# ---- what is refused, and what is said ----

refused "more stages than layers and ends" 'E_PP_STAGES --pp 6*5' 6 --pp 6
refused "a cut of other layers" 'E_PP_SPLIT --pp-split 2,2*--pp 2' 2 --pp 2 --pp-split 2,2
refused "nodes that divide no stage" 'E_QUANT_NODES --node-size 3*--ranks 4 / --pp 2;' \
    4 --pp 2 --zero 2 --zero-quantized-gradients --node-size 3 --global-batch 4
refused "a batch that divides no stage" \
    'E_GLOBAL_BATCH --global-batch 3*--batch 1*--ranks 4 / --pp 2;' 4 --pp 2 --global-batch 3
refused "shards over more than a stage" \
    'E_SHARD_SIZE_RANKS --zero-shard-size 4*--ranks 4 / --pp 2;' \
    4 --pp 2 --zero 3 --zero-shard-size 4 --global-batch 4
train 4 --pp 4 --global-batch 3
[ "$(grep -c 'warning: --pp 4 with 3 micro-batches in a step' <<<"$said")" = 1 ]
result $? "fewer micro-batches than stages: a warning, once" "$said"
train 2 --pp 2 --pp-split 0,3 --global-batch 4 --zero 1
grep -q '^  rank 1, the most ' <<<"$said" && grep -q '^  rank 0  ' <<<"$said" &&
    grep -q -- '^--zero 1 with one data-parallel rank shards nothing' <<<"$said"
result $? "tables name the rank they are of, where ranks differ" "$said"
train 4 --pp 4 --global-batch 4
[[ $said != *"warning: --pp 4"* ]]
result $? "as many: none" "$said"
echo "1..$count"
exit $failed
