#!/bin/bash
# Runs tests and counts them. `make test` calls it:
#
#   scripts/run_tests.sh BUILD_FOLDER tests/test_x.c tests/test_y.sh ...
#
# A test is a C program (BUILD_FOLDER/tests/test_x), a shell script or a Python program; all speak
# TAP, "ok 1 - name" and "not ok 2 - name" (cmocka does when asked). One line per program: what
# passed, what failed, seconds. What a failing program printed follows. The last line is `N passed,
# N failed`; the status is 0 if none failed.
#
# A program counts as one more failure when it crashes, ends with a status that does not fit what it
# printed, passes the time limit, or runs no test at all.
set -u
build=$1
shift
limit=${TEST_SECONDS:-900} # for one program
passed=0 failed=0
export CMOCKA_MESSAGE_OUTPUT=TAP
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# The first Python that has numpy: one that a user installed may stand before Debian's, without.
find_python() {
    local name
    for name in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
        "$name" -c 'import numpy' >/dev/null 2>&1 && break
    done
    echo "$name" # where none has it, the test fails and says so
}

for source in "$@"; do
    case $source in
    *.sh) command=(bash "$source") ;;
    *.py) command=("$(find_python)" -B "$source") ;;
    *) command=("$build/tests/$(basename "${source%.c}")") ;;
    esac
    SECONDS=0
    timeout "$limit" "${command[@]}" >"$out" 2>&1 </dev/null
    status=$?
    # cmocka 1.1.5 says "not ok 4 # SKIP name", later ones "ok 4 # SKIP name".
    skipped=$(grep -acE '^(not )?ok [0-9]* *# SKIP' "$out")
    ok=$(grep -aE '^ok ' "$out" | grep -acvE '^ok [0-9]* *# SKIP')
    bad=$(grep -aE '^not ok ' "$out" | grep -acvE '^not ok [0-9]* *# SKIP')
    note=
    if [ $status = 124 ]; then
        bad=$((bad + 1)) note=", no end after $limit s"
    elif [ "$bad" = 0 ] && [ $status != 0 ]; then
        bad=1 note=", ended with status $status"
    elif [ "$bad" = 0 ] && [ "$ok" = 0 ]; then
        bad=1 note=", ran no test"
    elif [ "$bad" != 0 ] && [ $status = 0 ]; then
        bad=$((bad + 1)) note=", ended with status 0"
    fi
    [ "$skipped" = 0 ] || note+=", $skipped skipped"
    printf '%-36s %3d passed, %d failed%s (%d s)\n' "$source" "$ok" "$bad" "$note" "$SECONDS"
    [ "$bad" = 0 ] || sed 's/^/    /' "$out"
    passed=$((passed + ok)) failed=$((failed + bad))
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
