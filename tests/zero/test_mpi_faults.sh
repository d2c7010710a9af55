#!/bin/bash
# What happens to a job of processes when a rank dies, stops, is told to end, or does not do as the
# others do. Speaks TAP. It computes for 20 of its 140 s: ranks have seconds to be noticed, which
# they are beside other work, too.
#
# TRAIN names the program (default ./train); the helpers lie beside it in tests/. KILLS (default 3)
# is how often a rank is killed; with ONLY=kills that is all that is done.
set -u
. "${BASH_SOURCE%/*}/../lib/mpi_jobs.sh"

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

# Waits at most SECONDS for the job to end; sets gone: whether every rank is, and mpirun; and status,
# mpirun's. With `ranks` mpirun is not waited for. Open MPI 4.1's mpirun may wait for itself for ever
# once all its ranks are gone: it is killed then, and counts as one that ended with the ranks' 2.
end_of_job() { # end_of_job SECONDS [ranks]
    local p i wait_for=${2:-all}
    gone=no
    for ((i = 0; i < $1 * 10; i++)); do
        gone=yes
        for p in $pids; do alive "$p" && gone=no; done
        [ $gone = yes ] && { [ "$wait_for" = ranks ] || ! alive $mpirun; } && break
        sleep 0.1
    done
    for p in $pids; do alive "$p" && kill -9 "$p"; done
    if [ "$wait_for" = ranks ] || ! alive $mpirun; then
        kill -9 $mpirun 2>/dev/null
        wait $mpirun 2>/dev/null
        status=$?
    else
        echo "# mpirun waits for itself, all ranks gone: $gone"
        kill -9 $mpirun
        wait $mpirun 2>/dev/null
        status=2
    fi
    pids=
}

# In turn, four ranks each: the stages, and what else ranks exchange.
grids=("--zero 0" "--zero 1" "--zero 2" "--zero 3"
    "--zero 3 --tp 2" "--zero 2 --tp 2 --sequence-parallel"
    "--zero 1 --tp 2 --layers 4 --recompute block --partition-activations"
    "--zero 2 --zero-shard-size 2"
    "--zero 3 --zero-hpz-partition-size 2 --batch 2 --global-batch 16"
    "--zero 3 --zero-quantized-weights --zero-quantized-gradients --node-size 2"
    "--zero 1 --pp 2 --tie off --global-batch 8"
    "--zero 3 --pp 2 --tp 2 --tie off --global-batch 4")

# fault_20: killed at any moment.
kills() { # kills TIMES
    local k victim moment grid
    for ((k = 0; k < $1; k++)); do
        victim=$((RANDOM % 4)) moment=0.$((RANDOM % 90 + 10)) grid=${grids[k % ${#grids[@]}]}
        # shellcheck disable=SC2086 # words
        begin_job 4 $grid --save-every 3
        sleep $moment
        kill -9 "$(process_of $victim)"
        end_of_job 5
        [ $gone = yes ] && [ $status != 0 ] && grep -q "rank $victim\b" "$folder/said"
        result $? "fault_20: rank $victim killed, $moment s, $grid: all gone, named" \
            "gone $gone, status $status: $(tail -n 20 "$folder/said")"
    done
}

if [ "${ONLY:-}" = kills ]; then
    kills "${KILLS:-20}"
    echo "1..$count"
    exit $failed
fi

# ---- faults ----

kills "${KILLS:-3}"

# Where the launcher gives ranks time to save, they still end by themselves.
export OMPI_MCA_odls_base_sigkill_timeout=30
begin_job 4 --zero 3
kill -9 "$(process_of 3)"
end_of_job 5 ranks
[ $gone = yes ]
result $? "fault_20: the others do not wait for the launcher's own time-out" \
    "$(tail -n 20 "$folder/said")"
unset OMPI_MCA_odls_base_sigkill_timeout

# Stopped, in each kind of collective.
for stage in 0 1 2 3; do
    victim=$((RANDOM % 4))
    begin_job 4 --zero $stage --comm-timeout 2
    kill -STOP "$(process_of $victim)"
    end_of_job 8
    [ $gone = yes ] && [ $status = 2 ] &&
        error_is "E_RANK_SILENT collective *rank $victim for 2 s" "$(<"$folder/said")"
    result $? "fault_20: rank $victim stopped at stage $stage: named after --comm-timeout" \
        "gone $gone, status $status: $(tail -n 20 "$folder/said")"
done

# Stopped before there is any: while MPI starts, and while processes agree.
for moment in 0 0.3; do
    rm -rf "$folder/job"
    mpirun -np 4 "$train" "${model[@]}" --tp 2 --steps 100000 --comm-timeout 2 \
        --out "$folder/job" >"$folder/said" 2>&1 &
    mpirun=$!
    for _ in $(seq 200); do
        pids=$(pgrep -P $mpirun)
        [ "$(wc -w <<<"$pids")" = 4 ] && [ -n "$(process_of 2)" ] && break
        sleep 0.02
    done
    sleep $moment
    kill -STOP "$(process_of 2)"
    end_of_job 12
    [ $status = 139 ] && grep -q 'no sign for' "$folder/said" && status=2 # mpirun's own, see below
    [ $gone = yes ] && [ $status = 2 ] && error_is 'E_RANK_SILENT of rank 2 ' "$(<"$folder/said")"
    result $? "fault_20: rank 2 stopped $moment s after its start: named after --comm-timeout" \
        "gone $gone, status $status: $(tail -n 20 "$folder/said")"
done

# All of them stopped, and later let go on, as a container may be.
begin_job 3 --zero 2 --comm-timeout 1
kill -STOP $pids
sleep 2.5
kill -CONT $pids
sleep 1.5
alive "$(process_of 0)" && ! grep -q '^train: ' "$folder/said"
result $? "a job that was suspended longer than --comm-timeout goes on" \
    "$(tail -n 5 "$folder/said")"
kill -TERM "$(process_of 0)"
end_of_job 20

# With replicas ranks wait in two groups: for the victim, or for one that waits for it.
for stage in 1 3; do
    victim=$((RANDOM % 4))
    begin_job 4 --zero $stage --zero-shard-size 2 --comm-timeout 2
    kill -STOP "$(process_of $victim)"
    end_of_job 12
    [ $gone = yes ] && [ $status = 2 ] &&
        error_is "E_RANK_SILENT collective *rank $victim for 2 s" "$(<"$folder/said")"
    result $? "fault_20: rank $victim stopped, stage $stage with replicas: named" \
        "gone $gone, status $status: $(tail -n 20 "$folder/said")"
    begin_job 4 --zero $stage --zero-shard-size 2
    kill -9 "$(process_of $victim)"
    end_of_job 5
    [ $gone = yes ] && [ $status != 0 ] && grep -q "rank $victim\b" "$folder/said"
    result $? "fault_20: rank $victim killed, stage $stage with replicas: all gone, named" \
        "gone $gone, status $status: $(tail -n 20 "$folder/said")"
done

# Inside of each exchange, between two of its messages, a rank that is killed and one that stops.
# The line names no other rank, comes within 5 s of it, or of the time-out, and ends the job.
stopped_in() { # stopped_in EXCHANGE HOW VICTIM SECONDS; status 0: as it should; prints what was
    local said status took named
    said=$(job 4 "$helpers/mpi_stops" "$1" "$2" "$3")
    status=$?
    took=$(sed -n "s/^rank $3: in [a-z_]* of [a-z]* at //p" <<<"$said" |
        awk -v now="$EPOCHREALTIME" '{ printf "%.1f", now - $1 }')
    echo "status $status, after $took s: $said"
    # Open MPI 5's launcher may end the others first; then its own line names the rank.
    named=$(sed -n 's/^train: .* of rank \([0-9 ]*\).*/\1/p
        s/^.* noticed that process rank \([0-9]*\) .*/\1/p' <<<"$said" | tr -d ' ' | sort -u)
    [ $status != 0 ] && [ "$named" = "$3" ] &&
        awk -v t="${took:-99}" -v most="$4" 'BEGIN { exit t > most }'
}
turn=$RANDOM
for exchange in $("$helpers/mpi_stops" list); do
    victim=$((turn++ % 4))
    other=$((3 - victim))
    case $exchange in # of two stages, ranks 0 and 1, and 2 and 3
    stage-before) victim=$((victim % 2 + 2)) other=$((5 - victim)) ;;
    stage-behind) victim=$((victim % 2)) other=$((1 - victim)) ;;
    esac
    stopped_in "$exchange" kill $victim 5 >"$folder/killed" &
    stopped_in "$exchange" stop $other 7 >"$folder/stopped"
    result $? "fault_20: rank $other stopped in $exchange: named" "$(<"$folder/stopped")"
    wait $!
    result $? "fault_20: rank $victim killed in $exchange: named within 5 s" "$(<"$folder/killed")"
done

# The kinds one by one: all_gather, reduce_scatter, all_reduce, all_to_all, sendrecv.
for kind in 0 1 2 3 4; do
    said=$(job 3 "$helpers/mpi_ranks" stop $kind)
    status=$?
    # Open MPI 4.1's own mpirun may crash when it has ended a job; the job has ended as it should.
    [ $status = 139 ] && grep -q 'mpirun(+' <<<"$said" && status=2
    [ $status = 2 ] && ! grep -q 'rank [02]: went on' <<<"$said" &&
        [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        error_is 'E_RANK_SILENT collective 1*rank 1 for 2 s'
    result $? "fault_20: rank 1 stopped before a collective of kind $kind: named" \
        "status $status: $said"
done

# fault_21: told to end, one rank, or mpirun. That of Open MPI 4 gives its ranks as many seconds to
# save as it is asked for; that of 5 cannot be asked, and kills them within one.
export OMPI_MCA_odls_base_sigkill_timeout=5
whoms="0 2 mpirun"
if ! mpirun --version | grep -q 'Open MPI) 4'; then
    whoms="0 2"
    begin_job 3 --zero 2
    kill -TERM $mpirun
    end_of_job 20
    saved=$(ls "$folder/job/checkpoints" 2>&1)
    said=
    [ $gone = yes ] && { [[ $saved != step-* ]] || said=$(job 3 "$train" --out "$folder/job" \
        --steps $((10#${saved#step-} + 1)) --resume auto); }
    result $? "fault_21: SIGTERM to mpirun: all end, and what is saved can be loaded" \
        "gone $gone, status $status, $saved: $said$(tail -n 20 "$folder/said")"
fi
for whom in $whoms; do
    begin_job 3 --zero 2
    if [ $whom = mpirun ]; then kill -TERM $mpirun; else kill -TERM "$(process_of $whom)"; fi
    end_of_job 20
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
unset OMPI_MCA_odls_base_sigkill_timeout

# fault_10: stage, and which collective of its second step rank 1 leaves out.
for skip in "0 1" "1 2" "2 4" "3 5"; do
    # shellcheck disable=SC2086
    said=$(job 3 "$helpers/mpi_ranks" skip $skip)
    status=$?
    [ $status = 2 ] && error_is 'E_COLLECTIVES_DIFFER rank 1 at' &&
        [ "$(grep -c '^train: ' <<<"$said")" = 1 ] && ! grep -q 'step [2-9]' <<<"$said"
    result $? "fault_10: rank 1 skips a collective (stage, which: $skip): named within the step" \
        "status $status: $said"
done

echo "1..$count"
exit $failed
