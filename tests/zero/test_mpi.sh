#!/bin/bash
# Ranks as processes: the bits of thread ranks at every stage, the traffic that MPI itself sees, and
# what happens to a job when a rank dies, stops, is told to end, or does not do as the others do.
# Speaks TAP.
#
# TRAIN names the program (default ./train); the helpers lie beside it in tests/. KILLS (default 3)
# is how often a rank is killed; with ONLY=kills that is all that is done.
set -u
train=$(realpath "${TRAIN:-./train}")
helpers=$(dirname "$train")/tests
[ -d "$helpers" ] || helpers=build/release/tests
if ! command -v mpirun >/dev/null || [ ! -x "$helpers/mpi_ranks" ]; then
    echo "ok 1 # SKIP ranks as processes: no MPI here (libopenmpi-dev, openmpi-bin)"
    echo "1..1"
    exit 0
fi
folder=$(mktemp -d)
pids= # of the job at hand
clean_up() {
    for p in $pids; do kill -9 "$p" 2>/dev/null; done
    rm -rf "$folder"
}
trap clean_up EXIT
export XDG_CACHE_HOME=$folder/cache
. "${BASH_SOURCE%/*}/../lib/mpi_env.sh"
. "${BASH_SOURCE%/*}/../lib/tap.sh"

job() { # job RANKS PROGRAM ARGUMENT...
    timeout -k 5 120 mpirun -np "$@" 2>&1
}

model=(--data random --vocab 50257 --layers 2 --channels 64 --heads 2 --seq-len 24 --batch 1
    --threads 1 --log-every 1 --val-batches 1 --no-tensorboard)

# What two runs must have in common, to the last bit: hash, losses, norms.
bits() { # bits OUT SAID
    grep '^weights hash' <<<"$2"
    sed -n 's/.*\("step":.*"grad_norm":[^,]*\),.*/\1/p' "$1/log.jsonl"
}

# ---- jobs that train on and on ----

alive() { # alive PID: runs, or is stopped; a zombie does neither
    [[ $(ps -o stat= -p "$1") == [^Z]* ]]
}

# Starts a job that trains on and on; sets mpirun and pids, and waits for its first steps.
begin_job() { # begin_job RANKS ARGUMENT...
    rm -rf "$folder/job"
    mpirun -np "$1" "$train" "${model[@]}" --steps 100000 --out "$folder/job" "${@:2}" \
        >"$folder/said" 2>&1 &
    mpirun=$!
    for _ in $(seq 300); do
        [ "$(wc -l 2>/dev/null <"$folder/job/log.jsonl")" -ge 2 ] 2>/dev/null && break
        sleep 0.1
    done
    pids=$(pgrep -P $mpirun)
}

process_of() { # process_of RANK
    local p
    for p in $pids; do
        tr '\0' '\n' <"/proc/$p/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$p"
    done
}

# Waits at most SECONDS for the job to end; sets status (gone: every rank is).
end_of_job() { # end_of_job SECONDS
    local p i
    gone=no
    for ((i = 0; i < $1 * 10; i++)); do
        gone=yes
        for p in $pids; do alive "$p" && gone=no; done
        [ $gone = yes ] && { [ "${2:-}" ] || ! alive $mpirun; } && break
        sleep 0.1
    done
    ranks_gone=$gone
    alive $mpirun && gone=no
    for p in $pids; do alive "$p" && kill -9 "$p"; done
    [ "${2:-}" ] && kill -9 $mpirun 2>/dev/null
    wait $mpirun 2>/dev/null
    status=$?
    pids=
}

# fault_20: killed at any moment.
kills() { # kills TIMES
    local k victim moment
    for ((k = 0; k < $1; k++)); do
        victim=$((RANDOM % 4)) moment=0.$((RANDOM % 90 + 10))
        begin_job 4 --zero $((k % 4)) --save-every 3
        sleep $moment
        kill -9 "$(process_of $victim)"
        end_of_job 5
        [ $gone = yes ] && [ $status != 0 ] && grep -q "rank $victim\b" "$folder/said"
        result $? "fault_20: rank $victim killed, $moment s, stage $((k % 4)): all gone, named" \
            "gone $gone, status $status: $(tail -n 20 "$folder/said")"
    done
}

if [ "${ONLY:-}" = kills ]; then
    kills "${KILLS:-20}"
    echo "1..$count"
    exit $failed
fi

# ---- the collectives, and whole runs ----

for np in 2 3 4; do
    for how in collectives staged; do
        said=$(job $np "$helpers/mpi_ranks" $how)
        [ $? = 0 ] && [ "$(grep -c '^rank [0-9]*: [0-9]* comparisons$' <<<"$said")" = $np ]
        result $? "every collective between $np processes, in many sizes ($how)" "$said"
    done
done

for np in 2 3 4; do
    for dtype in fp32 bf16; do
        said=$("$train" "${model[@]}" --steps 4 --dtype $dtype --zero 1 --ranks $np \
            --out "$folder/threads" 2>&1)
        want=$(bits "$folder/threads" "$said")
        rm -rf "$folder/threads"
        [ "$(wc -l <<<"$want")" = 5 ]
        result $? "$np thread ranks, $dtype: four steps to compare with" "$said"
        for stage in 0 1 2 3; do
            out=$folder/processes
            said=$(job $np "$train" "${model[@]}" --steps 4 --dtype $dtype --zero $stage \
                --comm-chunk 100000 --out "$out")
            status=$?
            [ $status = 0 ] && [ "$(bits "$out" "$said")" = "$want" ]
            result $? "$np processes, stage $stage, $dtype: hash, losses, norms of thread ranks" \
                "status $status: $(tail -n 5 <<<"$said")"
            rm -rf "$out"
        done
    done
done

# ---- traffic ----

# With calls compared, each rank also sends its call, 24 bytes, to every other.
for stage in 0 1 2 3; do
    for check in --no-check-comm --check-comm; do
        out=$folder/traffic
        said=$(PMPI_COUNT=$folder/sent job 3 -x LD_PRELOAD="$(realpath "$helpers/pmpi_count.so")" \
            "$train" "${model[@]}" --steps 2 --zero $stage $check --out "$out")
        own=$(sed -n 's/.*"sent_bytes":{\(.*\)}}/\1/p' "$out/log.jsonl" | tr ',' '\n' |
            awk -F: '{ sum += $2 } END { printf "%.0f\n", sum }')
        seen=$(cat "$folder"/sent.[0-2])
        if [ $check = --no-check-comm ]; then
            [ "$own" -gt 1000000 ] && [ "$seen" = "$own"$'\n'"$own"$'\n'"$own" ]
            result $? "stage $stage: MPI sent what the program counted, to the byte" \
                "counted $own, sent ${seen//$'\n'/ }"
        else
            extra=$(($(head -n 1 <<<"$seen") - own))
            [ $extra -gt 0 ] && [ $((extra % 48)) = 0 ] && [ $extra -lt 10000 ]
            result $? "stage $stage: comparing calls adds 24 bytes a call and rank" "added $extra"
        fi
        rm -rf "$out" "$folder"/sent.*
    done
done

# ---- the launcher's world, and what is refused ----

# refused NAME PATTERN ARGUMENT...: told once by all processes together, status 2, no --out folder.
refused() {
    local name=$1 pattern=$2 said status
    shift 2
    said=$(job 3 "$train" --out "$folder/refused" "$@")
    status=$?
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        grep -q "^train: .*$pattern" <<<"$said" && [ ! -e "$folder/refused" ]
    result $? "refused once: $name" "status $status: $said"
}
refused "--ranks under a launcher" '--ranks 3: .*launcher' "${model[@]}" --ranks 3
refused "a mistyped flag" '--chanels' "${model[@]}" --chanels 3
refused "data that is not there" "$folder/none" --data "$folder/none"
refused "too little memory" '--device-mem' "${model[@]}" --device-mem 1M
said=$(OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 timeout -k 5 60 "$train" "${model[@]}" \
    --out "$folder/refused" 2>&1)
status=$?
[ $status = 2 ] && grep -q '^train: .*started 4 processes, but MPI knows of 1' <<<"$said"
result $? "refused: a launcher that MPI does not know" "status $status: $said"

said=$(job 3 "$train" "${model[@]}" --steps 1 --zero 3 --plan)
[ "$(grep -c '^memory' <<<"$said")" = 1 ] && grep -q '^ *communication' <<<"$said"
result $? "one process tells the plan" "$said"

# Text is prepared by one process, and all find it.
for i in $(seq 300); do
    echo "In line $i the quick brown fox number $((i * 7919 % 1000)) jumps over the lazy dog."
done >"$folder/text.txt"
text=(--data "$folder/text.txt" --tokenizer byte --layers 2 --heads 2 --channels 32 --seq-len 32
    --batch 2 --threads 1 --log-every 0)
said=$(job 3 "$train" "${text[@]}" --steps 3 --out "$folder/text")
status=$?
[ $status = 0 ] && [ "$(grep -c '^tokens: ' <<<"$said")" = 1 ] &&
    [ "$(grep -c '^weights hash' <<<"$said")" = 1 ]
result $? "one process prepares the text and tells it" "status $status: $said"

# ---- faults ----

kills "${KILLS:-3}"

# Where the launcher gives ranks time to save, they still end by themselves.
export OMPI_MCA_odls_base_sigkill_timeout=30
begin_job 4 --zero 3
kill -9 "$(process_of 3)"
end_of_job 5 ranks
[ $ranks_gone = yes ]
result $? "fault_20: the others do not wait for the launcher's own time-out" \
    "$(tail -n 20 "$folder/said")"
unset {OMPI,PRTE}_MCA_odls_base_sigkill_timeout

# Stopped, in each kind of collective.
for stage in 0 1 2 3; do
    victim=$((RANDOM % 4))
    begin_job 4 --zero $stage --comm-timeout 2
    kill -STOP "$(process_of $victim)"
    end_of_job 8
    [ $gone = yes ] && [ $status = 2 ] && grep -q \
        "^train: rank [0-9]: collective [0-9]*, [a-z_]* of .*: no sign of rank $victim for 2 s" \
        "$folder/said"
    result $? "fault_20: rank $victim stopped at stage $stage: named after --comm-timeout" \
        "gone $gone, status $status: $(tail -n 20 "$folder/said")"
done

# The kinds one by one: all_gather, reduce_scatter, all_reduce, broadcast, barrier.
for kind in 0 1 2 3 4; do
    said=$(job 3 "$helpers/mpi_ranks" stop $kind)
    status=$?
    # Open MPI 4.1's own mpirun may crash when it has ended a job; the job has ended as it should.
    [ $status = 139 ] && grep -q 'mpirun(+' <<<"$said" && status=2
    [ $status = 2 ] && ! grep -q 'rank [02]: went on' <<<"$said" &&
        [ "$(grep -c '^train: ' <<<"$said")" = 1 ] && grep -q \
        '^train: rank [02]: collective 1, .*: no sign of rank 1 for 2 s' <<<"$said"
    result $? "fault_20: rank 1 stopped before a collective of kind $kind: named" \
        "status $status: $said"
done

# fault_21: told to end, one rank, or mpirun, which gives its ranks some seconds to save (Open MPI 4
# and 5 have a variable each).
export {OMPI,PRTE}_MCA_odls_base_sigkill_timeout=15
for whom in 0 2 mpirun; do
    begin_job 3 --zero 2
    if [ $whom = mpirun ]; then kill -TERM $mpirun; else kill -TERM "$(process_of $whom)"; fi
    end_of_job 30
    saved=$(ls "$folder/job/checkpoints")
    [ $gone = yes ] && [[ $saved == step-* ]] && [ "$(wc -l <<<"$saved")" = 1 ] &&
        { [ $whom = mpirun ] || [ $status = 0 ]; }
    result $? "fault_21: SIGTERM to ${whom/#[0-9]/rank $whom}: all save the same step and end" \
        "gone $gone, status $status, $saved: $(tail -n 20 "$folder/said")"
    steps=$((10#${saved#step-} + 2))
    said=$(job 3 "$train" --steps $steps --out "$folder/job" --resume auto)
    want=$("$train" "${model[@]}" --ranks 3 --zero 2 --steps $steps --out "$folder/whole" 2>&1)
    [ "$(grep '^weights hash' <<<"$said")" = "$(grep '^weights hash' <<<"$want")" ] &&
        grep -q '^weights hash' <<<"$want"
    result $? "fault_21: resumed after that, the run that never stopped" "$said"
    rm -rf "$folder/whole"
done
unset {OMPI,PRTE}_MCA_odls_base_sigkill_timeout

# fault_10: stage, and which collective of its second step rank 1 leaves out.
for skip in "0 1" "1 2" "2 4" "3 5"; do
    # shellcheck disable=SC2086
    said=$(job 3 "$helpers/mpi_ranks" skip $skip)
    status=$?
    [ $status = 2 ] && grep -q '^train: .*out of step: .*rank 1 at' <<<"$said" &&
        [ "$(grep -c '^train: ' <<<"$said")" = 1 ] && ! grep -q 'step [2-9]' <<<"$said"
    result $? "fault_10: rank 1 skips a collective (stage, which: $skip): named within the step" \
        "status $status: $said"
done

echo "1..$count"
exit $failed
