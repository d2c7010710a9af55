#!/bin/bash
# --keep-best and --patience: the checkpoint with the lowest validation loss stays beside the last,
# over resumes and kills, and a run ends where no better one comes. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/small_run.sh"
small_text 12 >text.txt
tiny+=(--no-tensorboard --lr 0.1 --batch 4)
judged=(--val-every 5 --keep-best --patience 4)

kept() { # kept OUT: its checkpoints
    (cd "$1/checkpoints" && echo step-*)
}
steps_of() { # steps_of STEP...: the names of their checkpoints
    printf 'step-%08d ' "$@" | sed 's/ $//'
}
best_of() { sed -n 's/^the best is step \([0-9]*\),.*/\1/p' <<<"$said"; }
last_of() { sed -n 's/^step \([0-9]*\) is the last: .*/\1/p' <<<"$said"; }
lowest() { # lowest OUT: the first step on the way with the least loss
    sed -n 's/.*"step":\([0-9]*\),"val_loss":\([^,]*\),.*/\1 \2/p' "$1/log.jsonl" |
        awk '$1 > 0 && (!n++ || $2 < least) { least = $2; step = $1 } END { print step }'
}
judged_by() { # judged_by NAME ERROR ARGUMENT...: refused with that
    local name=$1 error=$2
    shift 2
    run "$@"
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        error_is "$error"
    result $? "$name" "$status: $said"
}

run "${judged[@]}" --steps 400 --keep 1 --out a
best=$(best_of) last=$(last_of) hash=$(hash_of <<<"$said")
[ $status = 0 ] && [ "${last:-0}" -lt 400 ] && [ "$last" = $((best + 20)) ] &&
    grep -qE "^step $last is the last: 4 validations that are not better than step $best's, " \
        <<<"$said" && [ "$hash" ]
result $? "four validations without a better one end a run" "$status: $said"
[ "$(kept a)" = "$(steps_of "$best" "$last")" ] && [ "$(lowest a)" = "$best" ]
result $? "the best stays beside the last" "$(kept a) $(lowest a)"
[ "$(grep -c "\"step\":$last,\"val_loss\"" a/log.jsonl)" = 1 ]
result $? "and the last is validated once" "$(grep val_loss a/log.jsonl)"
loss=$(sed -n 's/^the best is .* loss of \([0-9.]*\):.*/\1/p' <<<"$said")
said=$("$train" --out a --resume best --eval ppl --eval-only 2>/dev/null)
grep -q "^step $best  validation loss $loss " <<<"$said"
result $? "--resume best evaluates it" "$said, not $loss"
before=$(cat a/log.jsonl a/config.json | cksum)
said=$("$train" --out a --resume best --export hf:best 2>&1)
run --lr 0.1 --steps "$best" --out b --export hf:wanted
cmp -s best/model.safetensors wanted/model.safetensors &&
    [ "$(cat a/log.jsonl a/config.json | cksum)" = "$before" ]
result $? "and exports it, and touches nothing else" "$said"
said=$("$train" --out a --resume auto 2>&1)
[ "$(last_of)" = "$last" ] && [ "$(hash_of <<<"$said")" = "$hash" ]
result $? "a resume of a run that has ended so does nothing" "$said"
said=$("$train" --out a --resume auto --patience 6 2>&1)
[ "$(last_of)" = $((best + 30)) ] && [ "$(kept a)" = "$(steps_of "$best" $((best + 30)))" ]
result $? "but with more patience goes on" "$said $(kept a)"

# In two parts, one of which ends between validations.
run "${judged[@]}" --steps $((best + 8)) --keep 1 --out c
said=$("$train" --out c --resume auto --steps 400 2>&1)
[ "$(last_of)" = "$last" ] && [ "$(hash_of <<<"$said")" = "$hash" ] &&
    [ "$(kept c)" = "$(steps_of "$best" "$last")" ]
result $? "a resume keeps the best and the count" "$said $(kept c)"

for how in "--ranks 2 --zero 3 --batch 2 --save-async" "--zero 1 --offload-optimizer cpu" \
    "--ranks 2 --pp 2 --layers 2 --global-batch 4"; do
    rm -rf d
    # shellcheck disable=SC2086 # words
    run "${judged[@]}" --steps 400 --keep 1 --out d $how
    here=$(best_of)
    [ $status = 0 ] && [ "$(lowest d)" = "$here" ] && [ "$(last_of)" = $((here + 20)) ] &&
        [ "$(kept d)" = "$(steps_of "$here" $((here + 20)))" ]
    result $? "$how" "$said $(kept d)"
done

run --steps 10 --out e
magic=$(head -c 14 e/checkpoints/step-00000010/rank-0000.state)
said=$("$train" --out e --resume auto --steps 20 --val-every 5 --keep-best 2>&1)
[ "$magic" = "zero.c state 5" ] && [ "$(best_of)" ] && [ "$(lowest e)" = "$(best_of)" ]
result $? "a checkpoint that knows of no best is gone on from" "$magic: $said"
rm -r "c/checkpoints/$(steps_of "$best")"
said=$("$train" --out c --resume best --eval ppl --eval-only 2>&1)
[ $? = 2 ] && error_is "E_RESUME_BEST step $best"
result $? "a best that is gone is told" "$said"
said=$("$train" --out c --resume auto --patience 8 2>&1)
grep -q "^the best checkpoint, of step $best, is gone; the next" <<<"$said" &&
    [ "$(best_of)" -gt "$best" ]
result $? "and the next takes its place" "$said"

# A best whose own save fails is none, in any checkpoint behind it.
fault=(env LD_PRELOAD="${train%/*}/tests/libfault.so" FAULT_CLASS=rename FAULT_DO=EIO)
for at in 3 4 5 6; do
    rm -rf unsaved
    said=$("${fault[@]}" FAULT_AT=$at "$train" "${tiny[@]}" --steps 8 --val-every 5 --save-every 7 \
        --keep 0 --keep-best --out unsaved 2>&1)
    grep -q '^step 5 is not saved' <<<"$said" && break
done
rm -rf unsaved/checkpoints/step-00000008
said+=$'\n'$("$train" --out unsaved --resume best --eval ppl --eval-only 2>&1)
[ "$(kept unsaved)" = "$(steps_of 7)" ] &&
    error_is 'E_RESUME_BEST --resume best: --out unsaved'
result $? "a best that could not be saved is none" "$said $(kept unsaved)"

judged_by "a best where nothing validates" 'E_VALIDATION_MISSING --keep-best' --keep-best --out f
judged_by "patience where nothing validates" 'E_VALIDATION_MISSING --patience' --patience 3 --out f
judged_by "a run from the best" 'E_RESUME_BEST --export' --out a --resume best
judged_by "the best of none" 'E_RESUME_BEST --out b' --out b \
    --resume best --export hf:none

# Killed at any moment: the last, or the one before it, is gone on from, and the best is there.
for pause in .05 .12 .2 .3 .45; do
    rm -rf g
    "$train" "${tiny[@]}" --steps 5000 --val-every 1 --save-every 1 --keep 1 --keep-best --out g \
        >said 2>&1 &
    until_true 200 test -d g/checkpoints/step-00000003 -o -d g/checkpoints/step-00000004
    sleep $pause
    kill -KILL $!
    wait $! 2>/dev/null
    said=$("$train" --out g --resume best --eval ppl --eval-only 2>&1)
    first=$?
    again=$("$train" --out g --resume auto --time-limit 1s 2>&1)
    [ $first = 0 ] && grep -q '^step [1-9][0-9]*  validation loss' <<<"$said" &&
        grep -q '^resumed after step' <<<"$again"
    result $? "killed after $pause s more: the best and the last are there" "$said $again"
done

echo "1..$count"
exit $failed
