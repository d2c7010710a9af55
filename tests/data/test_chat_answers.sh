#!/bin/bash
# A tiny model that has read one question and its answer, with a tokenizer.json: --chat gives the
# answer's text and nothing else, samples end where the text does, a conversation goes on as its
# lines say, and a file of prompts is answered, also after a kill. Speaks TAP.
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
[ "$answer" = "Yes." ] && ! grep -q '^cut after' "$folder/said"
result $? "the answer alone is printed" "$answer; $(cat "$folder/said")"
answer=$(ask --chat "Is water wet?" --sample-tokens 1)
[[ -n $answer && Yes. = "$answer"* && $answer != Yes. ]] && grep -q '^cut after 1 token,' "$folder/said"
result $? "an answer may be cut, which is told" "$answer; $(cat "$folder/said")"
answer=$(timeout 60 "$train" --out "$folder/out" --resume auto --sample-only --temperature 0 \
    --prompt "$(printf '\nYes.%.0s' {1..20})" 2>"$folder/said")
[ $? = 0 ] && grep -q '^--prompt has 100 tokens: the first 52 are left out' "$folder/said"
result $? "so is a prompt that is longer than what the model sees" "$answer; $(cat "$folder/said")"
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

# Talking changes nothing of a run, also when it is killed.
files() {
    find "$folder/out" -type f -exec cksum {} + | sort
}
before=$(files)

# ---- a conversation ----

talk() { # talk ARGUMENT...: of lines on standard input
    ask --chat "$@"
}
answer=$(printf 'Is water wet?\n\nIs water wet?\n' | talk)
[ "$answer" = $'Yes.\nYes.' ] && grep -q 'no longer sees the oldest 1 ' "$folder/said"
result $? "each line is answered; older ones that do not fit are left out" \
    "$answer; $(cat "$folder/said")"
for grid in "--ranks 2 --zero 3" "--ranks 2 --tp 2" "--offload-param cpu --zero 3"; do
    # shellcheck disable=SC2086
    answer=$(printf 'Is water wet?\nIs water wet?\n' | talk --sample-tokens 4 $grid)
    [ "$answer" = $'Yes.\nYes.' ]
    result $? "so it is with $grid" "$answer; $(cat "$folder/said")"
done
said='{"messages":[{"role":"user","content":"Is water wet?"},{"role":"assistant","content":"Yes."}]}'
answer=$(printf 'Is water wet?\n/save %s\n/reset\nIs water wet?\n/save %s\n' "$folder/one.jsonl" \
    "$folder/two.jsonl" | talk --sample-tokens 5)
status=$?
[ $status = 0 ] && [ "$answer" = $'Yes.\nYes.' ] && [ "$(<"$folder/one.jsonl")" = "$said" ] &&
    cmp -s "$folder/one.jsonl" "$folder/two.jsonl"
result $? "it is saved, and begun anew" "$status: $answer; $(cat "$folder/said" "$folder"/*.jsonl)"
answer=$(printf '/help\nIs water wet?\n/quit\nIs water wet?\n' | talk)
status=$?
[ $status = 0 ] && [ "$(tail -n 1 <<<"$answer")" = Yes. ] && [ "$(grep -c '^/.* ' <<<"$answer")" = 6 ] &&
    [ "$(wc -l <<<"$answer")" = 7 ]
result $? "it has help, and is left" "$status: $answer; $(cat "$folder/said")"
answer=$(printf 'Is water wet?\n/save %s\n' "$folder/cut.jsonl" | talk --sample-tokens 1)
status=$?
[ $status = 2 ] && [ ! -e "$folder/cut.jsonl" ] && error_is E_CONVERSATION_ANSWER "$(tail -n 1 "$folder/said")" &&
    grep -q 'cut at --sample-tokens 1;' "$folder/said"
result $? "an answer that is cut is told, and not saved" "$status: $answer; $(cat "$folder/said")"
answer=$(for n in $(seq 48); do printf '%*s\n/reset\n' "$n" z | tr ' ' z; done | talk --sample-tokens 40)
error_is E_CHAT_TOO_LONG "$(tail -n 1 "$folder/said")" && grep -q 'cut where --seq-len ends' "$folder/said"
result $? "so is one that the model sees no further of" "$answer; $(cat "$folder/said")"
answer=$(printf 'Is water wet?\n/save %s\n' "$folder/one.jsonl" | talk)
status=$?
[ $status = 2 ] && [ "$answer" = Yes. ] && error_is "E_FILE_EXISTS one.jsonl" "$(<"$folder/said")" &&
    [ "$(<"$folder/one.jsonl")" = "$said" ]
result $? "nothing is written over" "$status: $answer; $(cat "$folder/said")"
answer=$(printf '\n%s\nIs water wet?\n' "$long" | talk)
status=$?
[ $status = 2 ] && [ -z "$answer" ] && error_is 'E_CHAT_TOO_LONG line 2: the question has' "$(<"$folder/said")"
result $? "of a script, a line that is refused ends it" "$status: $answer; $(cat "$folder/said")"

if command -v python3 >/dev/null; then
    cat >"$folder/person.py" <<'P'
"""Talks to a command on a terminal: what is typed, and what comes before it asks again."""
import os, pty, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
signal.alarm(20)
for typed, comes in [("", "/help"), ("x" * 5000 + "\n", "4095 bytes"), ("junk", None),
                     ("\x03", "Ctrl-D ends"), ("Is water wet?\n", "\r\nYes.\r\n"),
                     ("\x03", "Ctrl-D ends"), ("\x03", None)]:
    os.write(fd, typed.encode())
    seen = ""
    while comes and not (comes in seen and seen.endswith("> ")):
        seen += os.read(fd, 1000).decode()
    print(repr(typed[:20]), repr(seen[-100:]), flush=True)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
P
    said=$(python3 "$folder/person.py" "$train" --out "$folder/out" --resume auto --sample-only \
        --temperature 0 --chat-template chatml --chat 2>&1)
    result $? "on a terminal Ctrl-C clears a line, and a second one ends; no line is cut" "$said"
else
    echo "ok $((count += 1)) - a terminal # SKIP there is no python3"
fi

# ---- a file of prompts ----

for i in 1 2 3 4 5; do
    printf '{"messages":[{"role":"user","content":"Is water wet?"}],"id":%d}\n' $i
    printf '{"prompt":"<|im_start|>user\\nIs wa","id":"text %d"}\n' $i
done >"$folder/prompts.jsonl"
answer_all() { # answer_all OUT ARGUMENT...
    ask --prompts "$folder/prompts.jsonl" --answers "$folder/$1" "${@:2}"
}
answer_all one --batch 1 && answer_all many --batch 3 && cmp "$folder/one" "$folder/many" &&
    [ "$(grep -c '"answer":"Yes.","finish_reason":"stop"}$' "$folder/one")" = 5 ] &&
    [ "$(sed -n 3p "$folder/one" | head -c 60)" = "$(sed -n 3p "$folder/prompts.jsonl" | head -c 60)" ]
result $? "prompts are answered, many at a time as one by one" \
    "$(cat "$folder/said" "$folder/one" "$folder/many")"
tokens=$(sed -n 's/^10 answers, \([0-9]*\) tokens .*/\1/p' "$folder/said")
[ "${tokens:-0}" -ge 20 ]
result $? "the tokens that were made are told" "$(cat "$folder/said")"
head -c 500 "$folder/one" >"$folder/killed"
answer_all killed --ranks 2 --zero 3 && cmp "$folder/one" "$folder/killed"
result $? "what a killed run has left is completed" "$(cat "$folder/said" "$folder/killed")"
answer_all killed && ! grep -q 'tokens/s' "$folder/said"
result $? "nothing is made where all are answered" "$(cat "$folder/said")"
for seed in 1 2; do
    printf '{"prompt":"Is"}\n%.0s' 1 2 3 >"$folder/same.jsonl"
    ask --prompts "$folder/same.jsonl" --answers "$folder/seed$seed" --temperature 50 --seed $seed
done
[ "$(sort -u "$folder/seed1" "$folder/seed2" | wc -l)" = 6 ]
result $? "prompts that are alike have other answers, also with the next seed" \
    "$(cat "$folder/said" "$folder/seed1" "$folder/seed2")"
# The first answer has some ten tokens, each other its end alone: no more begin than may wait for it.
{ echo '{"prompt":"\n"}'; printf '{"prompt":"."}\n%.0s' {1..90}; } >"$folder/long.jsonl"
for batch in 1 8; do
    ask --prompts "$folder/long.jsonl" --answers "$folder/long$batch" --batch $batch
done
[ "$(wc -l <"$folder/long1")" = 91 ] && cmp "$folder/long1" "$folder/long8" &&
    head -n 1 "$folder/long1" | grep -q 'Is water wet' && grep -q '"answer":""' "$folder/long1"
result $? "answers wait for a long one" "$(cat "$folder/said" "$folder/long8")"
answer_all victim --batch 2 &
victim=$!
until [ -s "$folder/victim" ]; do sleep 0.01; done
kill -9 $victim 2>/dev/null
wait $victim 2>/dev/null
answer_all victim && cmp "$folder/one" "$folder/victim" && [ "$(files)" = "$before" ]
result $? "a run that is killed while it answers goes on, and --out stays as it was" \
    "$(cat "$folder/said" "$folder/victim")"
sed -i '4s/"id"/"no"/' "$folder/prompts.jsonl"
sum=$(cksum <"$folder/one")
answer_all one
status=$?
[ $status = 2 ] && error_is E_ANSWERS_OTHER "$(<"$folder/said")" && [ "$(cksum <"$folder/one")" = "$sum" ]
result $? "answers to other prompts stay as they are" "$status: $(cat "$folder/said")"
echo '{"prompt":1}' >>"$folder/prompts.jsonl"
answer_all bad
status=$?
[ $status = 2 ] && error_is "E_PROMPTS_LINE prompts.jsonl: line 11" "$(<"$folder/said")" && [ ! -e "$folder/bad" ]
result $? "a bad line is refused before the first answer" "$status: $(cat "$folder/said")"

# Weights of 8.5e37, of which there are no logits.
yes '~' | tr -d '\n' | dd of="$folder/model/model.safetensors" conv=notrunc bs=1000 count=40 \
    iflag=fullblock seek=$(($(wc -c <"$folder/model/model.safetensors") / 1000 - 40)) 2>"$folder/said"
overflow() { # overflow FLAG...: what it prints; the rest is in said
    timeout 60 "$train" --init "hf:$folder/model" --device cpu --dtype fp32 --threads 1 \
        --no-tensorboard --out "$folder/over" "$@" 2>"$folder/said"
}
sed -i '$d' "$folder/prompts.jsonl"
for mode in "--prompt water" "--chat hi" "--chat" "--ranks 2 --prompt water" \
    "--prompts $folder/prompts.jsonl --answers $folder/over.jsonl"; do
    # shellcheck disable=SC2086
    answer=$(echo hi | overflow --sample-only --chat-template chatml $mode)
    status=$?
    [ $status = 2 ] && error_is E_LOGITS_NOT_FINITE "$(<"$folder/said")"
    result $? "no token is drawn of logits that are not finite: $mode" "$status: $answer; $(cat "$folder/said")"
done
printf 'Is water wet? Yes.\n%.0s' {1..300} >"$folder/text.txt"
answer=$(overflow --data "$folder/text.txt" --steps 3 --sample-every 1 --prompt water --batch 2)
status=$?
[ $status = 2 ] && error_is E_DIVERGED "$(<"$folder/said")" &&
    [ "$(grep -c '^no sample: ' <<<"$answer")" = 3 ]
result $? "a run that trains goes on without its samples" "$status: $answer; $(cat "$folder/said")"

echo "1..$count"
exit $failed
