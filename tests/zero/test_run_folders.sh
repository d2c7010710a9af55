#!/bin/bash
# The folders that a run writes into and reads from stay what they are: moved away while it trains,
# damaged, without room or out of reach. Speaks TAP. (More of a run's surroundings:
# test_run_edges.sh.)
set -u
. "${BASH_SOURCE%/*}/../lib/small_run.sh"
libfault=$(dirname "$train")/tests/libfault.so

# starts SAID OUT ARGUMENT...: a run in the background, as process `pid`; returns after two steps.
starts() {
    local said=$1 out=$2
    shift 2
    "$train" "${tiny[@]}" --out "$out" "$@" >"$said" 2>&1 &
    pid=$!
    until_true 600 grep -q '"step":2,' "$out/log.jsonl"
}
has_ended() { ! kill -0 $1 2>/dev/null; }
# ends PID: waits for its end; its status is in `status`.
ends() {
    until_true 400 has_ended $1 || kill -9 $1
    wait $1
    status=$?
}

# ---- a folder that another run has by now ----

for how in --save-every=50 --save-async; do
    rm -rf mv mv.old
    starts mv.said mv --steps 1000000 $how
    first=$pid
    mv mv mv.old
    starts mv2.said mv --steps 1000000
    kill -TERM $first
    until_true 200 grep -q 'trying again' mv.said
    lines=$(grep -c 'not saved: --out mv is another folder now' mv.said)
    kill -TERM $first
    ends $first
    [ $status = 2 ] && [ $lines -ge 1 ] && [ -z "$(ls mv/checkpoints 2>/dev/null)" ] &&
        error_is 'E_FOLDER_REPLACED --out mv' "$(<mv.said)" &&
        grep -q "process $pid on" mv/lock
    result $? "$how: a run whose --out was moved leaves the one that has its name now alone" \
        "status $status: $(cat mv.said) $(ls -R mv)"
    kill -TERM $pid
    ends $pid
    [ $status = 0 ] && ls mv/checkpoints/step-* >/dev/null && [ ! -e mv/lock ]
    result $? "$how: and that one saves and ends as ever" "status $status: $(cat mv2.said)"
done

rm -rf mv mv.old
starts mv.said mv --steps 1000000
rm mv/lock
kill -TERM $pid
ends $pid
[ $status = 0 ] && ls mv/checkpoints/step-* >/dev/null && [ ! -e mv/lock ]
result $? "one whose lock alone was removed saves" "status $status: $(cat mv.said)"

# ---- a damaged checkpoint takes no other's place ----

# flips FILE: another byte in its middle.
flips() {
    local at=$(($(stat -c %s "$1") / 2)) byte
    byte=$(od -An -tu1 -j $at -N 1 "$1")
    printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$1" bs=1 seek=$at conv=notrunc status=none
}
run --steps 30 --save-every 10 --out hurt
flips hurt/checkpoints/step-00000030/rank-0000.state
run --steps 35 --save-every 7 --out hurt --resume auto
kept=$(cd hurt/checkpoints && echo *)
[ $status = 0 ] && grep -q 'trying the one before' <<<"$said" &&
    [ "$kept" = 'step-00000028 step-00000030 step-00000035' ]
result $? "a damaged checkpoint does not count among those to keep" "status $status: $kept $said"
run --steps 42 --save-every 7 --out hurt --resume auto
kept=$(cd hurt/checkpoints && echo *)
[ $status = 0 ] && [ "$kept" = 'step-00000035 step-00000042' ]
result $? "and goes with those before it" "status $status: $kept $said"

run --steps 30 --save-every 10 --out again
flips again/checkpoints/step-00000030/rank-0000.state
run --steps 32 --save-every 30 --out again --resume auto
kept=$(cd again/checkpoints && echo *)
[ $status = 0 ] && [ "$kept" = 'step-00000030 step-00000032' ]
result $? "one that is saved anew counts again" "status $status: $kept $said"

# ---- which of two folders holds a later one ----

run --steps 4 --save-every 2 --keep 0 --out first
run --steps 6 --out second
run --steps 9 --out first --backup-dir second --resume first/checkpoints/step-00000004
[ $status = 2 ] && error_is 'E_RESUME_LATER --backup-dir second*step 6'
result $? "a later checkpoint is told with the flag of its folder" "status $status: $said"

# ---- a name is not believed ----

# Of a step beyond --steps there is a folder, and then one with a checkpoint that is torn.
mkdir first/checkpoints/step-99999999
run --steps 6 --out first --resume auto
[ $status = 0 ] && grep -q 'resumed after step 4' <<<"$said"
result $? "an empty folder with a later name is no checkpoint" "status $status: $said"
rm -rf first/checkpoints/step-99999999 first/checkpoints/step-00000006
cp -r second/checkpoints/step-00000006 first/checkpoints/step-00000009
truncate -s -1 first/checkpoints/step-00000009/rank-0000.state
run --steps 8 --out first --resume auto
[ $status = 0 ] && grep -q 'step-00000009.*damaged.*trying the one before' <<<"$said" &&
    grep -q 'resumed after step 4' <<<"$said"
result $? "nor is a damaged one that the run has not come to" "status $status: $said"
run --steps 5 --out first --resume auto
[ $status = 2 ] && error_is 'E_STEPS_DONE step 8'
result $? "but the whole one behind it is believed" "status $status: $said"

# ---- room that is there when the signal comes ----

starts room.said room --steps 1000000 --save-every 1000000
mkdir -p room/checkpoints/writing
touch room/checkpoints/writing/mine
kill -TERM $pid
until_true 400 grep -q 'trying again' room.said
rm -r room/checkpoints/writing
kill -TERM $pid
ends $pid
[ $status = 0 ] && ls room/checkpoints/step-* >/dev/null
result $? "a signal in the wait for room still lets it try once" "status $status: $(cat room.said)"

# ---- a limit that no waiting lifts ----

(ulimit -S -f 8 && exec timeout 60 "$train" "${tiny[@]}" --out small --steps 3 >small.said 2>&1)
[ $? = 2 ] && error_is 'E_FILE_SIZE_LIMIT ulimit -f' "$(<small.said)" &&
    ! grep -q '"step"' small/log.jsonl
result $? "a ulimit -f that no checkpoint fits is refused at the start" "$(cat small.said)"
rm -rf small
starts small.said small --steps 1000000 --save-every 2 --ranks 3 --zero 3
until_true 400 grep -q '^saved' small.said
prlimit --pid $pid --fsize=8192:
until_true 400 grep -q 'is not saved: .*File too large' small.said
kill -TERM $pid
ends $pid
[ $status = 2 ] && error_is E_CHECKPOINT_WRITE "$(<small.said)" &&
    ! grep -q 'trying again' small.said && [ ! -e small/checkpoints/writing ] &&
    saved=$(ls small/checkpoints | tail -n 1) &&
    run --steps $((10#${saved#step-} + 1)) --ranks 3 --out small --resume auto && [ $status = 0 ]
result $? "one that comes later ends the last save at once, and costs nothing saved" \
    "status $status: $(cat small.said) ${said:-}"

# ---- a log that cannot be written for a while ----

# log_is_whole OUT: it has each step to the last once.
log_is_whole() {
    sed -n 's/^{"step":\([0-9]*\),"loss".*/\1/p' "$1/log.jsonl" >steps
    [ -s steps ] && diff <(seq $(wc -l <steps)) steps >/dev/null
}
for events in --no-tensorboard --tensorboard; do
    rm -rf log log.said
    starts log.said log --steps 1000000 $events
    prlimit --pid $pid --fsize=8192:
    until_true 400 grep -q 'log.jsonl: File too large; its lines wait in memory' log.said
    sleep 0.2
    prlimit --pid $pid --fsize=unlimited:
    until_true 200 grep -q 'log.jsonl: the lines that waited are written' log.said
    kill -TERM $pid
    ends $pid
    [ $status = 0 ] && [ "$(grep -c 'log.jsonl: File too large' log.said)" = 1 ] &&
        log_is_whole log && ls log/checkpoints/step-* >/dev/null &&
        [ "$(stat -c %s log/log.jsonl)" -gt 8192 ]
    result $? "$events: what cannot be logged waits, and training goes on" \
        "status $status: $(cat log.said)"
done

# ---- a log that is not as it was written ----

run --steps 20 --save-every 5 --keep 0 --out whole
rm -r whole/checkpoints/step-00000020
cp -r whole edited
run --steps 20 --out whole --resume auto
[ $status = 0 ] && ! grep -q log.jsonl <<<"$said" && log_is_whole whole
result $? "a resume says nothing of a log that is whole" "status $status: $said"
sed -i '/"step":3,"loss"/s/$/xxxx/' edited/log.jsonl
run --steps 20 --out edited --resume auto
[ $status = 0 ] && grep -qx 'edited/log.jsonl: dropped 1 line that cannot be read' <<<"$said" &&
    ! grep -q xxxx edited/log.jsonl && grep -q '"step":20,' edited/log.jsonl
result $? "and tells of a line that is no JSON" "status $status: $said"
rm -r edited/log.jsonl edited/checkpoints/step-00000020
run --steps 20 --out edited --resume auto
[ $status = 0 ] && grep -q '"step":16,' edited/log.jsonl
result $? "a log that is gone begins anew" "status $status: $said"

# ---- what a refused run leaves ----

run --data nowhere.txt --out aa/b/c
[ $status = 2 ] && [ ! -e aa ]
result $? "a refused run leaves no folder that it made" "status $status: $(find aa)"
mkdir aa
run --data nowhere.txt --out ./aa//b/c/
[ $status = 2 ] && [ -d aa ] && [ ! -e aa/b ]
result $? "nor takes one that was there" "status $status: $(find aa)"

# ---- what is only read, and what cannot be ----

run --steps 2 --out ro
before=$(find ro -type f -exec sha256sum {} + | sort)
chmod -R a-w ro
said=$(setpriv --reuid 65534 --clear-groups true 2>/dev/null && echo can)
if [ "$(id -u)" != 0 ] || [ "$said" = can ]; then
    chmod a+rx . && chmod -R a+rX ro text.txt
    as=() && [ "$(id -u)" = 0 ] && as=(setpriv --reuid 65534 --clear-groups)
    cp "$train" here && chmod a+rx here && mkdir -m 777 open
    said=$("${as[@]}" env XDG_CACHE_HOME=$folder/open timeout 60 ./here "${tiny[@]}" --out ro \
        --resume auto --sample-only --sample-tokens 5 2>&1)
    status=$?
    [ $status = 0 ] && [ "$before" = "$(find ro -type f -exec sha256sum {} + | sort)" ]
    result $? "--sample-only reads an --out that it may not write" "status $status: $said"
    chmod 000 ro/config.json
    said=$("${as[@]}" env XDG_CACHE_HOME=$folder/open timeout 60 ./here "${tiny[@]}" --out ro \
        --resume auto --sample-only --sample-tokens 5 2>&1)
    status=$?
    [ $status = 2 ] && error_is 'E_FILE_READ ro/config.json'
    result $? "a config.json that cannot be read is told, not passed over" "status $status: $said"
    chmod -R u+w ro
else
    result 0 "reading without the right to write # SKIP nobody else can be become here"
fi

# ---- out of descriptors ----

wrong= refused=0
for n in {8..34}; do
    rm -rf few
    mkdir -p few/checkpoints/writing
    said=$(timeout 2 env LD_PRELOAD=$libfault FAULT_CLASS=open FAULT_AT=$n FAULT_DO=EMFILE \
        "$train" "${tiny[@]}" --out few --steps 1 2>&1)
    grep -q 'is in the way' <<<"$said" && wrong+=" $n: $said"
    grep -q 'cannot remove few/checkpoints/writing: Too many open files' <<<"$said" &&
        refused=$((refused + 1))
done
[ -z "$wrong" ] && [ $refused -ge 1 ]
result $? "too many open files are told as that" "$refused told;$wrong"

# ---- a socket in place of a file ----

run --steps 2 --save-every 1 --keep 0 --out socket
file=socket/checkpoints/step-00000002/rank-0000.state
rm $file
if python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' $file; then
    run --steps 3 --out socket --resume auto
    [ $status = 0 ] && grep -q 'resumed after step 1' <<<"$said"
    result $? "a socket in place of a rank's file is fallen back from" "status $status: $said"
else
    result 0 "a socket in place of a rank's file # SKIP no Python to make one"
fi

echo "1..$count"
exit $failed
