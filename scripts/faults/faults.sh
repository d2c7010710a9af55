#!/bin/bash
# A fault at every call: runs the real ./train over and over, and each time the next call of a class
# fails, is done by half, or is the process's last (tests/lib/fault.c). What was promised is then
# looked for: the run ends with status 0 or 2, with one line at most, by no signal, and in time; and
# ./train --resume auto comes from it to the weights of a run without a fault, from the newest
# checkpoint that was saved.
#
#   scripts/faults/faults.sh [CLASS ...]      default: all of them; two at a time, hours (MOST=20: minutes)
#
# Calls of CUDA, cuBLASLt and NCCL are made to fail in the simulator: TRAIN=build/cusim/train
# SCENARIOS="gpu gpu3 nccl3 gpu-nvme" scripts/faults/faults.sh cuda (tests/cusim/faults.cc).
#
# SCENARIOS: which runs, by name (tests/lib/trial.sh); MOST: at most so many faults of a kind in
# each (0: all); KINDS="EIO kill ...": what is done to them (tests/lib/fault.c); WORKERS: so many at
# a time (2); LIMIT: seconds after which a run hangs (25; more where others use the machine); TRAIN:
# the program. Then a table, the calls of our objects that no fault reached, and
# the last line: `N faults: 0 lost, 0 wrong, 0 hangs, 0 signals`. Each that went wrong is printed
# with the command that repeats it. Status 0: none did. Needs nm, objdump and addr2line (binutils).
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/trial.sh

ALL=(open read write fsync rename unlink mkdir close seek truncate stat statvfs dir lock fd mmap
    malloc thread io_uring mpi cuda file)
SCENARIOS=${SCENARIOS:-one threads tensor stages wires load load3 async prune prepare tokenizer
    encode pattern lists packed import export adapters nvme mpirun mpirun-tensor}
MOST=${MOST:-0}
WORKERS=${WORKERS:-2}
classes=("$@")
[ $# -gt 0 ] || classes=("${ALL[@]}")

# What happens to a call of that class.
kinds_of() { # kinds_of CLASS
    case ${KINDS:+all}$1 in
    all*) echo "$KINDS" ;;
    open) echo EACCES EMFILE ENOSPC ;;
    read) echo EIO tear ;;
    write) echo ENOSPC EIO tear torn:ENOSPC kill-torn ;;
    fsync) echo EIO ENOSPC ;;
    rename) echo EIO EINVAL ;;
    unlink | stat | dir) echo EACCES EIO ;;
    mkdir) echo ENOSPC EACCES ;;
    truncate) echo EIO ENOSPC ;;
    lock) echo EAGAIN ENOLCK ;;
    fd) echo EMFILE ;;
    mmap | malloc) echo ENOMEM ;;
    thread) echo EAGAIN kill ;;
    io_uring) echo EIO ENOMEM EAGAIN tear kill ;;
    cuda) echo EIO ENOMEM ENODEV kill ;;
    mpi) echo EIO kill kill-after delay:200 ;;
    file) echo kill kill-after ;;
    *) echo EIO ;;
    esac
}

# Where a class has no call, or the promise is another: some are swept in some scenarios alone.
has_scenario() { # has_scenario CLASS SCENARIO
    case $1/$2 in
    io_uring/nvme | mpi/mpirun* | cuda/gpu* | cuda/nccl*) return 0 ;;
    io_uring/* | mpi/* | cuda/*) return 1 ;;
    */mpirun*) [ "$1" = file ] || [ "$1" = write ] || [ "$1" = fsync ] || [ "$1" = open ] ;;
    esac
}

# ---- one fault ----

# Which rank it happens to: of processes alone.
victim_of() { # victim_of N
    [ ${#launch[@]} = 0 ] || echo "FAULT_RANK=$(($1 % ranks))"
}

# Sets verdict and detail by how the run with the fault ended.
judge_end() { # judge_end WORK DO
    local lines hash
    # Of processes, others may add that one is gone.
    lines=$(grep -a '^train: ' "$1/said" | grep -avc 'lost the process of rank')
    hash=$(hash_in "$1/said")
    verdict=ok detail=
    if [ "$seconds" -ge $((LIMIT * 1000000)) ]; then
        verdict=hang detail="the run with the fault"
    elif [[ $2 == kill* ]] || [ "$class" = mpi ]; then
        : # its end is the fault's
    elif [ $status -gt 128 ] || grep -aq 'exited on signal' "$1/said"; then
        verdict=signal
        detail="status $status: $(grep -a -m 1 -E 'check failed|signal' "$1/said")"
    elif [ $status != 0 ] && [ $status != 2 ]; then
        verdict=wrong detail="status $status"
    elif [ "$lines" -gt 1 ]; then
        verdict=wrong detail="$lines lines"
    elif [ $status = 0 ] && [ "$hash" ] && [ "$hash" != "$reference" ]; then
        verdict=wrong detail="weights $hash, not $reference, and status 0"
    elif [ $status = 2 ] && [ "$lines" = 0 ] &&
        ! grep -aqE ' (v?f?printf|f?puts?|fflush) ' "$1/log"; then
        verdict=wrong detail="status 2 without a line"
    fi
}

# One fault and what follows. Status 1: there were not that many calls.
try() { # try WORK CLASS SCENARIO DO N; adds a line to $work.results
    local work=$1 class=$2 name=$3 what=$4 n=$5 promised
    fill_work "$work" "$name"
    run_in "$work" LD_PRELOAD="$libfault" FAULT_LOG="$work/log" FAULT_CLASS="$class" FAULT_AT="$n" \
        FAULT_DO="$what" FAULT_HURRY=100 $(victim_of "$n") -- --steps $steps "${resume[@]}"
    grep -E '^site ' "$work/log" 2>/dev/null | awk '{ print $2, $3 }' >>"$folder/hit.$BASHPID"
    grep -aq '^fault ' "$work/log" 2>/dev/null || return 1
    grep '^fault ' "$work/log" | awk '{ print $5, $4 }' >>"$folder/faulted.$BASHPID"
    judge_end "$work" "$what"
    check_export "$work" "$name"
    promised_by "$work/out/log.jsonl" "$work/said"
    local first=$verdict why=$detail call
    call=$(awk '/^fault / { print $4; exit }' "$work/log")
    cp "$work/said" "$work.said"
    recover_in "$work"
    check_export "$work" "$name"
    [ "$first" = ok ] || verdict=$first detail=$why
    echo "$class $name $what $n $verdict $call $detail" >>"$work.results"
    [ $verdict = ok ] && return
    echo "$verdict: $class $n ($call) $what in $name: $detail"
    echo "    AT=$n DO=$what SCENARIOS=$name scripts/faults/faults.sh $class"
    return 0
}

# Every WORKERS-th of all calls, from the worker's own, until there are no more.
sweep() { # sweep WORKER CLASS SCENARIO DO
    local n missed=0
    for ((n = 1 + $1; missed < 2; n += WORKERS)); do
        try "$folder/w$1" "$2" "$3" "$4" "$n" || missed=$((missed + 1))
    done
}

# Every WORKERS-th of the faults in `sampled`, from the worker's own.
try_sampled() { # try_sampled WORKER SCENARIO
    local i class what n
    for ((i = $1; i < ${#sampled[@]}; i += WORKERS)); do
        read -r class what n <<<"${sampled[i]}"
        try "$folder/w$1" "$class" "$2" "$what" "$n"
    done
}

# ---- all ----

# How many calls of a class a run without a fault makes.
count_calls() { # count_calls CLASS SCENARIO
    local pattern=$1
    [ "$1" != file ] || pattern="(open|read|write|fsync|rename|unlink|mkdir|close|seek|truncate)"
    [ "$1" != file ] || pattern="(${pattern:1:-1}|stat|statvfs|dir|lock|fd)"
    awk -v p="^$pattern\$" '$1 == "calls" && $2 ~ p { n += $3 } END { print n + 0 }' \
        "$folder/counts-$2"
}

sweep_scenario() { # sweep_scenario SCENARIO
    local class what calls n w
    run_references "$1" || {
        echo "faults: $1 fails without a fault: $(tail -n 1 "$folder/reference-$1/said")"
        exit 2
    }
    fill_work "$folder/count" "$1"
    run_in "$folder/count" LD_PRELOAD="$libfault" FAULT_LOG="$folder/counts-$1" $(victim_of 0) -- \
        --steps $steps "${resume[@]}"
    [ "$(hash_in "$folder/count/said")" = "$reference" ] || {
        echo "faults: $1 is another run with libfault.so: $(tail -n 1 "$folder/count/said")"
        exit 2
    }
    awk '/^site / { print $2, $3 }' "$folder/counts-$1" >>"$folder/hit.count"
    sampled=()
    for class in "${classes[@]}"; do
        has_scenario "$class" "$1" || continue
        calls=$(count_calls "$class" "$1")
        for what in $(kinds_of "$class"); do
            for ((n = 1; MOST > 0 && n <= calls; n += (calls + MOST - 1) / MOST)); do
                sampled+=("$class $what $n")
            done
            for ((w = 0; MOST == 0 && w < WORKERS; w++)); do
                sweep $w "$class" "$1" "$what" &
            done
            wait
        done
    done
    for ((w = 0; w < WORKERS; w++)); do
        try_sampled $w "$1" &
    done
    wait
}

table() {
    cat "$folder"/*.results 2>/dev/null | awk '
    { key = sprintf("%-10s %-10s", $1, $2); n[key]++; bad[key, $5]++; all++; of[$5]++ }
    END {
        printf "%-10s %-10s %7s %6s %6s %6s %7s\n", "class", "scenario", "faults", "lost", "wrong",
            "hangs", "signals"
        for (k in n)
            printf "%s %7d %6d %6d %6d %7d\n", k, n[k], bad[k, "lost"], bad[k, "wrong"],
                bad[k, "hang"], bad[k, "signal"] | "sort"
        close("sort")
        printf "%d faults: %d lost, %d wrong, %d hangs, %d signals\n", all, of["lost"],
            of["wrong"], of["hang"], of["signal"]
        exit !all || all != of["ok"]
    }'
}

# The places in our objects that call what libfault.so stands in for, and were reached by no run.
list_unreached() {
    cat "$folder"/hit.* | sort -u >"$folder/hit"
    nm -D --defined-only "$libfault" | awk '{ print $3 }' >"$folder/names"
    objdump -d --no-show-raw-insn "$train" | awk -v names="$folder/names" -v hit="$folder/hit" '
    BEGIN {
        while ((getline line < names) > 0) name[line] = 1
        while ((getline line < hit) > 0) { split(line, part, " "); seen[part[1]] = 1 }
    }
    call { # the line after a call is where it returns to
        sub(/:.*/, "", $1)
        total++
        if (!($1 in seen)) print $1, call
        call = ""
    }
    /call .*@plt>/ {
        call = $0
        sub(/.*</, "", call)
        sub(/@.*/, "", call)
        if (!(call in name)) call = ""
    }
    END { print "total", total + 0 }' >"$folder/unreached"
    local total left
    total=$(awk '$1 == "total" { print $2 }' "$folder/unreached")
    left=$(grep -vc '^total' "$folder/unreached")
    echo "calls of our objects: $total places, $left of them in no run here:"
    grep -v '^total' "$folder/unreached" >"$folder/left"
    while read -r at _; do # the call itself
        printf '%x\n' $((0x$at - 1))
    done <"$folder/left" | addr2line -e "$train" |
        sed -E 's#^.*/((data|kernels|model|zero)/|train\.c)#\1#; s/ .*//' |
        paste -d ' ' <(awk '{ printf "    %-26s\n", $2 }' "$folder/left") - | sort | uniq -c |
        sort -k 3
}

for name in $SCENARIOS; do
    scenario "$name"
    if ! can_run "$name"; then
        echo "left out: $name, for which a library is missing"
        continue
    fi
    if [ "${AT:-}" ]; then
        run_references "$name"
        try "$folder/w0" "${classes[0]}" "$name" "$DO" "$AT" || echo "no such call"
        [ ! -e "$folder/w0.said" ] || sed 's/^/    | /' "$folder/w0.said"
        continue
    fi
    sweep_scenario "$name"
done
[ "${AT:-}" ] || list_unreached
table
