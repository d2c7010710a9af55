#!/bin/bash
# Every test, from a fresh machine on: installs what is missing, builds, runs. Where the CUDA
# Toolkit is installed, the CUDA code too, in a simulator that needs no GPU (MODE=cusim).
#
#   scripts/test.sh
#
# The last line is `N passed, N failed`; the status is 0 if none failed. One of the two commands of
# the README; .ci/run adds the checks of form.
set -u
cd "$(dirname "$0")/.." || exit 1
fail() {
    echo "test: $1"
    echo "0 passed, 1 failed"
    exit 1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0

# run MAKE_ARGUMENT...: builds and runs one mode's tests, and adds its counts.
run() {
    make -j"$(nproc)" "$@" test-build </dev/null || fail "the build failed"
    make "$@" test </dev/null | tee "$log"
    local counts
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    [[ $counts =~ ([0-9]+)[^0-9]+([0-9]+) ]] || fail "the tests did not run to their end"
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
}

scripts/setup.sh --test </dev/null || fail "the packages for the tests could not be installed"
run CUDA_ARCHS=all # with or without a GPU
if grep -q '^HAVE_CUDA := yes' build/release/features.mk; then
    echo "== CUDA, in the simulator"
    run MODE=cusim
else
    echo "the CUDA code was not tested: there is no CUDA Toolkit on this machine"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
