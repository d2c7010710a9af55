#!/bin/bash
# docs/learn/zero_in_200_lines.c has at most 200 lines, and trains as ./train does: with the same
# model, text and kernels both end with one weights hash, at each stage, for one rank to three, and
# with accumulation.
set -u
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"
learn=$(dirname "$train")/zero_in_200_lines
steps=3

lines=$(wc -l <docs/learn/zero_in_200_lines.c)
[ "$lines" -le 200 ]
result $? "zero_in_200_lines.c has at most 200 lines" "$lines lines"

# Of ./train, with the same flags.
trained() { # trained STAGE RANKS MICRO_BATCHES
    "$train" --device cpu --kernels oracle --threads 1 --dtype fp32 --data README.md \
        --tokenizer byte --layers 2 --heads 4 --channels 48 --seq-len 64 --batch 2 --steps $steps \
        --ranks "$2" --zero "$1" --global-batch $((2 * $2 * $3)) --out "$folder/out" 2>&1
    rm -rf "$folder/out"
}
losses() { sed -n 's/^step *\([0-9]*\)\/[0-9]*  loss \([0-9.]*\)  norm \([0-9.]*\).*/\1 \2 \3/p'; }

agree() { # agree STAGE RANKS MICRO_BATCHES
    local said is
    said=$(trained "$@")
    is=$("$learn" "$1" "$2" $steps "$3" 2>&1)
    [ "$(hash_of <<<"$is")" ] && [ "$(hash_of <<<"$is")" = "$(hash_of <<<"$said")" ] &&
        [ "$(losses <<<"$is" | tail -n 1)" = "$(losses <<<"$said" | tail -n 1)" ]
    result $? "stage $1, ranks: $2, micro-batches: $3: ./train's weights, loss and norm" "$said
$is"
}
for stage in 0 1 2 3; do
    for ranks in 1 2 3; do
        agree $stage $ranks 1
    done
    agree $stage 3 2 # 0 and 1 add up micro-batches before ranks, 2 and 3 behind them
done

said=$("$learn" 4 1 1 2>&1)
[ $? = 2 ] && grep -q '^STAGE' <<<"$said"
result $? "another stage is refused, with what is expected" "$said"

echo "1..$count"
exit $failed
