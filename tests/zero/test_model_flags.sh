#!/bin/bash
# What --init leaves to the run, and what it does not: text and its tokenizer, lengths of sequences,
# flags on the line and in a configuration, the lines that a run says of them. Speaks TAP. (The
# weights themselves: test_models.sh.)
set -u
. "${BASH_SOURCE%/*}/../lib/model_runs.sh"

on README.md
refused "a text without the model's tokenizer" \
    "E_TOKENIZER_MISSING README.md*--init hf:" --init "hf:$models/qwen3"
refused "a tokenizer that is not the model's" "E_VOCAB_SIZE --vocab 211*256 ids*--init" \
    --init "hf:$models/qwen3" --tokenizer byte
on random
refused "a file of a folder" "E_FILE_READ qwen3/config.json/config.json" \
    --init "hf:$models/qwen3/config.json"
mkdir "$folder/lora"
echo '{"peft_type": "LORA"}' >"$folder/lora/adapter_config.json"
refused "an adapter" "E_HF_ADAPTER $folder/lora" --init "hf:$folder/lora"
mkdir "$folder/gguf"
touch "$folder/gguf/tiny.Q8_0.gguf"
refused "a folder of GGUF" "E_HF_WEIGHTS_MISSING tiny.Q8_0.gguf" --init "hf:$folder/gguf"
mkdir "$folder/[gguf]" # no pattern
touch "$folder/[gguf]/tiny.gguf"
refused "a folder of GGUF with brackets in its name" "E_HF_WEIGHTS_MISSING /\\[gguf\\]/tiny.gguf" \
    --init "hf:$folder/[gguf]"
refused "a format of no export" E_EXPORT_DTYPE --export-dtype bf16
refused "positions of a rotary embedding" "E_FAMILY_FLAG --positions 100 --family llama" \
    --family llama --positions 100
refused "angles of learned positions" "E_FAMILY_FLAG --rope-theta 100 --family gpt2" \
    --rope-theta 100
refused "a width, with one that divides" "E_HEADS for example 8" \
    --family llama --heads 4 --channels 2
refused "heads of keys, with a number that divides" "E_HEADS for example 3" \
    --family llama --heads 6 --channels 24 --kv-heads 5
echo '{"layers": 3}' >"$folder/three.json"
refused "a file's flag that contradicts" "E_INIT_FLAG --layers 3*config.json has 2*/three.json" \
    --init "hf:$models/qwen3" --config "$folder/three.json"
echo '{"model": "gpt2"}' >"$folder/three.json"
refused "a file's model beside it" "E_INIT_MODEL --init" \
    --init "hf:$models/qwen3" --config "$folder/three.json"
echo '{"weight-decay": 0.05, "warmup": 7}' >"$folder/three.json"
said=$(run --init "hf:$models/qwen3" --config "$folder/three.json" --steps 100)
grep -qx -- '--init: --lr 1e-05 --weight-decay 0.05 --warmup 7' <<<"$said"
result $? "fine-tuning's defaults leave alone what a file says" "$said"
said=$(run --init "hf:$models/qwen3" --kv-heads 0 --attention-window 0 --tie auto --steps 1)
seen=$(run --init "hf:$models/qwen3" --steps 1 | hash_of)
[ "$seen" ] && [ "$(hash_of <<<"$said")" = "$seen" ]
result $? "0 and auto are the model's own" "$said"
# lengths NAME WANT ARGUMENT...: a plan's sequences have so many tokens.
lengths() {
    said=$(timeout 60 "$train" --device cpu --data random --batch 1 --plan --json "${@:3}" 2>&1)
    grep -q "\"seq_len\":[[:space:]]*$2," <<<"$said"
    result $? "$1" "$said"
}
lengths "sequences are as long as the model's" 40 --init "hf:$models/qwen3"
lengths "and where the line leaves it to the model" 40 --init "hf:$models/qwen3" --seq-len 0
echo '{"seq-len": 0}' >"$folder/three.json"
lengths "or a file does" 40 --init "hf:$models/qwen3" --config "$folder/three.json"
said=$(run --init "hf:$models/qwen3" --steps 1)
! grep -a -- '--positions' "$folder/out/checkpoints/step-00000001/rank-0000.state" >"$folder/said"
result $? "a rotary embedding has no positions in its identity" "$(cat "$folder/said")"
run --layers 2 --channels 48 --heads 4 --vocab 200 --steps 1 --export "llmc:$folder/first.bin" \
    >"$folder/said"
lengths "and as llm.c's" 17 --init "llmc:$folder/first.bin"
said=$(run --init "hf:$models/qwen3" --seq-len 41 --steps 1)
[ "$(grep -c -- '^--seq-len 41: the model of --init knows only 40 ' <<<"$said")" = 1 ] &&
    grep -q '^weights hash' <<<"$said"
result $? "longer sequences than the model's are told" "$said"
said=$(run --init "hf:$models/qwen3" --seq-len 40 --steps 1)
! grep -q -- '^--seq-len' <<<"$said" && grep -q '^weights hash' <<<"$said"
result $? "and its own are not" "$said"
mkdir "$folder/long"
sed 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 131072/' \
    "$models/qwen3/config.json" >"$folder/long/config.json"
lengths "but for very long ones" 2048 --init "hf:$folder/long"
run --layers 2 --channels 48 --heads 4 --vocab 200 --steps 1 >"$folder/said"
cp -r "$folder/out" "$folder/worded"
sed -i 's/^--layers 2$/--layers x/' "$folder/worded/checkpoints/step-00000001/rank-0000.state"
refused "a checkpoint with a word for a number" E_INIT_CONFIG --init "run:$folder/worded"
run --init "hf:$models/qwen3" --steps 1 >"$folder/said"
said=$(timeout 60 "$train" --out "$folder/out" --resume auto --steps 2 --init hf:/nowhere 2>&1)
grep -q -- '--init hf:/nowhere: .*No such file.*; the run goes on without it' <<<"$said" &&
    grep -q '^step 2/2 ' <<<"$said"
result $? "an --init that is gone is told, and not needed" "$said"
rm -rf "$folder/out" "$folder/cut"
timeout 60 "$train" "${usual[@]}" --out "$folder/out" --init "hf:$models/llama" --steps 1000000 \
    --export "hf:$folder/cut" >"$folder/said" 2>&1 &
pid=$!
for ((i = 0; i < 600; i++)); do
    grep -q '"step":2,' "$folder/out/log.jsonl" 2>/dev/null && break || sleep 0.05
done
kill -TERM $pid
wait $pid
said=$(cat "$folder/said")
grep -q 'stopped after step .*; nothing is exported yet: give --export again' <<<"$said" &&
    [ ! -e "$folder/cut" ]
result $? "a run that is stopped says what is not exported" "$said"
run --init "hf:$models/llama" --steps 1 --lr 1 --warmup 5 >"$folder/said"
said=$(timeout 60 "$train" --out "$folder/out" --resume auto --steps 2 --warmup 30 2>&1)
! grep -q 'warmup: from .*config.json has' <<<"$said"
result $? "what the run itself says is not blamed on the folder" "$said"

# A share of the rate is one of the rate that the run has.
cosine() { # cosine RATIO [KEY...]: a file whose schedule falls to that share of it
    echo "{\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"warmup_num_steps\": 0," \
        "\"total_num_steps\": \"auto\", \"cos_min_ratio\": $1}}${2:-}}" >"$folder/cosine.json"
}
tuned=(--init "hf:$models/qwen3" --deepspeed "$folder/cosine.json" --steps 100)
cosine 0.01 ', "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}'
said=$(run "${tuned[@]}")
grep -q '^  scheduler.params.cos_min_ratio 0.01 *--min-lr 1e-07$' <<<"$said" &&
    grep -q '"min-lr":[[:space:]]*1e-07,' "$folder/out/config.json" &&
    grep -q '"lr":[[:space:]]*1e-05,' "$folder/out/config.json"
result $? "DeepSpeed's cosine ends at a share of fine-tuning's rate" "$said"
cosine 0.1
said=$(run "${tuned[@]}")
grep -q -- '--min-lr 1e-06$' <<<"$said" && grep -q '^weights hash' <<<"$said"
result $? "and a large share is none too many" "$said"
said=$(run "${tuned[@]}" --lr 0.01)
grep -q -- '--min-lr 0.001$' <<<"$said" &&
    grep -qx -- '--init: --lr 0.01 --weight-decay 0 --warmup 0' <<<"$said"
result $? "or of the line's" "$said"
cosine 0.1 ', "optimizer": {"type": "AdamW", "params": {"lr": 0.02}}'
said=$(run "${tuned[@]}")
grep -q -- '--min-lr 0.002$' <<<"$said" &&
    grep -qx -- '--init: --lr 0.02 --weight-decay 0 --warmup 0' <<<"$said"
result $? "or of the file's" "$said"

# The table says what the run has, whoever chooses it, and when.
cat >"$folder/auto.json" <<'END'
{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
 "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
 "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto",
     "warmup_num_steps": "auto", "warmup_max_lr": "auto"}}}
END
told() { # told KEY TEXT: what the table in $said has for it
    tr -s ' \n' ' ' <<<"$said" | grep -qE -- " $1 \"auto\" $2( |\$)"
}
tuned=(--init "hf:$models/qwen3" --deepspeed "$folder/auto.json")
from="from the defaults of --init"
said=$(run "${tuned[@]}" --steps 100 --ranks 2)
told optimizer.params.lr "--lr 1e-05, $from" &&
    told train_batch_size "--global-batch 2, which follows" &&
    told train_micro_batch_size_per_gpu "--batch 1, given" &&
    told optimizer.params.weight_decay "--weight-decay 0, $from" &&
    told scheduler.params.warmup_num_steps "--warmup 3, $from" &&
    told scheduler.params.total_num_steps "--steps 100, given"
result $? "the table of DeepSpeed's file has fine-tuning's values" "$said"
said=$(run "${tuned[@]}" --lr 0.5 --plan)
told optimizer.params.lr "--lr 0.5, given" &&
    told scheduler.params.warmup_max_lr "--lr 0.5, given" &&
    told optimizer.params.weight_decay "--weight-decay 0, $from" &&
    told scheduler.params.total_num_steps "--steps 1000, the default"
result $? "each by itself, or the usual default" "$said"
head -c 8000 README.md >"$folder/short.txt"
on "$folder/short.txt"
run --tokenizer byte --layers 1 --channels 16 --heads 2 --steps 1 >"$folder/said"
rm -rf "$folder/first"
mv "$folder/out" "$folder/first"
tuned=(--init "run:$folder/first" --tokenizer byte --epochs 1 --global-batch 4)
said=$(run "${tuned[@]}" --deepspeed "$folder/auto.json")
steps=$(sed -n 's/^--epochs 1 makes --steps \([0-9]*\) .*/\1/p' <<<"$said")
[ "${steps:-0}" -gt 67 ] &&
    told scheduler.params.total_num_steps "--steps are those of --epochs 1" &&
    told scheduler.params.warmup_num_steps "--warmup is 3% of the steps of --epochs 1" &&
    grep -qx -- "--init: --lr 1e-05 --weight-decay 0 --warmup $((steps * 3 / 100))" <<<"$said" &&
    grep -q '^weights hash' <<<"$said"
result $? "or says whose steps they are, where --epochs count them" "$steps: $said"
said=$(run "${tuned[@]}" --deepspeed "$folder/auto.json" --plan)
told scheduler.params.total_num_steps "--steps are those of --epochs 1" &&
    told scheduler.params.warmup_num_steps "--warmup is 3% of the steps of --epochs 1"
result $? "and so does a plan" "$said"
echo '{"warmup": 7}' >"$folder/three.json"
said=$(run "${tuned[@]}" --config "$folder/three.json")
grep -qx -- '--init: --lr 1e-05 --weight-decay 0 --warmup 7' <<<"$said" &&
    grep -q '"warmup":[[:space:]]*7,' "$folder/out/config.json"
result $? "a warm-up that a file says stays beside --epochs" "$said"
on random

echo "1..$count"
exit $failed
