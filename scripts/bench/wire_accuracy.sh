#!/bin/bash
# What weights in 8 bits and gradients in 4 on their way between ranks (--zero-quantized-weights,
# --zero-quantized-gradients) cost in accuracy: the validation loss of a small model after some
# steps, with and without, for three seeds. Prints a line for each run, and at the end the mean of
# each way beside that of none.
#
#   scripts/bench/wire_accuracy.sh [FOLDER]    status 0: weights within 0.5%, gradients and both in 2%
#
# The text is this repository's own documentation. Four ranks on two nodes of two, stage 2.
# TRAIN names the program (default ./train), STEPS how many steps (default 2000). Some minutes.
set -eu
. "${0%"${0##*/}"}../help.sh"
train=${TRAIN:-./train} steps=${STEPS:-2000}
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
export LC_ALL=C

cat README.md docs/*.md >"$folder/text.txt"

# One run; its validation loss is in `loss`.
run() { # run NAME SEED ARGUMENT...
    local said
    said=$("$train" --device cpu --dtype fp32 --data "$folder/text.txt" --tokenizer byte \
        --layers 2 --channels 64 --heads 4 --seq-len 64 --batch 4 --ranks 4 --threads 1 --zero 2 \
        --node-size 2 --steps "$steps" --lr 1e-3 --warmup 100 --schedule cosine --seed "$2" \
        --log-every 0 --no-tensorboard --out "$folder/$1-$2" "${@:3}" 2>&1) || {
        echo "$said"
        return 1
    }
    loss=$(grep -o 'validation loss [0-9.]*' <<<"$said" | tail -n 1 | grep -o '[0-9.]*$')
    echo "$1 seed $2: validation loss $loss"
    rm -rf "$folder/$1-$2"
}

result=0
: >"$folder/losses"
for seed in 1 2 3; do
    for way in none weights gradients both; do
        case $way in
        none) flags=() ;;
        weights) flags=(--zero-quantized-weights) ;;
        gradients) flags=(--zero-quantized-gradients) ;;
        both) flags=(--zero-quantized-weights --zero-quantized-gradients) ;;
        esac
        run $way $seed ${flags[@]+"${flags[@]}"}
        echo "$way $loss" >>"$folder/losses"
    done
done
awk '
{ sum[$1] += $2; n[$1]++ }
function way(name, most,    off) {
    off = 100 * (sum[name] / n[name] - none) / none
    printf "%-9s mean %.4f, %+.3f%% of %.4f without; at most %.1f%%\n", name, \
        sum[name] / n[name], off, none, most
    if (!(off <= most))
        bad = 1
}
END {
    none = sum["none"] / n["none"]
    way("weights", 0.5)
    way("gradients", 2)
    way("both", 2)
    exit bad
}' "$folder/losses" || result=1
exit $result
