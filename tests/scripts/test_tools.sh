#!/bin/bash
# What people who start a script or make are told: with --help what is at a script's head; where
# cmocka is missing, how to install it; and which file breaks the layout. No change of the source
# leaves a mutant behind. Speaks TAP for scripts/dev/run_tests.sh.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# ---- --help ----

# Those that people start; the others are sourced, or started by make.
seen=''
for file in scripts/*.sh scripts/{dev,bench,faults}/*.sh; do
    case $file in
    scripts/dev/bare_root.sh | scripts/bench/bars.sh | scripts/dev/families.sh | scripts/bench/figures.sh | \
        scripts/help.sh | scripts/dev/proc_tag.sh) continue ;;
    scripts/dev/probe.sh | scripts/dev/run_tests.sh | scripts/dev/torch.sh) continue ;;
    esac
    said=$(timeout 10 bash "$file" --help 2>&1) && [ "$said" = "$(
        sed -n '2,/^[^#]/p' "$file" | grep '^#' | grep -v '^# shellcheck' | sed 's/^# \{0,1\}//'
    )" ] || seen+="$file: $(head -n 1 <<<"$said")"$'\n'
done
[ -z "$seen" ]
result $? "each script says with --help what is at its head" "$seen"

# ---- make without cmocka ----

cat >"$folder/cc" <<'END'
#!/bin/bash
[[ $* != *libcmocka.so* ]] || exec echo libcmocka.so
exec gcc "$@"
END
chmod +x "$folder/cc"
for goal in bench test quick; do
    seen=$(env -u MAKEFLAGS -u MAKEOVERRIDES \
        make -n CC="$folder/cc" WITHOUT=cuda BUILD="$folder/build" $goal 2>&1 >/dev/null)
    [ "$(grep -c 'cmocka is missing, which .*: scripts/setup.sh --test' <<<"$seen")" = 1 ]
    result $? "make $goal without cmocka says so in a line" "$(tail -n 5 <<<"$seen")"
done

# ---- the layout ----

mkdir "$folder/tree"
cp -R train.c Makefile README.md model zero data kernels scripts tests docs "$folder/tree"
seen=$(scripts/dev/check_layout.sh "$folder/tree" 2>&1)
result $? "the source keeps to its layout" "$seen"
echo '#include "zero/plan/predict.h"' >>"$folder/tree/zero/step.c"
! seen=$(scripts/dev/check_layout.sh "$folder/tree" 2>&1) &&
    grep -q '^zero/step.c:[0-9]*: must not include zero/plan/predict.h' <<<"$seen"
result $? "and a core that includes the plan is named" "$seen"

seen=$(scripts/dev/mutants.sh --check 2>&1)
result $? "each row of tests/mutants.tsv has a text that occurs once, a test and a reason" "$seen"

echo "1..$count"
exit $failed
