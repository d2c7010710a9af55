#!/bin/bash
# Tensor parallelism (--tp): one result for every stage, tier and launcher with as many places,
# the bytes that were predicted, checkpoints and exports that do not depend on the places, samples,
# and what is refused. Speaks TAP. What the parts are beside the whole: test_tensor.c.
set -u
. "${BASH_SOURCE%/*}/../lib/mpi_jobs.sh"
. "${BASH_SOURCE%/*}/../lib/planned_run.sh"

model=("${here[@]}" --data random --vocab 300 --layers 2 --channels 48 --heads 12 --kv-heads 4
    --family llama --ffn 96 --seq-len 16 --batch 1 --threads 1 --log-every 1 --val-batches 1
    --no-tensorboard)

for grid in "2 --tp 2" "4 --tp 2" "4 --tp 4" "2 --tp 2 --sequence-parallel" \
    "4 --tp 4 --sequence-parallel"; do
    # shellcheck disable=SC2086 # words
    compare $grid --zero 0
    # shellcheck disable=SC2086
    same $grid --zero 3 --offload-param cpu --offload-activations cpu --recompute mlp
    # shellcheck disable=SC2086
    processes $grid --zero 3 --check-comm
done
for how in "--zero-shard-size 1" "--zero-hpz-partition-size 2" "--save-async --save-every 1" \
    "--adam-dtype bf16 --master-dtype bf16 --dtype bf16" "--dtype fp16 --loss-scale 1099511627776"; do
    # shellcheck disable=SC2086
    train 4 --tp 2 --zero 3 $how
    [ $status = 0 ] && exact
    result $? "4 ranks, 2 places, $how: runs, bytes as predicted" "$said"
done

# ---- parts of what blocks keep ----

kept=(4 --tp 4 --recompute block --layers 5)
compare "${kept[@]}"
same "${kept[@]}" --partition-activations
same "${kept[@]}" --partition-activations --offload-activations nvme --nvme-path "$folder" --zero 2
processes "${kept[@]}" --partition-activations

# ---- checkpoints go from grid to grid ----

# Without a step the state stays what it is; bits of the weights, whatever the places.
train 4 --tp 4 --zero 1 --save-every 3 --global-batch 4 --batch 1
want=$hash
for grid in "4 1" "4 2" "1 1" "2 2" "4 4"; do
    read -r ranks tp <<<"$grid"
    for stage in 0 3; do
        resumed "a checkpoint goes on with $ranks ranks, $tp places, stage $stage" --steps 3 \
            --ranks "$ranks" --tp "$tp" --zero $stage --batch 1
    done
done
said=$("$train" --out "$folder/out" --resume auto --steps 4 --ranks 2 --tp 1 --batch 1 2>&1)
[ $? = 0 ]
result $? "one more step without places" "$said"
want=$(grep '^weights hash' <<<"$said")
resumed "and its checkpoint on two places" --steps 4 --ranks 4 --tp 2 --batch 1
train 4 --tp 2 --zero 3 --save-every 1
want=$hash
rm -rf "$folder/out/checkpoints/step-00000003"
resumed "a resumed run is the run that never stopped" --steps 3

train 2 --tp 2 --zero 0 --batch 4 --dtype bf16 --save-every 1
want=$hash
rm -rf "$folder/out/checkpoints/step-00000003"
resumed "with its micro-batch and its gradients' format" --steps 3

# ---- what counts ranks ----

train 4 --tp 4 --fit auto --steps 1 --batch 4
[ $status = 0 ]
result $? "--fit auto chooses for four places" "$said"
said=$("$train" "${model[@]}" --ranks 12 --tp 12 --kv-heads 12 --fit auto --plan 2>&1)
[ $? = 0 ] && grep -q 'the best of' <<<"$said"
result $? "and for more places than a step has sequences" "$said"
printf '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}' \
    >"$folder/ds.json"
said=$("$train" "${here[@]}" --data random --vocab 300 --layers 2 --channels 48 --heads 12 \
    --seq-len 16 --ranks 4 --tp 2 --deepspeed "$folder/ds.json" --steps 0 --out "$folder/ds" 2>&1)
grep -qE '"global-batch":[[:space:]]*8,' "$folder/ds/config.json"
result $? "DeepSpeed's products count data-parallel ranks" "$said"

# ---- weights leave and come whole ----

train 1 --steps 0 --dtype fp32 --export "hf:$folder/one"
one=$hash
for tp in 2 4; do
    train 4 --tp $tp --zero 3 --steps 0 --dtype fp32 --export "hf:$folder/tp$tp"
    [ "$hash" = "$one" ] &&
        cmp -s "$folder/one/model.safetensors" "$folder/tp$tp/model.safetensors"
    result $? "an export of $tp places is that of one, byte for byte" "$one; $said"
    rm -rf "$folder/tp$tp"
    train 4 --tp $tp --zero 1 --steps 0 --dtype fp32 --init "hf:$folder/one" \
        --export "hf:$folder/tp$tp"
    cmp -s "$folder/one/model.safetensors" "$folder/tp$tp/model.safetensors"
    result $? "and an import on $tp places brings the same" "$said"
done

# ---- samples ----

sample=(--data README.md --tokenizer byte --layers 2 --channels 48 --heads 4 --seq-len 64
    --threads 1 --dtype fp32 --no-tensorboard --sample-tokens 30 --prompt "The "
    --temperature 0.8 --sample-every 2)
sampled() { # sampled RANKS TP MORE...
    rm -rf "$folder/out"
    "$train" "${sample[@]}" --steps 2 --global-batch 8 --ranks "$1" --tp "${@:2}" \
        --out "$folder/out" >"$folder/said" 2>&1
    sed -n '/^--- sample at step 2/,/^---$/p' "$folder/said"
}
want=$(sampled 1 1)
is=$(sampled 2 2)
[ "$want" ] && [ "$want" = "$is" ]
result $? "a sample by two TP ranks is that by one" "$want; $is; $(tail -n 3 "$folder/said")"
is=$(sampled 2 2 --sequence-parallel)
[ "$want" ] && [ "$want" = "$is" ]
result $? "and with rows split over them" "$want; $is; $(tail -n 3 "$folder/said")"

# ---- what is refused ----

refused "nor the heads, with those that do" 'E_TP_SHAPE --tp 8*1, 2, 4' 8 --tp 8
said=$("$train" --plan --params 1G --ranks 2 --tp 2 2>&1)
[ $? = 2 ] && error_is 'E_PARAMS_FLAG --tp 2'
result $? "refused: --params, which counts whole models" "$said"

refused "rows in parts where there is one place" E_SEQUENCE_PARALLEL 2 --sequence-parallel
refused "or a sequence that is no multiple" 'E_SEQUENCE_PARALLEL --seq-len 18*--tp 4*16' \
    4 --tp 4 --sequence-parallel --seq-len 18

echo "1..$count"
exit $failed
