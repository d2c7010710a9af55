#!/bin/bash
# Ranks that are threads of one process, which is suspended for longer than they wait for each other
# (Ctrl-Z, a container that is paused): when it goes on, none of them is missing. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/small_run.sh"

"$train" "${tiny[@]}" --ranks 3 --zero 2 --batch 8 --layers 4 --channels 64 --steps 1000000 \
    --comm-timeout 1 --out out >said 2>&1 &
pid=$!
until_true 400 grep -q '"step":2,' out/log.jsonl
for _ in 1 2 3 4; do # at whatever moment of a step
    kill -STOP $pid
    sleep 1.3
    kill -CONT $pid
    sleep 0.2
done
kill -TERM $pid
wait $pid
status=$?
[ $status = 0 ] && ls out/checkpoints/step-* >/dev/null
result $? "a run that was suspended longer than --comm-timeout goes on" \
    "status $status: $(cat said)"

echo "1..$count"
exit $failed
