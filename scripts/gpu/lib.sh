# The report of scripts/gpu_check.sh, and the parts that it is made of. For all modes; sourced.
#
# A part is a command with a limit in seconds and a section in the report. First all parts of a mode
# are planned, then they run in that order, so that each of them has its section whatever happens:
# a part for which no time is left, or that is not reached because the build failed or somebody
# interrupted the whole, says so. The limits of a plan sum to at most LIMIT. What a part leaves of
# its own is there for those after it, up to twice their limits.
#
# GPU time is scarce and a GPU has memory for one ./train at a time, so nothing may outlive its
# part. What a part starts is known by a mark in its environment (marked.sh). At the part's end, or
# at its limit, all that bear the mark are ended: SIGTERM and a short wait, or SIGKILL at once where
# first_signal says so, as for ./train, which would save a checkpoint of gigabytes first.
#
# Read next: build.sh, then smoke.sh, tests.sh, bench.sh, offload.sh.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with gpu_check.sh and the modes

. scripts/marked.sh
. scripts/figures.sh

run_mark=$$.$(date +%s) part_mark='' timer='' parts=0 passed=0 failed=0
stop_reason='' # why the parts that are left do not run
deadline=''    # in SECONDS; empty: none
first_signal=TERM
plan_names=() plan_limits=() plan_commands=()

# ---- processes ----

interrupt() { # the trap of INT, TERM and HUP
    stop_reason="interrupted by SIG$1"
    echo "gpu_check: $stop_reason" >&2
    [ -z "$timer" ] || kill -KILL "$timer" 2>/dev/null # run_limited waits no longer
}

# run_limited SECONDS COMMAND...: its output is in $work/log. Sets status (124: it ran into the
# limit) and left: how many processes it had left behind.
run_limited() {
    local most=$1 pid
    shift
    parts=$((parts + 1)) part_mark=$run_mark.$parts left=0
    sleep "$most" >/dev/null 2>&1 &
    timer=$!
    # In a shell of its own, so that the command may be a function.
    GPU_CHECK_RUN=$run_mark GPU_CHECK_PART=$part_mark setsid bash -c '"$@"' part "$@" \
        >"$work/log" 2>&1 </dev/null &
    pid=$!
    wait -n $pid $timer # a trapped signal ends it, too
    status=$?
    if [ -n "$stop_reason" ]; then
        status=130
    elif ! kill -0 $timer 2>/dev/null; then # it was the timer that ended
        status=124
        if ! kill -0 $pid 2>/dev/null; then # wait -n passes over what has ended before it
            wait $pid
            status=$?
        fi
    else
        left=$(marked GPU_CHECK_PART "$part_mark" | wc -l)
    fi
    { # by a signal that it cannot take for its parent's, before it is another program
        kill -KILL $timer
        end_marked GPU_CHECK_PART "$part_mark" $first_signal && wait $pid $timer
    } 2>/dev/null
    timer=''
    cp "$work/log" "$work/log.$parts"
}

# ---- the report ----

say() { echo "$*" >>"$report"; }

count_result() { # count_result LIMIT: from status, sets result
    case $status in
    0) result=passed passed=$((passed + 1)) && return ;;
    77) result="not run" && return ;;
    124) result="FAILED: not done after $1 s" ;;
    130) result="FAILED: ${stop_reason:-status 130}" ;;
    137) result="FAILED: killed, status 137 (no memory?)" ;;
    *) result="FAILED: status $status" ;;
    esac
    failed=$((failed + 1))
}

# part NAME LIMIT SPARE COMMAND...: runs it for LIMIT + SPARE seconds at most and writes its
# section, with at most 60 lines of what it printed.
part() {
    local name=$1 limit=$2 most=$(($2 + $3)) begin=$SECONDS
    shift 3
    [ -z "$deadline" ] || [ "$most" -le $((deadline - SECONDS)) ] || most=$((deadline - SECONDS))
    if [ -n "$stop_reason" ] || [ "$most" -le 0 ]; then
        result="FAILED: not run: ${stop_reason:-no time was left}" failed=$((failed + 1)) status=1
        printf '\n## %s\n\n%s (limit %d s)\n' "$name" "$result" "$limit" >>"$report"
        return 1
    fi
    echo "gpu_check: $name"
    run_limited "$most" "$@"
    count_result "$most"
    {
        # shellcheck disable=SC2016
        printf '\n## %s\n\n%s, %d s (limit %d s): `%s`\n' "$name" "$result" $((SECONDS - begin)) \
            "$limit" "$*"
        [ "$left" = 0 ] || echo "It left $left processes behind, which were ended."
        printf '\n```\n'
        tail -n "${tail_lines:-60}" "$work/log"
        printf '```\n'
    } >>"$report"
    [ $status = 0 ]
}

plan() { # plan NAME LIMIT COMMAND...
    plan_names+=("$1") plan_limits+=("$2") plan_commands+=("$(printf '%q ' "${@:3}")")
}

# run_plan RUNNER: each part by `RUNNER NAME LIMIT SPARE COMMAND...`. SPARE is what is left over by
# those before, but no more than LIMIT.
run_plan() {
    local i sum=0 spare
    for i in "${!plan_limits[@]}"; do
        sum=$((sum + plan_limits[i]))
    done
    for i in "${!plan_names[@]}"; do
        spare=$((${deadline:-0} - SECONDS - sum)) sum=$((sum - plan_limits[i]))
        [ "$spare" -ge 0 ] || spare=0
        [ "$spare" -le "${plan_limits[i]}" ] || spare=${plan_limits[i]}
        eval "$1 $(printf '%q ' "${plan_names[i]}" "${plan_limits[i]}" "$spare")${plan_commands[i]}"
    done
}

# Whether the card is free again. Only what this run started is ended; others are named.
last_check() {
    local pids others
    pids=$(marked GPU_CHECK_RUN "$run_mark" | xargs)
    printf '\n## What is left\n\n' >>"$report"
    if [ -n "$pids" ]; then
        end_marked GPU_CHECK_RUN "$run_mark" KILL
        failed=$((failed + 1))
        say "FAILED: processes of this check were left, and were ended: $pids"
    else
        say "No process of this check."
    fi
    others=$(nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader 2>/dev/null)
    # shellcheck disable=SC2016
    [ -z "$others" ] || printf 'On the card:\n\n```\n%s\n```\n' "$others" >>"$report"
}

# The EXIT trap, of this shell alone: a signal that finds a child before it is another program runs
# its parent's traps there, where `return` does nothing.
clean_up() {
    if [ "$BASHPID" = $$ ]; then
        end_marked GPU_CHECK_RUN "$run_mark" KILL
        rm -rf "$work"
    fi
}

# ---- for parts ----

machine() {
    nvidia-smi --query-gpu=name,memory.total,driver_version,compute_cap,clocks.max.sm --format=csv
    grep -m 1 'model name' /proc/cpuinfo
    echo "cores: $(nproc)"
    grep -E '^Mem(Total|Available)' /proc/meminfo
    [ -z "$nvcc" ] || "$nvcc" --version | tail -n 2 | head -n 1
    gcc --version | head -n 1
    "$python" -c 'import importlib.metadata as m; print("PyTorch", m.version("torch"))' \
        2>/dev/null || echo "no PyTorch"
    echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    echo "source $source_hash"
}

# Runs one program of tests that speaks TAP, and shows only what failed and the count.
one_test() {
    [ -x "$bin/tests/$1" ] || { echo "$bin/tests/$1 is not there" && return 1; }
    CMOCKA_MESSAGE_OUTPUT=TAP "$bin/tests/$1" >"$work/tap" 2>&1
    local status=$?
    grep -aE '^not ok|^# |says|CUDA' "$work/tap" | head -n 40
    echo "$(grep -acE '^ok ' "$work/tap") passed," \
        "$(grep -acE '^not ok ' "$work/tap") failed, status $status"
    return $status
}

small_run() { # small_run FOLDER FLAG...: prints the weights hash
    "$train" --device cuda --model tiny --data README.md --tokenizer byte --steps 10 --batch 4 \
        --no-tensorboard --out "$work/$1" "${@:2}" 2>&1 | sed -n 's/^weights hash: //p'
}

# until_logged STEPS DIR FLAG...: runs ./train until so many steps are logged and kills it there,
# since a checkpoint is no part of the measurement.
until_logged() {
    local steps=$1 dir=$2 pid
    rm -rf "$dir" "$dir.memory"
    setsid "$train" --device cuda --data random --dtype bf16 --seq-len 1024 --steps 1000 \
        --no-tensorboard "${@:3}" --out "$dir" >"$dir.log" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        if [ -e "$dir/log.jsonl" ] && [ "$(grep -c step_ms "$dir/log.jsonl")" -ge "$steps" ]; then
            nvidia-smi --query-gpu=memory.used --format=csv,noheader >"$dir.memory"
            break
        fi
        sleep 0.2
    done
    { kill -KILL -- -$pid && wait $pid; } 2>/dev/null # says "Killed" otherwise
    [ -e "$dir.memory" ] && return
    echo "./train ${*:3}: failed"
    tail -n 3 "$dir.log"
    return 1
}

# ---- ratios ----

# judge WHAT RATIO LEAST: one line, and a failure of the whole where the ratio is below.
judge() {
    if awk "BEGIN { exit !($2 >= $3) }"; then
        calculate "%.3f (at least $3): $1\n" "$2"
    else
        calculate "%.3f (at least $3), BELOW TARGET: $1\n" "$2"
        below=$((below + 1))
    fi
}

missing() { # missing WHAT: a ratio that could not be taken is no ratio that was reached
    echo "NOT MEASURED: $1"
    below=$((below + 1))
}

in_short() { # in_short FUNCTION: the last section, with the ratios that FUNCTION judges
    below=0
    {
        printf '\n## In short\n\n```\n'
        "$1"
        echo "$below below target or not measured"
        printf '```\n'
    } >>"$report"
    [ $below = 0 ] || failed=$((failed + 1))
}

export -f calculate median machine one_test small_run until_logged step_ms
