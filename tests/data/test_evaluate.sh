#!/bin/bash
# --eval: in a run, alone, and of somebody's model; the same numbers whatever the ranks and stages,
# and one line for what cannot be. What the numbers are is held against references by
# tests/data/test_eval.c and tests/zero/test_score.c. Speaks TAP.
set -u
root=$PWD
. "${BASH_SOURCE%/*}/../lib/small_run.sh"
cp "$root"/tests/fixtures/eval/*.jsonl "$root"/tests/fixtures/eval/*.bin .
model=$root/tests/fixtures/hf/gpt2 pieces=$root/tests/fixtures/eval/pieces.model

share='[01]\.[0-9]{4}'
both="ppl,hellaswag:items.jsonl"

# has TIMES PATTERN FILE: so many lines of the file, - for what was said, are that.
has() {
    [ "$(grep -cE -- "$2" "$3" <<<"$said")" = "$1" ]
}

# ---- in a run ----
run --steps 4 --seq-len 128 --global-batch 6 --eval "$both" --eval-every 2 --val-every 2 --out a
verdict="lm-eval acc $share acc_norm $share  llm.c $share  \(30 items\)"
has 3 "^step [024]  hellaswag:items.jsonl  $verdict$" -
result $? "a run evaluates before it begins, on the way and at its end" "$said"
has 3 '^step [024]  validation loss .* perplexity .* bits per byte  \(all [0-9]+ seq' - &&
    has 1 '^step 0  validation' -
result $? "ppl is of all validation data, in place of a validation of that step" "$said"
logged='"items":30,"acc":[0-9.]+,"acc_norm":[0-9.]+,"llmc_acc":[0-9.]+'
has 3 "^\{\"step\":[024],\"eval\":\"hellaswag:items.jsonl\",$logged\}$" a/log.jsonl
result $? "the log has it" "$(cat a/log.jsonl)"
hash=$(grep '^weights hash' <<<"$said")
run --steps 4 --seq-len 128 --global-batch 6 --out b
[ -n "$hash" ] && [ "$(grep '^weights hash' <<<"$said")" = "$hash" ]
result $? "and training is as without it" "$said"

# ---- alone ----
before=$(find a -type f -exec cksum {} +)
alone=$("$train" --out a --resume auto --eval-only 2>err)
result $? "--eval-only goes by what the run was told" "$(cat err)"
[ "$(wc -l <<<"$alone")" = 2 ] && grep -q '^step 4  validation loss' <<<"$alone" &&
    grep -q '^step 4  hellaswag:items.jsonl' <<<"$alone"
result $? "it prints its results and nothing else" "$alone"
[ "$before" = "$(find a -type f -exec cksum {} +)" ]
result $? "and leaves --out as it was"
offload="--offload-param cpu --offload-optimizer cpu --offload-activations cpu"
for flags in "--ranks 3" "--zero 3" "--ranks 3 --zero 3" \
    "--ranks 3 --zero 1 --offload-optimizer cpu" "--ranks 3 --zero 3 $offload"; do
    # shellcheck disable=SC2086
    [ "$("$train" --out a --resume auto --eval-only $flags 2>err)" = "$alone" ]
    result $? "the same with $flags" "$(cat err)"
done
said=$("$train" --out a --resume a/checkpoints/step-00000004 --eval-only --eval-limit 3 2>err)
grep -q '(3 items)$' <<<"$said" && grep -q '(3 sequences)$' <<<"$said"
result $? "--eval-limit takes the first" "$said $(cat err)"

# ---- somebody's model ----
theirs=(--init "hf:$model" --eval-only --seq-len 24)
hf() {
    timeout 60 "$train" --device cpu --dtype fp32 --threads 1 "${theirs[@]}" "$@"
}
said=$(hf --eval hellaswag:items.jsonl --tokenizer "$pieces" 2>err)
# lm-eval's harness says 5, 6 and 12 of 30 of it (tests/fixtures/eval/expected.json).
want="lm-eval acc 0.1667 acc_norm 0.2000  llm.c 0.4000  (30 items)"
[ "$said" = "step 0  hellaswag:items.jsonl  $want" ]
result $? "--init needs no data, and has the references' accuracy" "$said $(cat err)"
[ ! -e out ]
result $? "nor does it make --out"
said=$(hf --eval hellaswag:items.bin --ranks 3 2>err)
[ "$said" = "step 0  hellaswag:items.bin  llm.c 0.4000  (30 items)" ]
result $? "a .bin has llm.c's protocol" "$said $(cat err)"
said=$(hf --eval hellaswag:long.jsonl,hellaswag:items.bin --tokenizer "$pieces" 2>err)
grep -q "holds ids of GPT-2's tokenizer" err
result $? "but not beside another tokenizer" "$said $(cat err)"
said=$(hf --eval hellaswag:long.jsonl --tokenizer "$pieces" 2>err)
[ "$said" = "step 0  hellaswag:long.jsonl  lm-eval acc 0.0000 acc_norm 0.5000  (4 items)" ] &&
    grep -q 'line 1 is longer than --seq-len 24, which llm.c' err
result $? "where llm.c refuses an item, its protocol is left out, by name" "$said $(cat err)"

# ---- what cannot be ----
# refused NAME ERROR ARGUMENT...: one line "train: ...", status 2, nothing on standard output.
refused() {
    local name=$1 error=$2 status
    shift 2
    said=$(timeout 60 "$train" --device cpu --dtype fp32 "$@" 2>err)
    status=$?
    [ $status = 2 ] && [ -z "$said" ] && [ "$(grep -c '^train: ' err)" = 1 ] &&
        error_is "$error" "$(cat err)"
    result $? "refused: $name" "status $status: $said $(cat err)"
}
refused "a file that is not there" 'E_FILE_READ hellaswag' --data text.txt --eval hellaswag:no
refused "nothing to evaluate" 'E_EVAL_MISSING --eval-only' --out b --resume auto --eval-only
refused "no weights" 'E_ONLY_CHECKPOINT --eval-only' --data text.txt --eval ppl --eval-only
refused "an empty --out" 'E_RUN_MISSING --eval-only: --out none' \
    --out none --resume auto --eval ppl --eval-only
refused "an interval of nothing" 'E_EVAL_MISSING --eval-every' --data text.txt --eval-every 3
refused "both" 'E_ONLY_CONFLICT --sample-only --eval-only' \
    --out a --resume auto --sample-only --eval-only
refused "ppl of no data" 'E_DATA_MISSING --data' "${theirs[@]}" --eval ppl
refused "a trace" 'E_ONLY_CONFLICT --trace x --eval-only' \
    --out a --resume auto --eval-only --trace x
rm -f items.jsonl
said=$("$train" --out a --resume auto --sample-only 2>err)
result $? "a sample does without the files" "$(cat err)"
refused "a file of the run that is gone" 'E_FILE_READ hellaswag' --out a --resume auto
said=$("$train" --out a --resume auto --eval none 2>err)
result $? "but a run goes on with --eval none" "$(cat err)"

echo "1..$count"
exit $failed
