# The result of one test, for a test script that speaks TAP: source this file. At the end the script
# says `echo "1..$count"; exit $failed`.
count=0 failed=0

result() { # result STATUS NAME [WHAT WAS SEEN]
    count=$((count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $count - $2"
    else
        echo "not ok $count - $2"
        sed 's/^/# /' <<<"${3:-}"
        failed=1
    fi
}
