#!/bin/bash
# Proves that tests can fail: breaks one line at a time and expects a test to notice.
#
#   scripts/dev/mutants.sh [PATTERN ...]    default: all but the swarm's; half an hour or so
#   scripts/dev/mutants.sh zero/grad.c test_mpi.sh     the mutants whose row has one of these texts
#   scripts/dev/mutants.sh chaos_test.sh         what scripts/faults/chaos_test.sh must find in 10 minutes each
#   scripts/dev/mutants.sh cusim/           what the simulator of a GPU must find
#   scripts/dev/mutants.sh --check          only looks whether each row can be tried; a second or two
#
# The mutants are rows of tests/mutants.tsv, at whose head its form is told. Each is tried in a copy
# of the working tree: the programs that should notice are built and run, and one of them must fail.
# A row whose old text does not occur once, or that does not build, has survived: it must follow the
# line that it guards. Where a program is skipped, for want of a compiler, MPI or a browser, so are
# its mutants.
# The last line is `N caught, N survived`; status 0 if none survived.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
table=tests/mutants.tsv caught=0 survived=0 swarm_s=60 skipped=" "
sources=" chaos_test.sh $(find tests -type f -printf '%f ')"

# read_row ROW: sets `file`, `programs` and `why`, the file's `text`, how it is `broken`, and the
# `line` of that; or else `fault`, which says why the row cannot be tried. Bytes are quick, and no
# two characters begin alike.
read_row() {
    local LC_ALL=C olds news old new before program
    fault='' text='' line=1
    IFS=$'\037' read -r file olds news test why <<<"${1//$'\t'/$'\037'}"
    read -ra programs <<<"$test"
    [[ $why == *[!\ ]* && $why != *$'\037'* ]] || fault="not five columns, each with a text but new"
    for program in "${programs[@]:-}"; do
        [[ $sources == *" ${program#cusim/}"?(.c)" "* ]] || fault="no test $program"
    done
    if [ ! -f "$file" ]; then
        fault="no such file"
        return
    fi
    IFS= read -rd '' text <"$file"
    broken=$text
    printf -v olds '%b\f' "$olds"
    printf -v news '%b\f' "$news"
    while [ -n "$olds" ]; do
        old=${olds%%$'\f'*} olds=${olds#*$'\f'}
        new=${news%%$'\f'*} news=${news#*$'\f'}
        before=${broken%%"$old"*}
        if [ "$before" = "$broken" ]; then
            fault="its old text does not occur"
        elif [ "$before" != "${broken%"$old"*}" ]; then
            fault="its old text occurs more than once"
        elif [ "$old" = "$new" ]; then
            fault="it changes nothing"
        fi
        broken=$before$new${broken:${#before}+${#old}}
    done
    before=${before//[!$'\n']/}
    line=$((${#before} + 1))
}

# ---- --check ----

if [ "${1:-}" = --check ]; then
    readarray -t rows < <(grep -v '^#' "$table")
    for row in "${rows[@]}"; do
        read_row "$row"
        [ -z "$fault" ] || survived=$((survived + 1))
        [ -z "$fault" ] || echo "$fault: $row"
    done
    echo "${#rows[@]} mutants, $survived that cannot be tried"
    [ $survived = 0 ] && [ ${#rows[@]} != 0 ]
    exit
fi

# ---- a copy of the working tree, and what is built of it already ----

if [ $# = 0 ]; then
    readarray -t rows < <(grep -v -e '^#' -e $'\tchaos_test.sh\t' "$table")
else
    readarray -t rows < <(grep -v '^#' "$table" | grep -F "${@/#/-e}")
fi
if [ ${#rows[@]} = 0 ]; then
    echo "mutants: no row of $table has $*" >&2
    exit 2
fi
scripts/setup.sh --test || exit 1
command -v git >/dev/null || {
    echo "mutants: git is missing (apt-get install git)" >&2
    exit 2
}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
printf '%s\n' "${rows[@]}" | cut -f 4 | tr ' ' '\n' | sort -u >"$tree/programs"
git ls-files --cached --others --exclude-standard | while read -r f; do
    [ ! -f "$f" ] || cp --parents --preserve=timestamps "$f" "$tree"
done
mkdir -p "$tree/build"
[ ! -d build/release ] || cp -a build/release "$tree/build/"
if [ -d build/cusim ] && grep -q '^cusim/' "$tree/programs"; then
    cp -a build/cusim "$tree/build/"
fi
cd "$tree" || exit 1

# ---- programs ----

# What `make` is to build for a program: each mode by itself.
build() { # build PROGRAM...
    local program
    for program in "$@"; do
        case $program in
        cusim/*) make -s -j2 MODE=cusim "build/cusim/tests/${program#*/}" || return ;;
        *) make -s -j2 $(target "$program") || return ;;
        esac
    done
}
target() {
    if [[ $1 = *.sh ]] && grep -qs '/mpi_jobs\.sh"$' "$(find tests -name "$1")"; then
        echo build/release/train build/release/tests/{mpi_ranks,mpi_stops,pmpi_count.so}
        return
    fi
    case $1 in
    test_any_cpu.sh)
        echo build/release/{train,tests/test_kernels_matmul,tests/test_matmul_edges}
        ;;
    test_sass.py) echo CUDA_ARCHS=90 registers ;;
    test_learn.sh | test_chapters.sh) echo build/release/{train,zero_in_200_lines} ;;
    test_page.sh) echo build/release/{train,tests/page_points} ;;
    *.sh) echo build/release/train build/release/tests/{libfault.so,powercut,intact} ;;
    *) echo "build/release/tests/$1" ;;
    esac
}

# Runs a program as far as the first test that fails: what follows it would only take time.
run() {
    local pid command=("build/release/tests/$1")
    [[ $1 != cusim/* ]] || command=("build/cusim/tests/${1#*/}")
    [[ $1 != *.sh ]] || command=(bash "$(find tests -name "$1")")
    [[ $1 != *.py ]] || command=(python3 -B "$(find tests -name "$1")")
    [ "$1" != chaos_test.sh ] || command=(scripts/faults/chaos_test.sh "$swarm_s" 1)
    TRAIN=build/release/train timeout 900 "${command[@]}" >"$tree/log" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        if grep -qE '^(\[  FAILED  \]|not ok |VIOLATION)' "$tree/log"; then
            kill $pid 2>/dev/null # timeout passes it on to all that it started
            wait $pid
            return 1
        fi
        sleep 0.1
    done
    wait $pid
}

# The program at hand tested nothing.
all_skipped() {
    grep -q '^1\.\.0 # SKIP' "$tree/log" ||
        { grep -q '^1\.\.1$' "$tree/log" && grep -q '^ok 1 # SKIP' "$tree/log"; }
}

# The first of the programs that fails, or nothing.
first_failure() {
    local program status
    for program in "$@"; do
        run "$program"
        status=$?
        if [ $status = 124 ]; then
            echo "$program (ran past its time)"
            return
        elif [ $status != 0 ]; then
            echo "$program"
            return
        fi
    done
}

# A program that fails anyway would catch everything.
while read -r program; do
    if ! build "$program" >"$tree/log" 2>&1; then
        echo "mutants: $program does not build: $(grep -m 1 error "$tree/log")" >&2
        exit 2
    fi
    by=$(first_failure "$program" </dev/null)
    if [ -n "$by" ]; then
        echo "mutants: $by fails without any mutant" >&2
        exit 2
    fi
    ! all_skipped || skipped+="$program "
done <"$tree/programs"
swarm_s=600

# ---- mutants ----

outcome() { # outcome caught|survived|skipped BY
    printf '%-9s %-36s %s (%s)\n' "$1" "$file:$line" "$why" "$2"
}

for row in "${rows[@]}"; do
    read_row "$row"
    by=
    if [ -n "$fault" ]; then
        said=$fault
    elif [[ $skipped == *" $test "* ]]; then
        outcome skipped "$test"
        continue
    else
        printf %s "$broken" >"$file"
        if ! build "${programs[@]}" >"$tree/log" 2>&1; then
            said="it does not build: $(grep -m 1 error "$tree/log")"
        else
            by=$(first_failure "${programs[@]}")
            said=$test
        fi
        printf %s "$text" >"$file"
    fi
    if [ -n "$by" ]; then
        outcome caught "$by"
        caught=$((caught + 1))
    else
        outcome survived "$said"
        survived=$((survived + 1))
    fi
done
echo "$caught caught, $survived survived"
[ $survived = 0 ]
