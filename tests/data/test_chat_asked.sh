#!/bin/bash
# --chat, --system and --chat-template as ./train takes them; and the reader of chat data on a
# machine that refuses it memory: a line and status 2, at each of its allocations. Speaks TAP.
#
# TRAIN names the program (default ./train); tests/scarce.so and test_chat_lines lie beside it.
set -u
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"

text=$folder/text.txt
small_text 50 >"$text"
said=$("$train" --device cpu --dtype fp32 --data "$text" --tokenizer byte --layers 1 --heads 1 \
    --channels 16 --seq-len 16 --batch 2 --threads 1 --steps 1 --no-tensorboard \
    --out "$folder/out" 2>&1)
result $? "a run with a tokenizer of bytes" "$said"

# refused NAME ERROR ARGUMENT...: one line "train: ..." with that error, status 2.
refused() {
    local name=$1 error=$2 said status
    shift 2
    said=$(timeout 60 "$train" --out "$folder/out" --resume auto "$@" 2>&1)
    status=$?
    [ $status = 2 ] && [ "$(wc -l <<<"$said")" = 1 ] && error_is "$error"
    result $? "$name" "status $status: $said"
}
refused "a sample that begins with nothing" E_PROMPT_EMPTY --sample-only --prompt ''
refused "a question without a template" \
    'E_CHAT_TEMPLATE --chat-template NAME' --sample-only --chat hi
refused "a template's file that is not there" 'E_FILE_READ x.json' \
    --sample-only --chat hi --chat-template x.json
refused "a question and a prompt" 'E_CHAT_FLAG --prompt x' --sample-only --chat hi --prompt x
refused "an empty question" 'E_CHAT_FLAG --chat' --sample-only --chat ''
refused "a system message without a question" 'E_CHAT_FLAG --system x' --sample-only --system x
refused "an empty question behind =" 'E_CHAT_FLAG --chat' --sample-only --chat=
refused "a conversation and a prompt, which is not its text" 'E_CHAT_FLAG --chat --prompt x' \
    --sample-only --chat --prompt x
refused "a conversation with a system message, without a template" E_CHAT_TEMPLATE \
    --sample-only --chat --system x
refused "prompts without a file for answers" 'E_PROMPTS_FLAG --prompts x' --sample-only --prompts x
refused "answers to no prompts" 'E_PROMPTS_FLAG --answers x' --sample-only --answers x
refused "prompts with a system message that is not UTF-8" 'E_UTF8 --system: byte 1 (0xff)' \
    --prompts x --answers y --system $'a\xff'
refused "prompts and a prompt" 'E_PROMPTS_FLAG --prompt z' --sample-only --prompts x --answers y \
    --prompt z
refused "prompts and a conversation" 'E_PROMPTS_FLAG --prompts x --chat' --sample-only --prompts x \
    --answers y --chat
grep -Eq '"chat":[[:space:]]*null' "$folder/out/config.json"
result $? "a run that asked nothing keeps no conversation" "$(<"$folder/out/config.json")"
refused "an evaluation beside a sample" 'E_ONLY_CONFLICT --eval ppl --sample-only' --sample-only --eval ppl
refused "samples on the way beside a question" 'E_ONLY_CONFLICT --sample-every 5' --chat hi \
    --sample-every 5

# All that is missing is named at once.
said=$(timeout 60 "$train" --prompts x 2>&1)
error_is 'E_PROMPTS_FLAG --prompts x*--answers*--resume auto*--init'
result $? "refused: prompts of no model, without answers" "$said"
for asks in --chat "--chat hi" "--prompts x --answers y"; do
    # shellcheck disable=SC2086
    said=$(timeout 60 "$train" $asks 2>&1)
    error_is "E_ONLY_CHECKPOINT ${asks% --a*}: *--resume auto*--init"
    result $? "refused: $asks of no model" "$said"
done
said=$(timeout 60 "$train" --chat hi --resume auto --out "$folder/none" 2>&1)
error_is 'E_RUN_MISSING --chat: --out'
result $? "refused: a question to no run" "$said"

# The end token is a newline here: a file can say so of any tokenizer that has one; bytes have none.
printf '%s' '{"user":{"prefix":"","suffix":""},"assistant":{"prefix":"","suffix":"\n"}}' \
    >"$folder/form.json"
refused "a form that nothing would end" E_CHAT_TEMPLATE_TOKENS \
    --sample-only --chat hi --chat-template "$folder/form.json"

tests=$(dirname "$train")/tests
lines=tests/fixtures/chat/conversations.jsonl
head -n 40 "$lines" >"$folder/x.jsonl"
read_chat() { # read_chat CALL
    said=$(timeout 20 env LD_PRELOAD="$(realpath "$tests/scarce.so")" SCARCE="memory:$1" \
        SCARCE_COUNT="$folder/count" "$tests/test_chat_lines" qwen3 "$folder/x.jsonl" 2>&1)
}
read_chat 0
total=$(cat "$folder/count") ended=0 bad=
for at in 1 2 $(seq 3 $((total / 40 + 1)) "$total") "$total"; do
    read_chat "$at"
    status=$?
    if [ $status = 2 ] && error_is E_MEMORY_REFUSED; then
        ended=$((ended + 1))
    else
        bad+="call $at of $total: status $status: $said"$'\n'
    fi
done
[ -z "$bad" ] && [ $ended -gt 30 ]
result $? "memory refused to the reader of chat data" "$ended ended; $bad"

echo "1..$count"
exit $failed
