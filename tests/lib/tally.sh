# Results of a long script, one line each, and their sum. Source it; the last lines are
# `tally_end`, which prints "N passed, N failed" and is true where none failed.
passed=0 failed=0

result() { # result STATUS WHAT
    if [ "$1" = 0 ]; then
        echo "ok - $2"
        passed=$((passed + 1))
    else
        echo "not ok - $2"
        failed=$((failed + 1))
    fi
}

tally_end() {
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
