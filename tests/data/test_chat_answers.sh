#!/bin/bash
# A tiny model that has read one question and its answer, with a tokenizer.json: --chat gives the
# answer's text and nothing else, and samples end where the text does. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"

for _ in $(seq 300); do
    printf '<|im_start|>user\nIs water wet?<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n'
done >"$folder/text.txt"
said=$("$train" --device cpu --dtype fp32 --data "$folder/text.txt" \
    --tokenizer tests/fixtures/bpe/qwen2 --layers 1 --heads 2 --channels 48 --seq-len 48 \
    --batch 4 --threads 1 --steps 100 --lr 5e-3 --no-tensorboard --out "$folder/out" \
    --export "hf:$folder/model" 2>&1)
result $? "a run on chats that are text" "$said"

ask() {
    timeout 60 "$train" --out "$folder/out" --resume auto --sample-only --temperature 0 \
        --chat-template chatml "$@" 2>"$folder/said"
}
answer=$(ask --chat "Is water wet?")
[ "$answer" = "Yes." ]
result $? "the answer alone is printed" "$answer; $(cat "$folder/said")"
answer=$(ask --chat "Is water wet?" --sample-tokens 1)
[[ -n $answer && Yes. = "$answer"* && $answer != Yes. ]]
result $? "an answer may be cut" "$answer; $(cat "$folder/said")"
rm "$folder/text.txt"
answer=$(ask --chat "Is water wet?")
[ "$answer" = "Yes." ]
result $? "the data are not needed for that" "$answer; $(cat "$folder/said")"
cp tests/fixtures/bpe/qwen2/*.json "$folder/model/"
answer=$(timeout 60 "$train" --init "hf:$folder/model" --device cpu --dtype fp32 --sample-only \
    --temperature 0 --chat-template chatml --chat "Is water wet?" --out "$folder/no" \
    2>"$folder/said")
[ "$answer" = "Yes." ] && [ ! -e "$folder/no" ]
result $? "nor is a checkpoint, of somebody's model" "$answer; $(cat "$folder/said")"
long=$(printf 'water %.0s' $(seq 60))
answer=$(ask --chat "$long")
status=$?
[ $status = 2 ] && error_is 'E_CHAT_TOO_LONG at most 48' "$(<"$folder/said")"
result $? "a question that is too long is refused" "$status: $answer; $(cat "$folder/said")"

echo "1..$count"
exit $failed
