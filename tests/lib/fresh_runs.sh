# Fresh runs of ./train, with the flags in `tiny`, and those that are refused: source this file.
. "${BASH_SOURCE%/*}/own_folder.sh"

run() { # run ARGUMENT...
    rm -rf "$folder/out"
    timeout 60 "$train" "${tiny[@]}" --out "$folder/out" "$@"
}

# refused NAME PATTERN ARGUMENT...: one line "train: ...", the last, that matches, and status 2.
refused() {
    local name=$1 pattern=$2 said status
    shift 2
    said=$(run "$@" 2>&1 >/dev/null)
    status=$?
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        tail -n 1 <<<"$said" | grep -qE -- "^train: .*$pattern"
    result $? "refused: $name" "status $status: $said"
}
