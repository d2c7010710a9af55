#!/bin/bash
# ./train with somebody's tokenizer.json: given, or as a part of a model's folder; and SentencePiece
# models that want a space in front. Speaks TAP.
set -u
fixtures=$(realpath "${BASH_SOURCE%/*}/../fixtures")
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"

text=$folder/text.txt
small_text 400 >"$text"
bpe=$fixtures/bpe
base=(--device cpu --dtype fp32 --seq-len 32 --batch 4 --log-every 1 --threads 1 --steps 3
    --no-tensorboard)
shape=(--family llama --layers 1 --heads 2 --channels 32)

run() { # run OUT ARGUMENT...
    timeout 60 "$train" "${base[@]}" --out "$folder/$1" "${@:2}"
}
# refused NAME ERROR ARGUMENT...: one line "train: ..." with that error, status 2.
refused() {
    local name=$1 error=$2 said status
    shift 2
    said=$(run refused "$@" 2>&1 >/dev/null)
    status=$?
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        error_is "$error" &&
        [ ! -e "$folder/refused/log.jsonl" ]
    result $? "refused: $name" "status $status: $said"
    rm -rf "$folder/refused"
}

# ---- given ----
said=$(run gpt2 "${shape[@]}" --data "$text" --tokenizer "$bpe/gpt2/tokenizer.json" 2>&1)
[ "$(hash_of <<<"$said")" ]
result $? "a tokenizer.json that is given" "$said"
said=$(run llama "${shape[@]}" --data "$text" --tokenizer "$bpe/llama3" \
    --export "hf:$folder/model" 2>&1)
[ "$(hash_of <<<"$said")" ]
result $? "a folder that has one" "$said"
first=$(find "$folder/cache" -name train.bin -newer "$folder/gpt2/config.json" -exec \
    od -An -t u2 -j 1024 -N 2 {} \; | tr -d ' \n')
[ "$first" = 597 ]
result $? "a text begins with the token that the template puts there" "$first"

# ---- a model's folder ----
refused "a name, where a folder is meant" 'E_FILE_READ --init hf:meta-llama/Llama-3.2-1B' \
    --init hf:meta-llama/Llama-3.2-1B --data "$text"
rm "$folder"/model/tokenizer*.json
refused "text for a model without a tokenizer" E_TOKENIZER_MISSING --init "hf:$folder/model" \
    --data "$text"
cp "$bpe"/llama3/*.json "$folder/model/"
said=$(run given --init "hf:$folder/model" --data "$text" --tokenizer "$folder/model" 2>&1)
want=$(hash_of <<<"$said")
said=$(run own --init "hf:$folder/model" --data "$text" --export "hf:$folder/exported" 2>&1)
[ "$want" ] && [ "$(hash_of <<<"$said")" = "$want" ]
result $? "--init hf: takes the folder's tokenizer" "$said"
cmp -s "$folder/exported/tokenizer.json" "$bpe/llama3/tokenizer.json"
result $? "and an export has it"
grep -q "\"tokenizer\":.*\"$folder/model/tokenizer.json\"" "$folder/own/config.json"
result $? "config.json says which it was" "$(cat "$folder/own/config.json")"
want=$(timeout 60 "$train" --resume auto --steps 5 --out "$folder/given" 2>&1 | hash_of)
said=$(timeout 60 "$train" --resume auto --steps 5 --out "$folder/own" 2>&1)
[ "$want" ] && [ "$(hash_of <<<"$said")" = "$want" ]
result $? "so that the run goes on" "$said"
said=$(timeout 60 "$train" --sample-only --resume auto --out "$folder/own" --prompt "Hello" 2>&1)
grep -q '^<|begin_of_text|>Hello' <<<"$said"
result $? "and its samples begin as texts do" "$said"
said=$(run plan --plan --init "hf:$folder/model" --data "$text" 2>&1)
[ $? = 0 ]
result $? "a plan takes it, too" "$said"
shard=$(find "$folder/cache" -name train.bin | head -n 1)
said=$(run shards --init "hf:$folder/model" --data "$shard" --sample-every 3 --prompt Hello 2>&1)
[ "$(hash_of <<<"$said")" ] && grep -q '<|begin_of_text|>Hello' <<<"$said"
result $? "samples of shards are text with it" "$said"
items=$fixtures/eval/items.jsonl
said=$(run eval --init "hf:$folder/model" --eval "hellaswag:$items" --eval-only 2>"$folder/err")
grep -q '(30 items)$' <<<"$said"
result $? "--eval-only reads its text with it, and wants no data" "$said $(cat "$folder/err")"
said=$(run random --init "hf:$folder/model" --data random --eval "hellaswag:$items" \
    --sample-every 3 --prompt Hello 2>&1)
[ "$(hash_of <<<"$said")" ] && [ "$(grep -c '(30 items)$' <<<"$said")" = 1 ] &&
    grep -q '<|begin_of_text|>Hello' <<<"$said"
result $? "and a run on random ids has it" "$said"
sed 's/"BPE"/"Unigram"/' "$bpe/llama3/tokenizer.json" >"$folder/model/tokenizer.json"
said=$(run shards2 --init "hf:$folder/model" --data "$shard" 2>&1)
[ "$(hash_of <<<"$said")" ] && grep -q 'samples are numbers: .*Unigram' <<<"$said"
result $? "and numbers where it is not built, which is said" "$said"
refused "a text with such a one" 'E_BPE_UNSUPPORTED model "Unigram"' --init "hf:$folder/model" \
    --data "$text"

# ---- bad input ----
printf '{"eos_token": "<nobody>"}' >"$folder/tokenizer_config.json"
cp "$bpe/gpt2/tokenizer.json" "$folder/tokenizer.json"
refused "an end that is no token" 'E_BPE_SPECIAL_TOKEN eos_token "<nobody>"' \
    "${shape[@]}" --data "$text" --tokenizer "$folder"
printf '{"eos_token": "\342\202"}' >"$folder/tokenizer_config.json"
refused "a configuration that is not UTF-8" 'E_UTF8 tokenizer_config.json' "${shape[@]}" \
    --data "$text" --tokenizer "$folder"

echo "1..$count"
exit $failed
