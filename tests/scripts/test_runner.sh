#!/bin/bash
# scripts/dev/run_tests.sh must not call a test passed that did not pass: programs that fail, crash,
# hang, run nothing, contradict themselves or leave processes behind each count as a failure. Which
# programs begin first, and which run alone. Speaks TAP for scripts/dev/run_tests.sh itself.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# expect NAME LAST_LINE STATUS LINE...: a test script of these lines must give that end. ENDING=py:
# they are Python. LIMIT=1: the runner's, in seconds.
expect() {
    local said status file=$folder/x.${ENDING:-sh}
    printf '%s\n' "${@:4}" >"$file"
    said=$(TEST_SECONDS=${LIMIT:-60} bash scripts/dev/run_tests.sh "$folder" "$file" 2>&1)
    status=$?
    [ "$(tail -n 1 <<<"$said")" = "$2" ] && [ $status = "$3" ]
    result $? "$1" "status $status: $said"
}

expect "two passes" "2 passed, 0 failed" 0 'echo "ok 1 - a"' 'echo "ok 2 - b"'
expect "a failure" "1 passed, 1 failed" 1 'echo "ok 1 - a"' 'echo "not ok 2 - b"' 'exit 1'
expect "a crash after a pass" "1 passed, 1 failed" 1 'echo "ok 1 - a"' 'kill -SEGV $$'
expect "a status that nobody explains" "1 passed, 1 failed" 1 'echo "ok 1 - a"' 'exit 3'
expect "a failure that ends with status 0" "0 passed, 2 failed" 1 'echo "not ok 1 - a"'
expect "a program that runs no test" "0 passed, 1 failed" 1 'exit 0'
LIMIT=1 expect "a program that does not end" "1 passed, 1 failed" 1 'echo "ok 1 - a"' 'sleep 60'
expect "a skipped test is not a pass" "1 passed, 0 failed" 0 'echo "ok 1 - a"' \
    'echo "ok 2 # SKIP b"'
expect "a skipped test is no failure" "1 passed, 0 failed" 0 'echo "ok 1 - a"' \
    'echo "not ok 2 # SKIP b"'
expect "nothing but skipped tests" "0 passed, 1 failed" 1 'echo "ok 1 # SKIP b"'
expect "a program with nothing to test here" "0 passed, 0 failed" 1 'echo "1..0 # SKIP no card"'
expect "and one that says so and fails" "0 passed, 1 failed" 1 'echo "1..0 # SKIP no card"' 'exit 1'
ENDING=py expect "a pass and a failure of a program in Python that needs numpy" \
    "1 passed, 1 failed" 1 'import numpy, sys' 'print("ok 1 - a\nnot ok 2 - b")' 'sys.exit(1)'
ENDING=py expect "a program in Python that ends by an error" "1 passed, 1 failed" 1 \
    'print("ok 1 - a", flush=True)' 'raise ValueError'
said=$(bash scripts/test.sh --fast 2>&1)
[ $? = 1 ] && [ "$(tail -n 1 <<<"$said")" = "0 passed, 1 failed" ]
result $? "scripts/test.sh refuses an argument that it does not know" "$said"

# ---- what programs leave behind ----

# ended WHAT: nothing runs any more whose number is in $folder/pids, where there are some.
ended() {
    local pid left=''
    for pid in $(cat "$folder/pids"); do
        ! grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status" || left+=" $pid"
    done
    [ -z "$left" ] && [ -s "$folder/pids" ]
    result $? "$1" "left: $left"
    rm -f "$folder/pids"
}
cat >"$folder/lonely" <<END
trap '' TERM HUP
echo \$\$ >>$folder/pids
exec sleep 300
END
lonely="bash $folder/lonely >/dev/null 2>&1 & until [ -s $folder/pids ]; do sleep 0.1; done"
expect "a process left behind is a failure" "1 passed, 1 failed" 1 "$lonely" 'echo "ok 1 - a"'
ended "and is ended"
expect "so is one with a session of its own" "1 passed, 1 failed" 1 "setsid $lonely" \
    'echo "ok 1 - a"'
ended "and is ended, too"
expect "one that ends soon after is none" "1 passed, 0 failed" 0 'sleep 0.4 &' 'echo "ok 1 - a"'
LIMIT=1 expect "a limit ends what a program started" "1 passed, 1 failed" 1 "$lonely" \
    'echo "ok 1 - a"' \
    "trap '' TERM" 'sleep 60; sleep 60'
ended "all of it, though none heeds SIGTERM"

printf '%s\n' "$lonely" 'sleep 60' >"$folder/x.sh"
bash scripts/dev/run_tests.sh "$folder" "$folder/x.sh" >/dev/null 2>&1 &
for _ in {1..100}; do
    [ ! -s "$folder/pids" ] || break
    sleep 0.1
done
kill -TERM $!
wait $!
ended "told to end, the runner ends what runs"

# ---- side by side ----

# The first takes longest; the alone one must see no other.
printf '%s\n' "touch $folder/slow" 'sleep 0.6' "rm $folder/slow" 'echo "ok 1 - a"' \
    >"$folder/slow.sh"
printf '%s\n' 'echo "ok 1 - b"' | tee "$folder/fast.sh" >"$folder/early.sh"
printf '%s\n' "[ ! -e $folder/slow ] && echo 'ok 1 - c'" >"$folder/alone.sh"
said=$(TEST_JOBS=3 TESTS_FIRST="slow.sh early.sh" TESTS_ALONE=alone.sh \
    bash scripts/dev/run_tests.sh "$folder" "$folder"/{alone,early,fast,slow}.sh)
[ "$(sed -n 's|.*/\([a-z]*\).sh .*|\1|p' <<<"$said" | xargs)" = "slow early fast alone" ] &&
    [ "$(tail -n 1 <<<"$said")" = "4 passed, 0 failed" ]
result $? "long ones first, in order; nothing runs beside those that are to be alone" "$said"

# ---- the short list ----

# list GOAL MODE: what the Makefile lists.
list() {
    env -u MAKEFLAGS -u MAKEOVERRIDES -u TESTS \
        make -s --no-print-directory MODE="$2" BUILD="$folder/build" "$1" 2>/dev/null
}
missing=$({ list list-long release && list list-long cusim; } | tr ' ' '\n' |
    while read -r name; do find tests -name "$name" | grep -q . || echo "$name"; done)
[ -z "$missing" ]
result $? "all that the short list leaves out is there" "$missing"

echo "1..$count"
exit $failed
