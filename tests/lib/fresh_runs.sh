# Fresh runs of ./train, with the flags in `tiny`, and those that are refused: source this file.
. "${BASH_SOURCE%/*}/own_folder.sh"

run() { # run ARGUMENT...
    rm -rf "$folder/out"
    timeout 60 "$train" "${tiny[@]}" --out "$folder/out" "$@"
}

# refused NAME ERROR ARGUMENT...: one line "train: ...", the last, with that error, and status 2.
refused() {
    local name=$1 error=$2 said status
    shift 2
    said=$(run "$@" 2>&1 >/dev/null)
    status=$?
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        error_is "$error"
    result $? "refused: $name" "status $status: $said"
}
