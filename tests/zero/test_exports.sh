#!/bin/bash
# What --export hf: writes beside weights: the run's tokenizer, its chat template, and the tokens
# that end a text or an answer; and that --init hf: takes it. Speaks TAP. (What transformers makes
# of these folders: scripts/dev/exports_torch.sh. Weights and config.json: test_models.sh.)
set -u
. "${BASH_SOURCE%/*}/../lib/model_runs.sh"
bpe=$PWD/tests/fixtures/bpe
small=(--layers 1 --heads 2 --channels 32 --family llama)
loss_of() { sed -n 's/.*validation loss \([0-9.]*\).*/\1/p' | tail -n 1; }
# The ids that generate() stops at, and the value of a key in a JSON file, without white space.
ends_of() { tr -d ' \t\n' <"$1/generation_config.json"; }
value_of() { tr -d ' \t\n' <"$1" | sed -n "s/.*\"$2\":\(\"[^\"]*\"\|[^,}]*\).*/\1/p"; }

# ---- a model from scratch ----
on README.md
# again NAME TOKENIZER FILE...: the folder has these files, and is the same model with the same ids.
again() {
    local name=$1 tokenizer=$2 said seen
    shift 2
    rm -rf "$folder/scratch"
    said=$(run "${small[@]}" --tokenizer "$tokenizer" --steps 2 --val-data README.md --eval ppl \
        --eval-every 1 --export "hf:$folder/scratch")
    seen=$(run --init "hf:$folder/scratch" --val-data README.md --eval ppl --eval-only)
    [ "$(loss_of <<<"$said")" ] && [ "$(loss_of <<<"$said")" = "$(loss_of <<<"$seen")" ] &&
        grep -q "^exported hf:$folder/scratch$" <<<"$said" &&
        [ "$(cd "$folder/scratch" && echo *)" = "$*" ]
    result $? "from scratch, $name: --init takes the export, with the same ids" \
        "$said $seen $(ls "$folder/scratch")"
}
again pieces train:512 config.json model.safetensors tokenizer.model tokenizer_config.json
[ "$(value_of "$folder/scratch/tokenizer_config.json" tokenizer_class)" = \
    '"PreTrainedTokenizerFast"' ]
result $? "transformers is told to take the pieces as they are"
again bytes byte config.json model.safetensors tokenizer.json tokenizer_config.json
again "a tokenizer.json" "$bpe/qwen2" config.json generation_config.json model.safetensors \
    tokenizer.json tokenizer_config.json
cmp -s "$bpe/qwen2/tokenizer.json" "$folder/scratch/tokenizer.json" &&
    cmp -s <(tr -d ' \t\n' <"$bpe/qwen2/tokenizer_config.json") \
        <(tr -d ' \t\n' <"$folder/scratch/tokenizer_config.json") &&
    [ "$(ends_of "$folder/scratch")" = '{"eos_token_id":599}' ] &&
    [ "$(value_of "$folder/scratch/config.json" eos_token_id)" = 599 ]
result $? "it is that file, with what lies beside it, and its end" "$(cat "$folder"/scratch/*.json)"
mv "$folder/scratch" "$folder/own"
rm -rf "$folder/qwen"
said=$(run "${small[@]}" --family qwen2 --tokenizer byte --steps 0 --export "hf:$folder/qwen")
grep -q 'AutoTokenizer reads every tokenizer of a qwen2 as Qwen' <<<"$said"
result $? "that AutoTokenizer takes a qwen2's for Qwen's is told" "$said"
on random
said=$(run "${small[@]}" --vocab 300 --steps 0 --export "hf:$folder/none")
grep -q 'the folder has no tokenizer, because the run has none' <<<"$said"
result $? "a run without a tokenizer says so" "$said"

# ---- a base model that was tuned for chats ----
echo '{"messages":[{"role":"user","content":"hi there"},{"role":"assistant","content":"yo"}]}' \
    >"$folder/chat.jsonl"
on "$folder/chat.jsonl"
chats=(--val-data "$folder/chat.jsonl" --seq-len 64 --eval ppl --steps 2)
cp -r "$folder/own" "$folder/base"
echo '{"eos_token": {"content": "<|endoftext|>", "special": true}, "mine": 1}' \
    >"$folder/base/tokenizer_config.json"
echo '{"eos_token_id": 597, "mine": 2}' >"$folder/base/generation_config.json"
echo '{}' >"$folder/base/vocab.json"
echo mine >"$folder/base/LICENSE"
said=$(run --init "hf:$folder/base" "${chats[@]}" --chat-template chatml \
    --export "hf:$folder/tuned" --trace-zero "$folder/a trace")
grep -qF "\"model\":\"hf:$folder/base\"" "$folder/a trace" &&
    grep -q "\"command\":\".* --trace-zero '[^ ]*/a trace'" "$folder/a trace"
result $? "a trace names the model that was tuned, and the command as a shell reads it" \
    "$said; $(head -n 2 "$folder/a trace")"
[ "$(ends_of "$folder/tuned")" = '{"mine":2,"eos_token_id":[597,599]}' ] &&
    [ "$(value_of "$folder/tuned/tokenizer_config.json" eos_token)" = '"<|im_end|>"' ] &&
    [ "$(value_of "$folder/tuned/tokenizer_config.json" mine)" = 1 ] &&
    grep -q "{{- '<|im_start|>assistant" "$folder/tuned/chat_template.jinja" &&
    cmp -s "$folder"/{base,tuned}/tokenizer.json && [ -f "$folder/tuned/vocab.json" ]
result $? "tuned with --chat-template: the export has the template and both ends" \
    "$said $(cat "$folder"/tuned/*config.json)"
seen=$(run --init "hf:$folder/tuned" "${chats[@]}" --eval-only)
[ "$(loss_of <<<"$said")" ] && [ "$(loss_of <<<"$said")" = "$(loss_of <<<"$seen")" ]
result $? "and is taken with that template, which nobody names" "$said $seen"
rm -rf "$folder/again"
said=$(run --init "hf:$folder/tuned" "${chats[@]}" --export "hf:$folder/again")
cmp -s "$folder"/{tuned,again}/chat_template.jinja &&
    cmp -s "$folder"/{tuned,again}/tokenizer_config.json &&
    cmp -s "$folder"/{tuned,again}/generation_config.json
result $? "a chat model's files are exported as they came" "$said"
rm -rf "$folder/again"
said=$(run --init "hf:$folder/base" --tokenizer "$bpe/smollm/tokenizer.json" --vocab 602 \
    "${chats[@]}" --chat-template chatml --export "hf:$folder/again")
cmp -s "$bpe/smollm/tokenizer.json" "$folder/again/tokenizer.json" &&
    [ "$(value_of "$folder/again/tokenizer_config.json" mine)" = "" ] &&
    [ "$(ends_of "$folder/again")" = '{"eos_token_id":2}' ] &&
    [ ! -e "$folder/again/vocab.json" ] && cmp -s "$folder"/{base,again}/LICENSE
result $? "of another tokenizer than the folder's, that one is exported" \
    "$said $(cat "$folder"/again/*config.json)"
echo '[]' >"$folder/base/generation_config.json"
refused "a generation_config.json that is none" "E_JSON_SYNTAX base/generation_config.json" \
    --init "hf:$folder/base" "${chats[@]}" --chat-template chatml --export "hf:$folder/new"
echo "1..$count"
exit $failed
