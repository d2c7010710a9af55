#!/bin/bash
# What --export hf: writes, taken as its user would take it: by transformers' AutoTokenizer,
# AutoModelForCausalLM, apply_chat_template and generate().
#
#   scripts/dev/exports_torch.sh
#   KEEP=FOLDER scripts/dev/exports_torch.sh     where the folders stay
#
# Models are small and made here. From scratch: with a SentencePiece model, single bytes, and a
# tokenizer.json; a base model, tuned on chats with --chat-template, of three kinds; a chat model,
# tuned with the template that it has. Each folder's ids must be those of the tokenizer's own
# library, it must be taken by --init hf:, and where there are chats, generate() must answer as
# ./train --chat does and stop by itself. Before, each known template, as Jinja text, renders 500
# conversations in transformers as ours does. Not in CI.
#
# Needs a Python with torch, transformers, sentencepiece and protobuf ($PYTHON, or what
# scripts/dev/torch.sh installed, where the others are added). The last line is `N passed, N
# failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
. scripts/dev/torch.sh
torch_install || exit 1
"$python" -c 'import transformers, sentencepiece, google.protobuf' 2>/dev/null ||
    "$python" -m pip install -q transformers sentencepiece protobuf || exit 1
if [ -z "${TRAIN:-}" ]; then
    scripts/setup.sh --test || exit 1
    make -s -j"$(nproc)" WITHOUT=cuda build/release/train build/release/tests/chat_texts || exit 1
fi

train=$(realpath "${TRAIN:-build/release/train}") fixtures=$PWD/tests/fixtures/bpe
work=${KEEP:-}
if [ -z "$work" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work" || exit 1
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false XDG_CACHE_HOME=$work/cache
. tests/lib/tally.sh
cat README.md docs/*.md >"$work/text.txt"

run() { # run OUT ARGUMENT...: a small run; what it said is in $work/said
    local out=$work/$1
    shift
    rm -rf "$out"
    "$train" --device cpu --dtype fp32 --threads 1 --seq-len 64 --batch 4 --no-tensorboard \
        --out "$out" "$@" >"$work/said" 2>&1 || tail -n 1 "$work/said"
}
small=(--layers 2 --channels 64 --heads 4)
taken() { # taken NAME ARGUMENT...: by us, and at the end by transformers
    local name=$1
    shift
    printf '%q ' "$work/$name" "$@" >>"$work/list"
    echo >>"$work/list"
    run again --init "hf:$work/$name" --data "$work/text.txt" --steps 1
    grep -q '^weights hash' "$work/said"
    result $? "$name is taken by --init hf:"
}
: >"$work/list"

build/release/tests/chat_texts | "$python" tests/torch/chat_jinja.py
result $? "every chat template renders in transformers as here"

# ---- from scratch ----
scratch() { # scratch NAME FAMILY TOKENIZER REFERENCE ARGUMENT...
    rm -rf "${work:?}/$1"
    run scratch --data "$work/text.txt" --steps 3 "${small[@]}" --family "$2" --tokenizer "$3" \
        --export "hf:$work/$1"
    taken "$1" --texts "$work/text.txt" --like "$4" "${@:5}"
}
mkdir -p "$work/gpt2"
cp "$fixtures/gpt2/tokenizer.json" "$work/gpt2/"
for family in llama gpt2 mistral qwen3; do
    scratch "pieces-$family" $family train:512 "$work/pieces-$family/tokenizer.model"
done
# AutoTokenizer makes Qwen's own tokenizer of whatever lies beside a qwen2; a line says so.
scratch pieces-qwen2 qwen2 train:512 "$work/pieces-qwen2/tokenizer.model" \
    --class PreTrainedTokenizerFast
scratch bytes gpt2 byte bytes
scratch bytes-llama llama byte bytes
scratch json llama "$work/gpt2/tokenizer.json" "$fixtures/gpt2/tokenizer.json"
scratch json-qwen2 qwen2 "$fixtures/qwen2" "$fixtures/qwen2/tokenizer.json"
scratch with-begin llama "$fixtures/llama3" "$fixtures/llama3/tokenizer.json"

# ---- chats ----
chats() {
    local question answer
    while IFS='|' read -r question answer; do
        printf '{"messages":[{"role":"user","content":"%s"},' "$question"
        printf '{"role":"assistant","content":"%s"}]}\n' "$answer"
    done <<'END'
Is water wet?|Yes.
What is two and two?|It is four.
Name a river.|The Nile is one.
Who are you?|A small model.
Is fire cold?|No, it is not.
Say it.|It.
END
}
chats >"$work/chats.jsonl"
# tuned NAME BASE ARGUMENT...: trains until it knows the answers, asks, and has transformers ask.
tuned() {
    local name=$1 base=$2 question answer
    shift 2
    rm -rf "${work:?}/$name"
    run "run-$name" --init "hf:$work/$base" --data "$work/chats.jsonl" --val-data \
        "$work/chats.jsonl" --epochs 150 --batch 2 --lr 3e-3 --weight-decay 0 --warmup 10 \
        --schedule cosine --export "hf:$work/$name" "$@"
    : >"$work/$name.jsonl"
    while read -r question; do
        answer=$("$train" --out "$work/run-$name" --resume auto --sample-only \
            --chat "$question" --temperature 0 --sample-tokens 48 2>"$work/why")
        printf '{"question": "%s", "answer": "%s"}\n' "$question" "$answer" >>"$work/$name.jsonl"
    done < <(sed 's/.*"user","content":"\([^"]*\)".*/\1/' "$work/chats.jsonl")
    taken "$name" --chats "$work/$name.jsonl"
}
# A base model: it has the tokens of a template, no template, and ends a text with another token.
mkdir -p "$work/tokens"
cp "$fixtures/qwen2/tokenizer.json" "$work/tokens/"
echo '{"eos_token": "<|endoftext|>"}' >"$work/tokens/tokenizer_config.json"
rm -rf "$work/base"
run scratch --data "$work/text.txt" --steps 30 "${small[@]}" --family llama --lr 3e-3 \
    --tokenizer "$work/tokens" --export "hf:$work/base"
cat >"$work/form.json" <<'END'
{"user": {"prefix": "Q: ", "suffix": "\n"}, "assistant": {"prefix": "A: ",
 "suffix": "<|im_end|>\n"}, "system": {"prefix": "", "suffix": "\n"},
 "default_system": "It's \\ short."}
END
tuned base-chatml base --chat-template chatml
tuned base-zephyr base --chat-template zephyr
tuned base-file base --chat-template "$work/form.json"
# A chat model: the first of these again, by the template that it has.
tuned chat base-chatml

# ---- all of them in transformers ----
"$python" tests/torch/check_export.py <"$work/list" >"$work/checked" 2>"$work/why"
[ "$(wc -l <"$work/checked")" = "$(wc -l <"$work/list")" ] || tail -n 1 "$work/why"
while read -r line; do
    [ "${line%% *}" = ok ]
    result $? "${line#*- }"
done <"$work/checked"
[ "$(wc -l <"$work/checked")" = "$(wc -l <"$work/list")" ]
result $? "all $(wc -l <"$work/list") folders were looked at"
tally_end
