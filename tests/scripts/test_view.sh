#!/bin/bash
# scripts/view.sh: what it refuses, and its page as a file; test_view_page.sh has the page in a browser.
# Speaks TAP for scripts/dev/run_tests.sh.
set -u
export LC_ALL=C.UTF-8 # a comma for a point is no JSON
. "${BASH_SOURCE%/*}/../lib/tap.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
. tests/lib/made_traces.sh

refused() { # refused TEXT ARGUMENT...: status 2 and one line with TEXT, and no page
    local text=$1 said status
    shift
    said=$(scripts/view.sh -o "$folder/none.html" "$@" 2>&1)
    status=$?
    [ $status = 2 ] && [[ $said == "view.sh: "*"$text"* ]] && [ "$(wc -l <<<"$said")" = 1 ] && [ ! -e "$folder/none.html" ]
    result $? "refused: $text" "$said"
}

made zero0 stage=0 layers=4 micros=2
made zero3 stage=3 layers=4 micros=2

refused "usage"
refused "$folder/nothing is not a file" "$folder/nothing"
refused "is not of --trace-zero" tests/lib/tap.sh
refused "of a rank that another file has" "$folder"/zero3.json "$folder"/zero0.json
made zero3_before stage=3 layers=4 micros=2 ranks=8
refused "zero3.json is of a run of 4 ranks, the others of 8" "$folder"/zero3_before.json "$folder"/zero3.json
refused "no file after --beside" "$folder"/zero3.json --beside
refused "unknown option -x" -x

said=$(cd "$folder" && "$OLDPWD/scripts/view.sh" zero3.json* 2>&1)
[ "$said" = zero3.html ] && [ -s "$folder/zero3.html" ] && ! grep -Eq '(src|href)="|https?://|@import|url\(' "$folder/zero3.html"
result $? "a page is one file, which refers to no other" "$said"

echo "1..$count"
exit $failed
