#!/bin/bash
# scripts/run_tests.sh must not call a test passed that did not pass: programs that fail, crash,
# hang, run nothing or contradict themselves each count as a failure. Speaks TAP for
# scripts/run_tests.sh itself.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
count=0 failed=0

# expect NAME LAST_LINE STATUS LINE...: a test script of these lines must give that end. ENDING=py:
# they are Python.
expect() {
    local said status file=$folder/x.${ENDING:-sh}
    printf '%s\n' "${@:4}" >"$file"
    said=$(TEST_SECONDS=1 bash scripts/run_tests.sh "$folder" "$file" 2>&1)
    status=$?
    count=$((count + 1))
    if [ "$(tail -n 1 <<<"$said")" = "$2" ] && [ $status = "$3" ]; then
        echo "ok $count - $1"
    else
        echo "not ok $count - $1"
        echo "# status $status: $said"
        failed=1
    fi
}

expect "two passes" "2 passed, 0 failed" 0 'echo "ok 1 - a"' 'echo "ok 2 - b"'
expect "a failure" "1 passed, 1 failed" 1 'echo "ok 1 - a"' 'echo "not ok 2 - b"' 'exit 1'
expect "a crash after a pass" "1 passed, 1 failed" 1 'echo "ok 1 - a"' 'kill -SEGV $$'
expect "a status that nobody explains" "1 passed, 1 failed" 1 'echo "ok 1 - a"' 'exit 3'
expect "a failure that ends with status 0" "0 passed, 2 failed" 1 'echo "not ok 1 - a"'
expect "a program that runs no test" "0 passed, 1 failed" 1 'exit 0'
expect "a program that does not end" "1 passed, 1 failed" 1 'echo "ok 1 - a"' 'sleep 60'
expect "a skipped test is not a pass" "1 passed, 0 failed" 0 'echo "ok 1 - a"' \
    'echo "ok 2 # SKIP b"'
expect "a skipped test is no failure" "1 passed, 0 failed" 0 'echo "ok 1 - a"' \
    'echo "not ok 2 # SKIP b"'
expect "nothing but skipped tests" "0 passed, 1 failed" 1 'echo "ok 1 # SKIP b"'
ENDING=py expect "a pass and a failure of a program in Python that needs numpy" \
    "1 passed, 1 failed" 1 'import numpy, sys' 'print("ok 1 - a\nnot ok 2 - b")' 'sys.exit(1)'
ENDING=py expect "a program in Python that ends by an error" "1 passed, 1 failed" 1 \
    'print("ok 1 - a", flush=True)' 'raise ValueError'
# A Python without numpy that stands first is passed over.
mkdir "$folder/bin"
printf '#!/bin/sh\nexit 1\n' >"$folder/bin/python3"
chmod +x "$folder/bin/python3"
PATH=$folder/bin:$PATH ENDING=py expect "a Python without numpy before one that has it" \
    "1 passed, 0 failed" 0 'import numpy' 'print("ok 1 - a")'

echo "1..$count"
exit $failed
