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

# The lines (default: $said) have an error of ./train's that ends in that id and has that value, or
# several of them, with * between two.
error_is() { # error_is "E_ID [VALUE]" [LINES]
    local id=${1%% *} value line
    value=${1#"$id"}
    while IFS= read -r line; do
        # shellcheck disable=SC2053 # the value is a pattern
        [[ $line != "train: "*${value# }*" [$id]" ]] || return 0
    done <<<"${2-$said}"
    return 1
}
