#!/bin/bash
# Every test, from a fresh machine on: installs what is missing, builds, runs. Where the CUDA
# Toolkit is installed, the CUDA code too, in a simulator that needs no GPU (MODE=cusim).
#
#   scripts/test.sh            everything: a quarter of an hour at most on two cores
#   scripts/test.sh --quick    all but what takes long (LONG in the Makefile), some of every room:
#                              for one who edits: three minutes at most where all is built
#
# The last line is `N passed, N failed`; the status is 0 if none failed. One of the two commands of
# the README; .ci/run adds the checks of form. What is longer than both: make asan, make tsan,
# scripts/dev/stage_matrix.sh, offload_matrix.sh, kill_ranks.sh, fuzz.sh, mutants.sh.
set -u
. "${0%"${0##*/}"}help.sh"
cd "$(dirname "$0")/.." || exit 1
fail() {
    echo "test: $1"
    echo "0 passed, 1 failed"
    exit 1
}
goal=test
case $# in
0) ;;
*)
    [ "$*" = --quick ] || fail "'$*': expected nothing, or --quick"
    goal=quick
    ;;
esac
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0
# Both modes compile most files by the same commands: the second takes the objects of the first.
build_path=/usr/lib/ccache:$PATH
export CCACHE_DIR=$PWD/build/ccache

# run MAKE_ARGUMENT...: builds and runs one mode's tests, and adds its counts.
run() {
    local counts begin=$SECONDS
    PATH=$build_path make -j"$(nproc)" "$@" $goal-build </dev/null ||
        fail "the build failed; the lines above say why"
    echo "built in $((SECONDS - begin)) s"
    begin=$SECONDS
    make "$@" $goal </dev/null | tee "$log"
    echo "tested in $((SECONDS - begin)) s"
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    [[ $counts =~ ([0-9]+)[^0-9]+([0-9]+) ]] ||
        fail "the tests did not run to their end; the last lines above say where"
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
}

scripts/setup.sh --test </dev/null || fail "packages could not be installed; the lines above say why"
if [ $goal = quick ]; then
    run
else
    # With or without a GPU. 8.6 and 8.9 run 8.0's code, and 10.0 is between 9.0 and 12.0: compiling
    # for these three takes half of the time. `make cuda` has theirs.
    run CUDA_ARCHS="80 90 90a 120"
fi
make -s MODE=cusim features >/dev/null 2>&1 </dev/null
if grep -qs '^HAVE_CUDA := yes' build/cusim/features.mk; then
    echo "== CUDA, in the simulator"
    run MODE=cusim
else
    echo "the CUDA code was not tested: for that, install the CUDA Toolkit (nvcc)"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
