#!/bin/bash
# Nodes that have --out each on a disk of their own: what they save, and what a resume finds. Here a
# node is a folder that its ranks are started in, with the same --out below it. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/mpi_jobs.sh"

small=("${here[@]}" --data random --vocab 300 --tie off --layers 2 --channels 32 --heads 2
    --seq-len 16 --threads 1 --log-every 0 --val-batches 1 --no-tensorboard --out out
    --save-every 2 --keep 0 --batch 1 --global-batch 6 --comm-timeout 20)

# nodes RANKS PER FLAG...: a job whose ranks 0 .. PER - 1 are in node0, the next in node1. FULL: the
# disk of this node takes nothing; but MPI's own files, which a limit of the shell would cut, too.
nodes() {
    local ranks=$1 per=$2
    shift 2
    job "$ranks" env PER="$per" NODES="$folder" PROGRAM="$train" FULL="${FULL:-}" \
        FAULTS="$(realpath "$helpers")/libfault.so" bash -c '
        k=$((OMPI_COMM_WORLD_RANK / PER))
        [ $k != "$FULL" ] || export LD_PRELOAD=$FAULTS FAULT_CLASS=fsync FAULT_AT=1 FAULT_FOR=0 \
            FAULT_DO=ENOSPC
        cd "$NODES/node$k" && exec "$PROGRAM" "$@"' bash "${small[@]}" \
        "$@"
}
fresh() {
    rm -rf "$folder"/node* && mkdir "$folder"/node{0,1,2,3,4,5}
}
hash_of() { sed -n 's/^weights hash: //p' <<<"$1"; }
files() { (cd "$folder" && find node* -path "*step-$1*" -name '*.state' | sort | tr '\n' ' '); }
# kill_one SIGNAL FLAGS: one rank of the job that has these flags.
kill_one() {
    local q
    for q in $(pgrep -f -- "$2"); do
        if [ "$(readlink "/proc/$q/exe")" = "$train" ] &&
            grep -qz "^NODES=$folder$" "/proc/$q/environ"; then
            kill "-$1" "$q" && killed=$((killed + 1))
            return
        fi
    done 2>/dev/null
}
killed=0
want=() # by steps: the hash of 6 thread ranks, at stage 3
for steps in 4 8; do
    said=$("$train" "${small[@]}" --zero 3 --ranks 6 --steps $steps --out "$folder/threads" 2>&1)
    want[steps]=$(hash_of "$said")
    rm -rf "$folder/threads"
done

# ---- saving ----

fresh
said=$(nodes 6 2 --zero 3 --steps 4)
p=out/checkpoints/step-00000004
[ "$(hash_of "$said")" = "${want[4]}" ] && [ "$(files 00000004)" = "node0/$p/rank-0000.state \
node0/$p/rank-0001.state node1/$p/rank-0002.state node1/$p/rank-0003.state \
node2/$p/rank-0004.state node2/$p/rank-0005.state " ]
result $? "each node has its ranks' files, and no others" "$said $(files 00000004)"
[ "$(find "$folder" -name log.jsonl)" = "$folder/node0/out/log.jsonl" ] &&
    [ -z "$(find "$folder" -name lock -o -name writing -o -name 'fetched-*')" ]
result $? "the log is rank 0's, and nothing is left of locks" "$(find "$folder/" | tail -n 50)"
mkdir "$folder/kept"
cp -r "$folder"/node[012] "$folder/kept"
restore() {
    fresh
    cp -r "$folder"/kept/* "$folder"
}

# ---- resuming ----

for how in "6 2 --zero 3" "6 2 --zero 0" "6 2 --zero 2 --save-async" "6 3 --zero 3"; do
    restore
    [ "$how" != "6 3 --zero 3" ] || cp -r "$folder"/node2/out "$folder/node1" # node2's disk, moved
    # shellcheck disable=SC2086 # words
    said=$(nodes $how --steps 8 --resume auto)
    [ "$(hash_of "$said")" = "${want[8]}" ] && grep -q 'resumed after step 4' <<<"$said"
    result $? "resumed ($how): the weights of a run that never stopped" "$said"
done

# Another number of ranks rounds sums differently, so it is held against threads of as many.
restore
mkdir -p "$folder/all/out/checkpoints/step-00000004"
cp "$folder"/node*/$p/*.state "$folder/all/$p"
for how in "3 1 --zero 3" "3 1 --zero 0" "2 2 --zero 1" "3 1 --zero 1 --offload-optimizer cpu" \
    "6 2 --zero 1 --pp 2" "6 2 --zero 1 --tp 2"; do
    restore
    ranks=${how%% *} flags=${how#* * }
    # shellcheck disable=SC2086 # words
    one=$(cd "$folder/all" && "$train" "${small[@]}" --ranks "$ranks" $flags --steps 6 \
        --resume out/checkpoints/step-00000004 --out "$folder/threads" 2>&1)
    rm -rf "$folder/threads"
    [ "$ranks" != 2 ] || { for k in 1 2; do cp -r "$folder"/node$k/out "$folder/node0"; done; }
    # shellcheck disable=SC2086 # words
    said=$(nodes $how --steps 6 --resume auto)
    [ -n "$(hash_of "$one")" ] && [ "$(hash_of "$said")" = "$(hash_of "$one")" ]
    result $? "resumed by other ranks ($how): as threads that see all files" "$one $said"
done

restore
said=$(cd "$folder" && nodes 6 2 --zero 3 --steps 8 --resume out/checkpoints/step-00000004)
[ "$(hash_of "$said")" = "${want[8]}" ]
result $? "a checkpoint that is named, and lies on three disks" "$said"

# ---- what is missing, torn or full ----

restore
rm -r "$folder/node1/out"
said=$(nodes 6 2 --zero 3 --steps 8 --resume auto)
status=$?
[ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
    error_is "E_CHECKPOINT_NODES rank-0002.state*$(uname -n)"
result $? "a node's disk that is gone: the file and the node are named" "status $status: $said"
[ "$(find "$folder/node0" "$folder/node2" -name '*.state' | wc -l)" = 8 ]
result $? "and nothing of what the others have is gone" "$(find "$folder")"

for damage in "rm -r node2/$p" "truncate -s 1000 node2/$p/rank-0004.state" \
    "mv node1/$p node1/out/checkpoints/writing"; do
    restore
    (cd "$folder" && $damage)
    said=$(nodes 6 2 --zero 3 --steps 8 --resume auto)
    [ "$(hash_of "$said")" = "${want[8]}" ] && grep -q 'resumed after step 2' <<<"$said"
    result $? "a step that one node lacks, or has torn, is fallen back from ($damage)" "$said"
done

# Of two tries at a step, the disks have one each.
restore
rm -r "$folder"/node*/out/checkpoints/step-00000004
rm -r "$folder"/node1/out/checkpoints/*
cp -r "$folder"/kept/* "$folder"
(cd "$folder/node1/$p" && mv apart-* apart-0123456789abcdef)
said=$(nodes 6 2 --zero 3 --steps 8 --resume auto)
[ "$(hash_of "$said")" = "${want[8]}" ] && grep -q 'resumed after step 2' <<<"$said"
result $? "files of two tries at one step are not mixed" "$said"

restore
rm "$folder/node0/$p"/*.state
truncate -s 10 "$folder"/node[12]/$p/*.state
said=$(nodes 6 2 --zero 3 --steps 8 --resume auto)
[ "$(hash_of "$said")" = "${want[8]}" ] &&
    grep -q '00000004: .*(rank 2: .*rank-0002.state.* 10 bytes' <<<"$said"
result $? "no node can read a file: what the first rank that has one finds is said" "$said"

restore
mkdir "$folder/node1/out/checkpoints/writing"
touch "$folder/node1/out/checkpoints/writing/precious"
said=$(nodes 6 2 --zero 3 --steps 8 --resume auto)
status=$?
[ $status = 2 ] && error_is 'E_CHECKPOINT_IN_THE_WAY node*writing'
result $? "what is in the way on one node is named, with the node" "status $status: $said"

# One node's disk is full: nothing has its name on any, and a signal ends the wait for room.
restore
FULL=1 nodes 6 2 --zero 3 --steps 6 --save-every 1 --resume auto >"$folder/said" &
pids=$!
for ((i = 0; i < 200; i++)); do ! grep -q 'trying again' "$folder/said" || break; sleep 0.1; done
kill_one TERM '--steps 6'
wait $pids
status=$?
pids=
said=$(cat "$folder/said")
[ $status != 0 ] && grep -q "step 5 is not saved: node .*No space left" <<<"$said" &&
    grep -q 'step 6 is not saved' <<<"$said" && [ -z "$(files 00000005)$(files 00000006)" ] &&
    [ "$(files 00000004 | wc -w)" = 6 ]
result $? "a node without room: said, with the node, and no step is there in part" \
    "status $status: $said $(find "$folder"/node*)"
said=$(nodes 6 2 --zero 3 --steps 8 --resume auto)
[ "$(hash_of "$said")" = "${want[8]}" ] && grep -q 'resumed after step 4' <<<"$said"
result $? "and with room the run goes on from the step before" "$said"

# ---- pruning, locks, kills ----

fresh
said=$(nodes 6 2 --zero 3 --steps 8 --keep 1)
left=("$folder"/node*/out/checkpoints/*)
[ ${#left[@]} = 3 ] && [ "$(files 00000008 | wc -w)" = 6 ]
result $? "each node prunes its own" "$said $(ls "$folder"/node*/out/checkpoints)"

fresh
"$train" "${small[@]}" --steps 100000 --save-every 0 --ranks 1 --out "$folder/node1/out" \
    >/dev/null 2>&1 &
pids=$!
for ((i = 0; i < 100; i++)); do [ ! -s "$folder/node1/out/lock" ] || break; sleep 0.05; done
said=$(nodes 4 2 --zero 3 --global-batch 4 --steps 4)
status=$?
kill -9 $pids
wait $pids 2>/dev/null
pids=
[ $status = 2 ] && error_is "E_FOLDER_BUSY --out out: process" &&
    [ ! -e "$folder/node0/out/lock" ]
result $? "another run on one node's disk is seen" "status $status: $said"

fresh
killed=0
for ((i = 0; i < 30 && killed < 4; i++)); do
    nodes 6 2 --zero 3 --steps 150 --keep 1 --resume auto >"$folder/said" &
    pids=$!
    sleep 0.$((RANDOM % 9 + 1))
    kill_one KILL '--steps 150'
    wait $pids
    pids=
done
said=$(nodes 6 2 --zero 3 --steps 150 --keep 1 --resume auto)
one=$("$train" "${small[@]}" --zero 3 --ranks 6 --steps 150 --out "$folder/threads" 2>&1)
[ $killed -gt 2 ] && [ -n "$(hash_of "$said")" ] &&
    [ "$(hash_of "$said")" = "$(hash_of "$one")" ]
result $? "killed at some moments: the weights of a run that was not" "$killed kills: $said"

# ---- the default batch ----

for grid in "6 1" "6 2" "4 4"; do
    ranks=${grid% *} tp=${grid#* }
    said=$("$train" "${here[@]}" --data random --vocab 300 --layers 2 --channels 32 --heads 4 \
        --seq-len 16 --batch 3 --threads 1 --ranks $ranks --tp $tp --zero 1 --steps 1 \
        --val-batches 1 --out "$folder/batch" 2>&1)
    grep -qE "global.batch.*[^0-9]$((3 * ranks / tp))([^0-9]|$)" "$folder/batch/config.json"
    result $? "--global-batch is --batch times data-parallel ranks: $ranks ranks, --tp $tp" \
        "$said $(cat "$folder/batch/config.json")"
    rm -rf "$folder/batch"
done

echo "1..$count"
exit $failed
