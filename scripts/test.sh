#!/bin/bash
# Every test, from a fresh machine on: installs what is missing, builds, runs.
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
scripts/setup.sh --test </dev/null || fail "the packages for the tests could not be installed"
make -j"$(nproc)" test-build </dev/null || fail "the build failed"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
make test </dev/null | tee "$log"
status=${PIPESTATUS[0]}
# A failing make speaks last; the count is to be the last line.
counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
[ -n "$counts" ] || fail "the tests did not run to their end"
[ "$status" = 0 ] || echo "$counts"
exit "$status"
