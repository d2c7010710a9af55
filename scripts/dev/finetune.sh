#!/bin/bash
# A fine-tune as a user would do it, from end to end: transformers makes a model's folder and its
# tokenizer, ./train takes it with a JSONL of conversations and --fit auto and exports it, and
# transformers chat with the export.
#
#   scripts/dev/finetune.sh
#   EPOCHS=30 LR=2e-3 KEEP=FOLDER scripts/dev/finetune.sh     KEEP: where folders and data stay
#
# 50 of 500 conversations are held out. A PyTorch loop trains the same folder on the same
# conversations, as many epochs and steps, with the same rates and masks, shuffled in three ways:
# how many of the last few answers are known depends on the order, and so does the loss. The bound
# for ours, which has an order of its own, is the largest of the three and a tenth. After half as
# many epochs neither has learned the rule behind the answers: there packs, which are the same in
# each epoch, are behind PyTorch's shuffled examples by a fifth, and as good with `--pack off`. What
# else is demanded stands in the lines that are printed.
#
# Needs a Python with torch, transformers and tokenizers ($PYTHON, or what scripts/dev/torch.sh
# installed, where transformers are added). The last line is `N passed, N failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
. scripts/dev/torch.sh
torch_install || exit 1
"$python" -c 'import transformers' 2>/dev/null || "$python" -m pip install -q transformers || exit 1
. tests/lib/tuning.sh
epochs=${EPOCHS:-30} lr=${LR:-2e-3} seeds=${SEEDS:-1 2 3}

apart() { awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; printf "%.2g", d < 0 ? -d : d }'; }

begin=$SECONDS
py make "$work" || exit 1
model=$work/model exported=$work/exported held=$work/heldout.jsonl out=$work/out
rm -rf "$out" "$exported"

start=$("$train" --init "hf:$model" --data "$held" --val-data "$held" --dtype fp32 --device cpu \
    --eval ppl --eval-only 2>"$work/said" | sed -n 's/.*validation loss \([0-9.]*\).*/\1/p')
"$train" --init "hf:$model" --data "$work/train.jsonl" --val-data "$held" --fit auto \
    --seq-len 256 --global-batch 8 --epochs "$epochs" --lr "$lr" --warmup 20 --schedule cosine \
    --weight-decay 0.1 --dtype fp32 --device cpu --out "$out" --export "hf:$exported" \
    >"$work/said" 2>&1
result $? "imported, trained for $epochs epochs with --fit auto and exported"
[ -d "$exported" ] || { tail -n 1 "$work/said"; tally_end; exit; }
steps=$(sed -n 's/.*"step": *\([0-9]*\).*/\1/p' "$out/log.jsonl" | sort -n | tail -n 1)
ours=$(loss_in "$out/log.jsonl") took=$((SECONDS - begin))

begins='' bound=0 each=''
for seed in $seeds; do
    read -r first last < <(py loop "$model" "$work/train.jsonl" "$held" "$steps" "$epochs" "$lr" \
        "$seed")
    begins=${first:-} each+=" ${last:-none}"
    bound=$(awk -v a="$bound" -v b="${last:-0}" \
        'BEGIN { b *= 1.1; printf "%.6f", (a > b ? a : b) }')
done
holds "${start:-1} - ${begins:-0} < 1e-3 && ${begins:-0} - ${start:-1} < 1e-3"
result $? "the loss on held-out answers begins at ${start:-nothing}, PyTorch's at \
${begins:-nothing}"
holds "${ours:-9} < $bound"
result $? "after $steps steps ($took s) it is ${ours:-nothing}; the bound is $bound, a \
tenth above the largest of PyTorch's$each"

theirs=$(py loss "$exported" "$held")
holds "${ours:-9} - ${theirs:-0} < 1e-3 && ${theirs:-0} - ${ours:-9} < 1e-3"
result $? "transformers find ${theirs:-nothing} in the exported folder, \
$(apart "${ours:-9}" "${theirs:-0}") from it"

py ask "$exported" "$held" >"$work/answers"
last_words "$held" >"$work/right"
right=$(same_lines "$work/answers" "$work/right")
[ "$right" -ge 40 ]
result $? "transformers' generate() answers $right of $(wc -l <"$work/right") held-out questions \
word for word; 40 are demanded"

equal=0 asked=0
py questions "$held" 10 >"$work/questions"
while IFS=$'\t' read -r question answer system; do
    asked=$((asked + 1))
    flags=(--chat "$question" --temperature 0 --sample-tokens 40)
    [ -z "$system" ] || flags+=(--system "$system")
    said=$("$train" --out "$out" --resume auto --sample-only "${flags[@]}" 2>"$work/said")
    line=$(grep -nF -- "\"$question\"" "$held" | head -n 1 | cut -d: -f1)
    [ "$said" = "$(sed -n "${line:-0}p" "$work/answers" 2>/dev/null)" ] && equal=$((equal + 1))
done <"$work/questions"
[ "$asked" = 10 ] && [ "$equal" = 10 ]
result $? "--sample-only --chat gives generate()'s answer to $equal of $asked questions"
echo "in $((SECONDS - begin)) s"
tally_end
