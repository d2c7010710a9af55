# Traces that made_trace.awk makes: source this file, with folder set.
# shellcheck shell=bash
# shellcheck disable=SC2154

# made NAME SETTING...: those of 4 ranks, in $folder, as NAME.json, NAME.json.1 and on
made() {
    local name=$1 rank end settings=()
    shift
    for setting in "$@"; do settings+=(-v "$setting"); done
    for rank in 0 1 2 3; do
        [ $rank = 0 ] && end= || end=.$rank
        awk -f tests/lib/made_trace.awk -v rank=$rank -v ranks=4 "${settings[@]}" >"$folder/$name.json$end"
    done
}
