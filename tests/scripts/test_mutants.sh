#!/bin/bash
# Every row of tests/mutants.tsv can be tried, so that no change of the source leaves a mutant
# behind, and a row that cannot is named. And scripts/dev/mutants.sh, on a program that is made up,
# catches what its test sees and no more. Speaks TAP for scripts/dev/run_tests.sh.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

seen=$(scripts/dev/mutants.sh --check 2>&1)
result $? "each row has a text that occurs once, a test and a reason" "$seen"

# ---- rows that cannot be tried ----

# refused FAULT COLUMN...: a table of a good row and this one is refused, with FAULT and the row.
good=$'scripts/help.sh\t    exit 0\\n    ;;\\n\t    exit 0\\n\ttest_tools.sh\tNo script has a help.'
refused() {
    local seen status row
    row=$(printf '%s\t' "${@:2}")
    printf '%s\n' "$good" "${row%$'\t'}" >"$folder/table"
    seen=$(scripts/dev/mutants.sh --check "$folder/table" 2>&1)
    status=$?
    [ "$status $seen" = "1 $1: ${row%$'\t'}"$'\n2 mutants, 1 that cannot be tried' ]
    result $? "${3:-nothing} -> ${4:-nothing}: $1" "status $status: $seen"
}
file=scripts/help.sh
refused "its old text does not occur" $file 'exit 7' 'exit 0' test_tools.sh "It fails."
refused "its old text does not occur" $file 'exit 0\fexit 7' '\fexit 1' test_tools.sh "It fails."
refused "its old text occurs more than once" $file '-h' '' test_tools.sh "It fails."
refused "its old text occurs more than once" $file '' 'exit 0' test_tools.sh "It fails."
refused "it changes nothing" $file 'exit 0' 'exit 0' test_tools.sh "It fails."
refused "no such file" scripts/none.sh 'exit 0' 'exit 1' test_tools.sh "It fails."
refused "no test test_none" $file 'exit 0' 'exit 1' 'test_tools.sh test_none' "It fails."
refused "no test " $file 'exit 0' 'exit 1' '' "It fails."
refused "not five columns, each with a text but new" $file 'exit 0' 'exit 1' test_tools.sh
refused "not five columns, each with a text but new" $file 'exit 0' 'exit 1' test_tools.sh It fails.

# ---- rows that are tried ----

mkdir -p "$folder/made/"{scripts,tests}
cp --parents scripts/{dev/mutants,help}.sh "$folder/made"
cd "$folder/made" || exit 1
git() { find -- * -type f; } # which need not be there
export -f git
printf '#!/bin/bash\n' >scripts/setup.sh
chmod +x scripts/setup.sh
printf 'build/release/%%:\n\t@true\n' >Makefile
printf '%s\n' 'a*' $'\ta\\n' 'a&' >text
printf '%s\n' 'A&\n' 'a&' >wanted
echo '! cmp -s text wanted' >tests/test_text.sh
printf 'text\t%s\t%s\ttest_text.sh\t%s\n' 'a*\n\ta\\n' 'A&\\n' 'all of it' \
    'a*\f&' 'b\f' 'two changes' 'a*\n\ta\\n' 'A&\\n' 'once more' '*' '' 'a star' \
    'a' 'b' 'any letter' >tests/mutants.tsv

seen=$(scripts/dev/mutants.sh 2>&1)
[ $? = 1 ] && [ "$(tr -s ' ' <<<"$seen")" = "caught text:1 all of it (test_text.sh)
survived text:3 two changes (test_text.sh)
caught text:1 once more (test_text.sh)
survived text:1 a star (test_text.sh)
survived text:1 any letter (its old text occurs more than once)
2 caught, 3 survived" ]
result $? "a mutant is what its row says, and is gone before the next" "$seen"

seen=$(scripts/dev/mutants.sh 'a*\n' 'all of' 2>&1)
[ $? = 0 ] && [ "$(tail -n 1 <<<"$seen")" = "2 caught, 0 survived" ]
result $? "those are tried that have one of the texts" "$seen"

seen=$(scripts/dev/mutants.sh nowhere 2>&1)
[ $? = 2 ] && [ "$seen" = "mutants: no row of tests/mutants.tsv has nowhere" ]
result $? "a text that no row has" "$seen"

echo "1..$count"
exit $failed
