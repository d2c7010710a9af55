#!/bin/bash
# Proves that tests can fail: breaks one line at a time and expects a test to notice.
#
#   scripts/mutants.sh [PATCH ...]      default: all of tests/mutants; half an hour or so
#   scripts/mutants.sh tests/mutants/swarm/*.patch     what scripts/swarm.sh must find in 10 minutes
#   scripts/mutants.sh tests/mutants/cusim/*.patch     what the simulator of a GPU must find
#
# A patch begins with two lines of its own: what it breaks, and "test: PROGRAM [PROGRAM ...]";
# what ends in .sh or .py is a script of tests/ that speaks TAP, and cusim/PROGRAM one of the GPU
# simulator's. It is applied to a copy of the working tree, the programs are built and run, and one
# of them must fail.
# A patch that no longer applies is a failure too: the line it guards has moved, and so must it.
# Where a program is skipped, for want of CUDA's compiler, so are the patches that it should notice.
# The last line is `N caught, N survived`; status 0 if none survived.
set -u
. "${0%"${0##*/}"}help.sh"
cd "$(dirname "$0")/.." || exit 1
source=$PWD
scripts/setup.sh --test || exit 1
command -v git >/dev/null && command -v patch >/dev/null || {
    echo "mutants: git or patch is missing (apt-get install git patch)" >&2
    exit 2
}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
caught=0 survived=0 swarm_s=60 skipped=" "

patches=("$@")
[ $# -gt 0 ] || patches=(tests/mutants/*.patch)

# The working tree, and what is built of it already.
git ls-files --cached --others --exclude-standard | while read -r f; do
    [ ! -f "$f" ] || cp --parents --preserve=timestamps "$f" "$tree"
done
mkdir -p "$tree/build"
[ ! -d build/release ] || cp -a build/release "$tree/build/"
if [ -d build/cusim ] && grep -q '^test: .*cusim/' "${patches[@]}"; then
    cp -a build/cusim "$tree/build/"
fi
cd "$tree" || exit 1

from_here() {
    case $1 in /*) echo "$1" ;; *) echo "$source/$1" ;; esac
}

outcome() { # outcome caught|survived NAME DETAIL
    printf '%-9s %-44s %s\n' "$1" "$2" "$3"
    if [ "$1" = caught ]; then
        caught=$((caught + 1))
    else
        survived=$((survived + 1))
    fi
}

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
    case $1 in
    test_mpi*.sh) echo build/release/train build/release/tests/{mpi_ranks,mpi_stops} ;;
    test_any_cpu.sh)
        echo build/release/{train,tests/test_kernels_matmul,tests/test_matmul_edges}
        ;;
    test_sass.py) echo CUDA_ARCHS=90 registers ;;
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
    [ "$1" != swarm.sh ] || command=(scripts/swarm.sh "$swarm_s" 1)
    TRAIN=build/release/train timeout 900 "${command[@]}" >"$tree/log" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        if grep -qE '^(\[  FAILED  \]|not ok |VIOLATION)' "$tree/log"; then
            kill $pid 2>/dev/null # timeout passes it on to all that it started
            wait $pid
            return 1
        fi
        sleep 0.5
    done
    wait $pid
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
for patch in "${patches[@]}"; do
    sed -n '2s/^test: //p' "$(from_here "$patch")"
done | tr ' ' '\n' | sort -u >"$tree/programs"
while read -r program; do
    if ! build "$program" >"$tree/log" 2>&1; then
        echo "mutants: $program does not build: $(grep -m 1 error "$tree/log")" >&2
        exit 2
    fi
    by=$(first_failure "$program" </dev/null)
    if [ -n "$by" ]; then
        echo "mutants: $by fails without any patch" >&2
        exit 2
    fi
    ! grep -q '^1\.\.0 # SKIP' "$tree/log" || skipped+="$program "
done <"$tree/programs"
swarm_s=600

for patch in "${patches[@]}"; do
    patch=$(from_here "$patch")
    name=$(basename "$patch" .patch)
    read -ra programs < <(sed -n '2s/^test: //p' "$patch")
    if [[ $skipped == *" ${programs[*]} "* ]]; then
        printf 'skipped   %-44s %s\n' "$name" "${programs[*]}"
        continue
    fi
    if ! patch -p1 -s --dry-run <"$patch" >"$tree/log" 2>&1; then
        outcome survived "$name" "the patch does not apply: $(head -n 1 "$tree/log")"
        continue
    fi
    patch -p1 -s --no-backup-if-mismatch <"$patch"
    if ! build "${programs[@]}" >"$tree/log" 2>&1; then
        outcome survived "$name" "it does not build: $(grep -m 1 error "$tree/log")"
    else
        by=$(first_failure "${programs[@]}")
        if [ -n "$by" ]; then
            outcome caught "$name" "$by"
        else
            outcome survived "$name" "${programs[*]}"
        fi
    fi
    patch -R -p1 -s --no-backup-if-mismatch <"$patch"
done
echo "$caught caught, $survived survived"
[ $survived = 0 ]
