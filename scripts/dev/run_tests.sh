#!/bin/bash
# Runs tests and counts them. `make test` calls it:
#
#   scripts/dev/run_tests.sh BUILD_FOLDER tests/data/test_x.c tests/zero/test_y.sh ...
#
# A test is a C program (BUILD_FOLDER/tests/test_x), a shell script or a Python program; all speak
# TAP, "ok 1 - name" and "not ok 2 - name" (cmocka does when asked). One line per program: what
# passed, what failed, seconds. What a failing program printed follows. The last line is `N passed,
# N failed`; the status is 0 if none failed.
#
# Programs run side by side, TEST_JOBS at a time (default: a core each, at most 4). TESTS_FIRST has
# those that take long and so begin first, in its order, TESTS_ALONE those that nothing may run
# beside, which come last. TESTS_ASLEEP has those that take no core but time: with several jobs two
# of them run beside all others, also beside one that is alone. All three hold file names (test_x.c)
# and come from the Makefile. Lines are printed in the order in which the programs begin, whichever
# ends first.
#
# A program counts as one more failure when it crashes, ends with a status that does not fit what it
# printed, passes the time limit (TEST_SECONDS), runs no test at all, or leaves a process behind.
# What a program started is known by a mark in its environment, which every child inherits, also one
# with a session of its own. All of it is ended with the program, and with this script.
set -u
build=$1
shift
limit=${TEST_SECONDS:-900} # for one program
cores=$(nproc)
together=${TEST_JOBS:-$((cores < 4 ? cores : 4))}
passed=0 failed=0
export CMOCKA_MESSAGE_OUTPUT=TAP
# Threads that wait for others of their program leave the core to the program beside it.
[ "$together" = 1 ] || export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
mark=TESTS_OF_$$ # of its own for each runner: the test of the runner runs one inside another
work=$(mktemp -d)
. "${BASH_SOURCE%/*}/proc_tag.sh"

clean_up() {
    # shellcheck disable=SC2046
    kill $(jobs -p) 2>/dev/null
    end_marked "$mark" all KILL
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# The first Python that has numpy: one that a user installed may stand before Debian's, without.
find_python() {
    local name
    for name in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
        "$name" -c 'import numpy' >/dev/null 2>&1 && break
    done
    echo "$name" # where none has it, the test fails and says so
}

# What is left of a program a second after its end, a line each: nothing that is about to end too.
find_left() { # find_left NUMBER
    local i pid pids
    for i in {1..10}; do
        pids=$(marked "${mark}_$1" yes)
        [ -n "$pids" ] || return
        sleep 0.1
    done
    for pid in $pids; do
        { tr '\0\n' '  ' <"/proc/$pid/cmdline" | cut -c 1-100; } 2>/dev/null
    done
}

# run_one NUMBER SOURCE: writes $work/NUMBER.out, .left and at the end .end: its status, or "ended"
# where the limit did, and its seconds.
run_one() {
    local command status begin=$SECONDS
    case $2 in
    *.sh) command=(bash "$2") ;;
    *.py) command=("$python" -B "$2") ;;
    *) command=("$build/tests/$(basename "${2%.c}")") ;;
    esac
    env "$mark=all" "${mark}_$1=yes" setsid timeout -k 5 "$limit" "${command[@]}" \
        >"$work/$1.out" 2>&1 </dev/null
    status=$?
    # timeout's own, or a program's that did not heed SIGTERM and was killed.
    [ $status != 124 ] && { [ $status != 137 ] || [ $((SECONDS - begin)) -lt "$limit" ]; } ||
        status=ended
    [ $status = ended ] || find_left "$1" >"$work/$1.left"
    end_marked "${mark}_$1" yes KILL
    echo "$status $((SECONDS - begin))" >"$work/$1.part"
    mv "$work/$1.part" "$work/$1.end"
}

# Counts one program and prints its line.
report() { # report NUMBER SOURCE
    local out=$work/$1.out left=$work/$1.left status seconds ok bad skipped note=
    read -r status seconds <"$work/$1.end"
    # cmocka 1.1.5 says "not ok 4 # SKIP name", later ones "ok 4 # SKIP name".
    # "1..0 # SKIP" is a program's that has nothing to test here.
    skipped=$(grep -acE '^((not )?ok [0-9]* *|1\.\.0 )# SKIP' "$out")
    ok=$(grep -aE '^ok ' "$out" | grep -acvE '^ok [0-9]* *# SKIP')
    bad=$(grep -aE '^not ok ' "$out" | grep -acvE '^not ok [0-9]* *# SKIP')
    if [ "$status" = ended ]; then
        bad=$((bad + 1)) note=", no end after $limit s"
    elif [ "$bad" = 0 ] && [ "$status" != 0 ]; then
        bad=1 note=", ended with status $status"
    elif [ "$bad" = 0 ] && [ "$ok" = 0 ] && ! grep -aq '^1\.\.0 # SKIP' "$out"; then
        bad=1 note=", ran no test"
    elif [ "$bad" != 0 ] && [ "$status" = 0 ]; then
        bad=$((bad + 1)) note=", ended with status 0"
    fi
    if [ -s "$left" ]; then
        bad=$((bad + 1)) note+=", left processes behind"
        sed 's/^/left behind: /' "$left" >>"$out"
    fi
    [ "$skipped" = 0 ] || note+=", $skipped skipped"
    printf '%-42s %3d passed, %d failed%s (%d s)\n' "$2" "$ok" "$bad" "$note" "$seconds"
    [ "$bad" = 0 ] || sed 's/^/    /' "$out"
    passed=$((passed + ok)) failed=$((failed + bad))
}

started=0 told=0 sources=() sleepers=()
start() { # start SOURCE
    started=$((started + 1)) sources[started]=$1
    run_one $started "$1" &
}

# Sets how many programs run: `sleeping` of those that sleep, `awake` of all others.
count_running() {
    local number
    sleeping=0
    for number in "${sleepers[@]}"; do
        [ -e "$work/$number.end" ] || sleeping=$((sleeping + 1))
    done
    awake=$(($(jobs -rp | wc -l) - sleeping))
}

# The next of those that sleep, if fewer than two run; status 1: there is none, or no place for it.
start_sleeper() {
    count_running
    [ ${#asleep[@]} -gt 0 ] && [ "$sleeping" -lt 2 ] || return
    start "${asleep[0]}"
    sleepers+=("$started") asleep=("${asleep[@]:1}")
}
start_sleepers() {
    while start_sleeper; do :; done
    count_running
}

# run_list HOW_MANY SOURCE...: so many at a time.
run_list() {
    local source
    for source in "${@:2}"; do
        start_sleepers
        while [ "$awake" -ge "$1" ]; do
            wait_for_one
            start_sleepers
        done
        start "$source"
    done
    start_sleepers
    while [ "$awake" -gt 0 ]; do
        wait_for_one
        start_sleepers
    done
}

# The rest of those that sleep, and all lines.
run_rest() {
    start_sleepers
    while [ $told -lt $started ]; do
        wait_for_one
        start_sleepers
    done
}

wait_for_one() {
    wait -n || [ $? != 127 ] || sleep 0.1
    while [ -e "$work/$((told + 1)).end" ]; do
        told=$((told + 1))
        report $told "${sources[told]}"
    done
}

# pick FIRST|ALONE|ASLEEP|OTHERS SOURCE...: those that TESTS_FIRST or another list names, or none;
# of several lists the last counts.
pick() {
    local source name where
    for source in "${@:2}"; do
        name=$(basename "$source") where=OTHERS
        [[ " ${TESTS_FIRST:-} " != *" $name "* ]] || where=FIRST
        [[ " ${TESTS_ALONE:-} " != *" $name "* ]] || where=ALONE
        [ "$together" = 1 ] || [[ " ${TESTS_ASLEEP:-} " != *" $name "* ]] || where=ASLEEP
        [ $where != "$1" ] || echo "$source"
    done
}

in_order() { # in_order SOURCES: lines, as TESTS_FIRST has them
    local name
    for name in ${TESTS_FIRST:-}; do
        grep -E "(^|/)${name//./\\.}\$" <<<"$1"
    done
    true
}

python=$(find_python)
readarray -t beside < <(in_order "$(pick FIRST "$@")" && pick OTHERS "$@")
readarray -t alone < <(pick ALONE "$@")
readarray -t asleep < <(pick ASLEEP "$@")
run_list "$together" "${beside[@]}"
run_list 1 "${alone[@]}"
run_rest
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
