#!/usr/bin/env bash
# Makes one HTML page of the files that `./train --trace-zero` wrote: every operation of a step, what
# it moved, and what is in every buffer. The page needs no network and no other file.
#
#   scripts/view.sh FILE...                      the files of one run, one of each rank
#   scripts/view.sh FILE... --beside FILE...     two runs side by side, with one slider
#   scripts/view.sh -o OUT.html FILE...          default: the first file's name with .html
#
# For example, stage 0 beside stage 3:
#
#   ./train --data random --model gpt2 --ranks 4 --zero 0 --steps 3 --trace-zero zero0.json
#   ./train --data random --model gpt2 --ranks 4 --zero 3 --steps 3 --trace-zero zero3.json
#   scripts/view.sh zero0.json* --beside zero3.json* -o zero.html
#
# The page is in scripts/view/: read.js reads the files, and names what to read next.
set -euo pipefail
. "${0%"${0##*/}"}help.sh"

die() {
    echo "view.sh: $*" >&2
    exit 2
}

usage="usage: scripts/view.sh FILE... [--beside FILE...] [-o OUT.html], each FILE by ./train --trace-zero"
here=${0%"${0##*/}"}view out='' run=0
files=() run_of=()
while [ $# -gt 0 ]; do
    case $1 in
    -o)
        [ $# -gt 1 ] || die "-o needs the name of the page; $usage"
        out=$2
        shift
        ;;
    --beside)
        [ $run = 0 ] || die "--beside is there twice; a page shows two runs; $usage"
        [ ${#files[@]} -gt 0 ] || die "no file before --beside; $usage"
        run=1
        ;;
    -*) die "unknown option $1; $usage" ;;
    *)
        files+=("$1")
        run_of+=("$run")
        ;;
    esac
    shift
done
[ ${#files[@]} -gt 0 ] || die "no file is given; $usage"
[ "${run_of[-1]}" = $run ] || die "no file after --beside; $usage"
out=${out:-${files[0]%.json}.html}

# What a file says of itself, as "RANKS RANK": how many files its run has, and which this is.
place_of() {
    head -c 4000 "$1" | tr -d '\n' | sed -n 's/.*"ranks": *\([0-9]*\).*"rank": *\([0-9]*\).*/\1 \2/p'
}

seen=" " ranks=()
for i in "${!files[@]}"; do
    file=${files[i]}
    [ -f "$file" ] || die "$file is not a file; give one that ./train --trace-zero FILE wrote"
    head -c 100 "$file" | grep -q '"format": *"zero.c trace 1"' ||
        die "$file is not of --trace-zero (--trace writes another format); make it with ./train --trace-zero FILE"
    place=$(place_of "$file")
    ranks[run_of[i]]=${ranks[run_of[i]]:-${place% *}}
    [ "${place% *}" = "${ranks[run_of[i]]}" ] ||
        die "$file is of a run of ${place% *} ranks, the others of ${ranks[run_of[i]]}; remove files of an earlier run"
    place="${run_of[i]}:$place"
    [[ $seen != *" ${place// /,} "* ]] ||
        die "$file is of a rank that another file has; give one file of each rank, and another run behind --beside"
    seen+="${place// /,} "
done

# The traces, each in an element of its own. "<" may end that, so it is written as JSON allows.
traces() {
    local i
    for i in "${!files[@]}"; do
        echo "<script type=\"application/json\" class=\"trace\" data-run=\"${run_of[i]}\">"
        sed 's/</\\u003c/g' "${files[i]}"
        echo "</script>"
    done
}

page() {
    local line
    while IFS= read -r line; do
        case $line in
        "{traces}") traces ;;
        "{"*"}") cat "$here/${line//[\{\}]/}" ;;
        *) printf '%s\n' "$line" ;;
        esac
    done <"$here/page.html"
}

page >"$out" || die "cannot write $out; give another page with -o OUT.html"
echo "$out"
