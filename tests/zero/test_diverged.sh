#!/bin/bash
# A run whose gradients are no longer finite: what was saved before stays, nothing else is saved or
# exported, status 2, and the command that it names goes on. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/small_run.sh"
tiny+=(--no-tensorboard)
ln -s "$train" train

# diverged NAME GOOD STEP: status 2, and the line says so: the last good step, and from where.
diverged() {
    line=$(grep '^train: ' <<<"$said")
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        error_is "E_DIVERGED $2: *, from $3: ./train " && ! grep -q '^weights hash' <<<"$said"
    result $? "$1" "status $status: $said"
}
# follow ARGUMENT...: the command that the line named.
follow() {
    local command=${line##*: }
    command=${command% \[*}
    eval "said=\$(timeout 60 $command \"\$@\" 2>&1)"
    status=$?
}
kept() { # kept OUT: its checkpoints
    (cd "$1/checkpoints" && echo step-*)
}
state() { cat "$1"/checkpoints/step-*/rank-*.state | cksum; }
rise=(--lr 1000 --warmup 400 --steps 400)

run "${rise[@]}" --save-every 10 --out a --export hf:never
good=$(sed -n 's/.*the last good step is \([0-9]*\).*/\1/p' <<<"$said")
last=$(((good - 1) / 10 * 10))
diverged "ten steps that are not finite end a run" "$good" "the checkpoint of step $last"
[ "$(kept a)" = "$(printf 'step-%08d step-%08d' $((last - 10)) $last)" ] && [ ! -e never ]
result $? "nothing is saved, pruned or exported meanwhile" "$(kept a)"
before=$(state a)
run --out a --resume auto
diverged "a resume at the same rate comes to the same end" "$good" "the checkpoint of step $last"
[ "$(state a)" = "$before" ]
result $? "and leaves what was saved" "$(kept a)"
follow --lr 0.01
[ $status = 0 ] && grep -q "^resumed after step $last (" <<<"$said" &&
    grep -qx -- '--lr is 0.01 from here on, instead of 1e+03' <<<"$said" &&
    grep -q '^step 400  *validation loss [0-9]' <<<"$said" &&
    grep -q '"lr":[[:space:]]*0.01,' a/config.json && [ ! -e a/checkpoints/diverged ]
result $? "the command that is named goes on to the end, at a lower rate" "$status: $said"
run --out a --resume auto --steps 410
[ $status = 0 ] && grep -q '^resumed after step 400' <<<"$said" &&
    ! grep -q 'from here on' <<<"$said"
result $? "and is the run's from there on" "$said"
run --steps 4 --out sound
run --steps 8 --out sound --resume auto --lr 0.5
[ $status = 2 ] && error_is 'E_CHECKPOINT_IDENTITY --lr'
result $? "a run that has not diverged keeps its rate" "$said"

run --out a --resume auto --steps 420 --lr 0.02
[ $status = 2 ] && error_is 'E_CHECKPOINT_IDENTITY --lr'
result $? "at that rate alone" "$said"

# The checkpoint of the last good step itself leads to what came.
run "${rise[@]}" --save-every 1 --keep 1 --out 'b 1' --backup-dir 'also/b 1'
mkdir -p 'also/b 1'
cp -r 'b 1/checkpoints' 'also/b 1/checkpoints'
run --out 'b 1' --resume auto
diverged "the last checkpoint may be no good" "$good" "the checkpoint of step $((good - 1))"
[ "$(kept 'b 1')" = "$(printf 'step-%08d step-%08d' $((good - 1)) "$good")" ]
result $? "so the one before it stays, too" "$(kept 'b 1')"
follow --lr 0.01
[ $status = 0 ] && grep -q "^resumed after step $((good - 1)) " <<<"$said" &&
    [ -d "b 1-again/checkpoints/step-00000400" ]
result $? "and is gone on from in another folder" "$said"

run --lr 1000 --steps 40 --save-every 2 --out c
soon=$(sed -n 's/.*the last good step is \([0-9]*\).*/\1/p' <<<"$said")
early=$(kept c)
rm -r c
run --lr 1000 --steps $((soon + 3)) --save-every 2 --out c --export hf:never
diverged "a run whose last steps were skipped ends so" "$soon" "the checkpoint of step [0-9]*"
error_is 'E_DIVERGED last 3 steps' && [ ! -e never ] &&
    [ "$(kept c)" = "$early" ]
result $? "and neither saves nor exports" "$early: $(kept c) $said"
run --lr 1000 --steps "$soon" --save-every 2 --out d --export hf:never
diverged "so does one whose last update spoils the weights" "$soon" "the checkpoint of step [0-9]*"
error_is 'E_DIVERGED validation loss' && [ ! -e never ] &&
    [ -d "d/checkpoints/${early##* }" ]
result $? "and exports nothing" "$said: $(kept d)"
run "${rise[@]}" --out e
diverged "one that has saved nothing yet" "$good" "the beginning, as no checkpoint is older"
follow --lr 0.01
[ $status = 0 ] && grep -q '^weights hash' <<<"$said"
result $? "begins again in its folder" "$said"

for how in "--ranks 2 --zero 3 --save-async" "--ranks 2 --pp 2 --layers 2 --global-batch 4" \
    "--zero 1 --offload-optimizer cpu --save-async"; do
    rm -rf f
    # shellcheck disable=SC2086 # words
    run "${rise[@]}" --save-every 10 --out f $how
    here=$(sed -n 's/.*the last good step is \([0-9]*\).*/\1/p' <<<"$said")
    diverged "$how: the same end" "${here:-none}" "the checkpoint of step $(((here - 1) / 10 * 10))"
    old=$((here / 10 * 10 - 10 * (here % 10 == 0)))
    [[ "$(kept f)" = *"$(printf 'step-%08d step-%08d' $((old - 10)) $old)" ]]
    result $? "$how: and the same checkpoints" "$(kept f)"
done

# Stopped behind a skipped step, as any run meets one: what was trained is saved, and what is older
# stays, as no step has proven it.
mkfifo told
"$train" "${tiny[@]}" --layers 2 --channels 64 --seq-len 256 --batch 16 --lr 1000 --steps 400 \
    --save-every 2 --keep 1 --out stopped >told 2>&1 &
said=
while read -r heard; do
    said+=$heard$'\n'
    [[ $heard = *'the update was skipped'* ]] && kill -TERM $!
done <told
wait $!
status=$?
last=$(sed -n 's/^stopped after step \([0-9]*\), as asked.*/\1/p' <<<"$said")
[ $status = 0 ] && [ "$last" ] && [ ! -e stopped/checkpoints/diverged ] &&
    [[ $(kept stopped) = step-*" $(printf 'step-%08d' "$last")" ]]
result $? "a run that is stopped behind a skipped step is saved" "$status: $said: $(kept stopped)"
before=$(kept stopped)
said=$("$train" --out stopped --resume auto 2>&1)
status=$?
diverged "and says from where, if it goes on to no good" "$last" "the checkpoint of step [0-9]*"
[ "$(kept stopped)" = "$before" ]
result $? "where both are still there" "$(kept stopped)"

# fp16: an overflow is no divergence, and the step behind it saves.
run --dtype fp16 --loss-scale 256Mi --loss-scale-hysteresis 1 --steps 12 \
    --save-every 1 --keep 0 --out g
skipped=$(grep -c 'the update was skipped' <<<"$said")
[ $status = 0 ] && [ "$skipped" -ge 1 ] && [ "$(kept g | wc -w)" = $((12 - skipped)) ]
result $? "fp16: a step whose update is skipped saves nothing" "$said: $(kept g)"
run --dtype fp16 --loss-scale 256Mi --loss-scale-hysteresis 1 --steps 1 --out h
[ $status = 0 ] && grep -q 'the update was skipped' <<<"$said" && [ "$(kept h)" = step-00000001 ]
result $? "fp16: but the end does, while a lower loss scale is left" "$status: $said"

echo "1..$count"
exit $failed
