#!/bin/bash
# Runs with adapters: begun from PEFT's, exported, merged, resumed, and what is refused. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/model_runs.sh"
. "${BASH_SOURCE%/*}/../lib/mpi_env.sh"
adapters=$PWD/tests/fixtures/peft
base=(--init "hf:$models/llama")
begun=("${base[@]}" --init-adapter "$adapters/llama/adapter")

hash_of_run() { sed -n 's/^weights hash: //p' <<<"$said"; }
go_on() { # go_on ARGUMENT...: the run in $folder/out
    said=$(timeout 60 "$train" --out "$folder/out" --resume auto "$@" 2>&1)
}
loss_of_run() { sed -n 's/^step .* validation loss \([0-9.]*\).*/\1/p' <<<"$said"; }
# same A B: two folders have the same tensors, in files of the same names.
same() {
    local f n=0
    for f in "$1"/*.safetensors; do
        cmp "$f" "$2/${f##*/}" || return
        n=$((n + 1))
    done
    [ $n -gt 0 ] && [ "$(find "$2" -name '*.safetensors' | wc -l)" = $n ]
}

# ---- a run from PEFT's adapter, and its exports ----

for family in llama gpt2; do
    rm -rf "$folder"/{made,merged,again}
    said=$(run --steps 6 --init "hf:$models/$family" --init-adapter "$adapters/$family/adapter" \
        --val-every 6 --export-adapter "$folder/made" --export "hf:$folder/merged")
    whole=$(hash_of_run)
    trained=$(loss_of_run | tail -n 1)
    [ "$whole" ] && [ "$trained" ] && grep -qx "exported the adapter $folder/made" <<<"$said" &&
        grep -q '^parameters: [0-9]*, of which [0-9]* are trained$' <<<"$said"
    result $? "$family: adapters are trained, exported and merged" "$said"
    grep -q "\"base_model_name_or_path\":[[:space:]]*\"$models/$family\"" \
        "$folder/made/adapter_config.json"
    result $? "$family: the adapter names its base" "$(<"$folder/made/adapter_config.json")"
    said=$(run --init "hf:$models/$family" --init-adapter "$folder/made" --eval-only --eval ppl)
    [ "$(loss_of_run)" = "$trained" ]
    result $? "$family: read again, it has the loss that it had" "$trained: $said"
    said=$(run --init "hf:$folder/merged" --eval-only --eval ppl)
    awk -v a="$trained" -v b="$(loss_of_run)" 'BEGIN { exit !(b && (a - b) ^ 2 < 4e-8) }'
    result $? "$family: and so has the merged model, without it" "$trained: $said"
    said=$(run --init "hf:$models/$family" --eval-only --eval ppl)
    [ "$(loss_of_run)" ] && [ "$(loss_of_run)" != "$trained" ]
    result $? "$family: (which its base has not)" "$said"
    said=$(run --steps 0 --init "hf:$models/$family" --init-adapter "$folder/made" \
        --export-adapter "$folder/again" --export "hf:$folder/again-merged")
    same "$folder/made" "$folder/again" >"$folder/said" 2>&1 &&
        same "$folder/merged" "$folder/again-merged" >>"$folder/said" 2>&1
    result $? "$family: an adapter that is not trained comes out as it went in" \
        "$said $(<"$folder/said")"
    rm -rf "$folder/again-merged"
done

# ---- a checkpoint, and what any grid makes of it ----

steps=(--global-batch 4 --steps)
said=$(run "${steps[@]}" 3 "${begun[@]}" --lora-dropout 0.25)
cp -r "$folder/out" "$folder/half"
small=$(du -bs "$folder/out/checkpoints/step-00000003" | cut -f 1)
run --steps 3 "${base[@]}" >/dev/null
[ "$small" -lt $(($(du -bs "$folder/out/checkpoints/step-00000003" | cut -f 1) / 8)) ]
result $? "a checkpoint holds adapters alone" "$small bytes"
said=$(run "${steps[@]}" 6 "${begun[@]}" --lora-dropout 0.25)
whole=$(hash_of_run)
for how in "" "--zero 3" "--zero 2 --offload-optimizer cpu --offload-param cpu" \
    "--pp 2 --ranks 2 --zero 1 --batch 1"; do
    rm -rf "$folder/out" && cp -r "$folder/half" "$folder/out"
    # shellcheck disable=SC2086 # words
    go_on --steps 6 $how
    [ "$whole" ] && [ "$(hash_of_run)" = "$whole" ]
    result $? "resumed is as unbroken: ${how:-as before}" "$whole: $said"
done
said=$(run "${steps[@]}" 6 "${begun[@]}" --lora-dropout 0.25 --ranks 2 --batch 2 --zero 1)
whole=$(hash_of_run)
said=$(run "${steps[@]}" 3 "${begun[@]}" --lora-dropout 0.25 --ranks 2 --batch 2 --zero 3)
go_on --steps 6 --zero 0
[ "$whole" ] && [ "$(hash_of_run)" = "$whole" ]
result $? "of two ranks, too" "$whole: $said"
for how in "--offload-optimizer cpu --delay-update --delay-after 1" "--keep-best --val-every 1" \
    "--save-async --save-every 1 --dtype bf16" "--dtype bf16 --master-dtype split --zero 3"; do
    # shellcheck disable=SC2086 # words
    said=$(run --steps 5 "${begun[@]}" $how)
    whole=$(hash_of_run)
    # shellcheck disable=SC2086 # words
    said=$(run --steps 3 "${begun[@]}" $how)
    go_on --steps 5
    [ "$whole" ] && [ "$(hash_of_run)" = "$whole" ]
    result $? "and with $how" "$whole: $said"
done
rm -rf "$folder"/{made,merged}
rm -rf "$folder/out" && cp -r "$folder/half" "$folder/out"
go_on --steps 3 --export-adapter "$folder/made" --export "hf:$folder/merged"
[ -f "$folder/made/adapter_model.safetensors" ]
result $? "a finished run is exported later" "$said"

# exported ARGUMENT...: the run in $folder/half is exported as before by ranks that $job starts.
exported() {
    rm -rf "$folder"/{out,a,m}
    cp -r "$folder/half" "$folder/out"
    # shellcheck disable=SC2086 # words
    said=$(timeout 100 $job "$train" --out "$folder/out" --resume auto --steps 3 "$@" \
        --export-adapter "$folder/a" --export "hf:$folder/m" 2>&1)
    same "$folder/made" "$folder/a" >"$folder/said" 2>&1 &&
        same "$folder/merged" "$folder/m" >>"$folder/said" 2>&1
    result $? "the same files: ${job:+processes, }$*" "$said $(<"$folder/said")"
}
job=
exported --ranks 2 --zero 3
exported --ranks 2 --zero 0
exported --ranks 2 --tp 2
exported --ranks 2 --pp 2
exported --ranks 4 --tp 2 --zero 3
exported --ranks 4 --zero 3 --zero-shard-size 2
exported --zero 2 --offload-optimizer cpu --offload-param cpu
if command -v mpirun >/dev/null && ldd "$train" | grep -q libmpi; then
    job="mpirun -np 2"
    exported --zero 3
    exported --tp 2
    exported --pp 2
    job="mpirun -np 4"
    exported --tp 2 --zero 3
    exported --zero 3 --zero-shard-size 2
fi

# ---- the base ----

# copied: a run of two steps, on a copy of llama
copied() {
    rm -rf "$folder/base"
    cp -r "$models/llama" "$folder/base"
    said=$(run --steps 2 --init "hf:$folder/base" --lora-rank 4)
}
# refused_resume NAME ERROR ARGUMENT...
refused_resume() {
    local name=$1 error=$2
    shift 2
    go_on "$@"
    [ $? = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] && error_is "$error" &&
        ! grep -q '^step ' <<<"$said"
    result $? "$name" "$said"
}
copied
/usr/bin/python3 - "$folder/base/model-00007-of-00007.safetensors" <<'PYTHON'
import os, sys
with open(sys.argv[1], "r+b") as f:
    f.seek(os.path.getsize(sys.argv[1]) - 500)
    byte = f.read(1)[0]
    f.seek(-1, 1)
    f.write(bytes([byte ^ 1]))
PYTHON
refused_resume "one bit of the base has changed" E_CHECKPOINT_BASE --steps 4
refused_resume "and an evaluation looks, too" E_CHECKPOINT_BASE --eval-only --eval ppl
go_on --steps 4 --init "hf:$models/llama"
[ "$(hash_of_run)" ]
result $? "the same base elsewhere is the same" "$said"
copied
truncate -s -100 "$folder/base/model-00007-of-00007.safetensors"
refused_resume "the base is damaged" E_SAFETENSORS_OFFSETS --steps 4
rm -rf "$folder/base"
refused_resume "the base is gone" E_FILE_READ --steps 4
run --steps 2 "${base[@]}" >/dev/null
rm -rf "$folder/full" && mv "$folder/out" "$folder/full"
said=$(run --steps 4 --init "run:$folder/full" --lora-rank 4)
whole=$(hash_of_run)
run --steps 2 --init "run:$folder/full" --lora-rank 4 >/dev/null
go_on --steps 4 --zero 3
[ "$whole" ] && [ "$(hash_of_run)" = "$whole" ]
result $? "the base may be a run's weights" "$whole: $said"
rm -rf "$folder/adapted" && mv "$folder/out" "$folder/adapted"
refused "but not a run's with adapters" E_CHECKPOINT_BASE --init "run:$folder/adapted"
refused "nor for adapters" E_CHECKPOINT_BASE --init "run:$folder/adapted" --lora-rank 4

# ---- samples ----

rm -rf "$folder"/{out,text}
for ((i = 0; i < 40; i++)); do printf 'a b c d e f g h '; done >"$folder/text"
"$train" --device cpu --dtype fp32 --threads 1 --family llama --layers 2 --channels 32 --heads 2 \
    --seq-len 24 --batch 1 --data "$folder/text" --val-data "$folder/text" --tokenizer byte \
    --steps 1 --no-tensorboard --out "$folder/bytes" >"$folder/said" 2>&1
result $? "a model of bytes" "$(<"$folder/said")"
on "$folder/text"
said=$(run --steps 12 --lr 0.1 --init "run:$folder/bytes" --tokenizer byte \
    --val-data "$folder/text" --lora-rank 8 --export-adapter "$folder/ends" --seq-len 12)
sample=(--sample-only --prompt 'a b c' --sample-tokens 12 --temperature 0)
go_on "${sample[@]}"
of_run=$(tail -n 1 <<<"$said")
said=$(run --init "run:$folder/bytes" --init-adapter "$folder/ends" --tokenizer byte "${sample[@]}")
grep -q '^a b c' <<<"$of_run" && [ "$(tail -n 1 <<<"$said")" = "$of_run" ]
result $? "a sample of a run with adapters is one of its export" "$of_run: $said"
said=$(run --init "run:$folder/bytes" --tokenizer byte "${sample[@]}")
grep -q '^a b c' <<<"$said" && [ "$(tail -n 1 <<<"$said")" != "$of_run" ]
result $? "(and of its base is another)" "$said"
on random

# ---- bad input ----

rank=("${base[@]}" --lora-rank 4)
refused "no such target" "E_LORA *foo" "${rank[@]}" --lora-targets q_proj,foo
refused "another family's" "E_LORA *c_attn" "${rank[@]}" --lora-targets c_attn
refused "another family's, of GPT-2" "E_LORA *q_proj" --init "hf:$models/gpt2" --lora-rank 4 \
    --lora-targets q_proj
for end in embed_tokens lm_head wte; do
    refused "an end as a target: $end" "E_LORA *$end" "${rank[@]}" --lora-targets $end
done
refused "no target" E_LORA "${rank[@]}" --lora-targets ""
refused "alpha without a rank" "E_LORA --lora-alpha" "${base[@]}" --lora-alpha 8
refused "dropout without a rank" "E_LORA --lora-dropout" "${base[@]}" --lora-dropout 0.1
refused "targets without a rank" "E_LORA --lora-targets" "${base[@]}" --lora-targets mlp
refused "all dropped" "E_FLAG_RANGE --lora-dropout" "${rank[@]}" --lora-dropout 1
refused "a rank that is too large" "E_FLAG_RANGE --lora-rank" "${base[@]}" --lora-rank 4097
refused "all layers frozen" "E_LORA --freeze" "${rank[@]}" --freeze layers:0-1
refused "another rank than the adapter's" "E_INIT_FLAG --lora-rank 8" "${begun[@]}" --lora-rank 8
refused "another alpha" "E_INIT_FLAG --lora-alpha 3" "${begun[@]}" --lora-alpha 3
refused "other targets" "E_INIT_FLAG --lora-targets mlp" "${begun[@]}" --lora-targets mlp
refused "an adapter of a base of another shape" E_HF_TENSOR_SHAPE --init "hf:$models/qwen3" \
    --init-adapter "$adapters/llama/adapter"
refused "of another family" "E_PEFT_CONFIG *target_modules" --init "hf:$models/gpt2" \
    --init-adapter "$adapters/llama/adapter"
refused "without a base" "E_LORA --init-adapter" --init-adapter "$adapters/llama/adapter"
refused "for some of the layers" "E_LORA --init-adapter" "${begun[@]}" --freeze layers:0
refused "of no folder" E_FILE_READ "${base[@]}" --init-adapter "$folder/none"
cp -r "$adapters/llama/adapter" "$folder/torn"
truncate -s -100 "$folder/torn/adapter_model.safetensors"
refused "of a file that is torn" E_SAFETENSORS_OFFSETS "${base[@]}" --init-adapter "$folder/torn"
rm "$folder/torn/adapter_model.safetensors"
refused "of a file that is not there" E_FILE_READ "${base[@]}" --init-adapter "$folder/torn"
echo '{' >"$folder/torn/adapter_config.json"
refused "of a file that is no JSON" E_JSON_SYNTAX "${base[@]}" --init-adapter "$folder/torn"
refused "an export without adapters" "E_LORA --export-adapter" "${base[@]}" \
    --export-adapter "$folder/new"
refused "of some of the layers" "E_LORA --export-adapter" "${rank[@]}" --freeze layers:0 \
    --export-adapter "$folder/new"
refused "into no folder" "E_EXPORT_NAME --export-adapter" "${rank[@]}" --export-adapter ""
refused "into a folder that cannot be" "E_FILE_WRITE --export-adapter" "${rank[@]}" \
    --export-adapter "$folder/none/new"
refused "below a file" "E_FILE_WRITE --export-adapter" "${rank[@]}" --export-adapter "$train/new"
cp -r "$folder/made" "$folder/kept"
refused "into a folder that exists" "E_FILE_EXISTS --export-adapter" "${rank[@]}" \
    --export-adapter "$folder/kept"
diff -r "$folder/made" "$folder/kept" >"$folder/said" 2>&1
result $? "which loses nothing" "$(<"$folder/said")"
refused "by a sample" "E_ONLY_CONFLICT --export-adapter" "${begun[@]}" "${sample[@]}" \
    --export-adapter "$folder/new"

echo "1..$count"
exit $failed
