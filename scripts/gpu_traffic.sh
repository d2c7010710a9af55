#!/bin/bash
# Writes the table of what kernels ask of memory in docs/gpu.md again, after a change of a kernel.
#
#   scripts/gpu_traffic.sh [TEST_CUSIM_MEMORY]    default: build/cusim/tests/test_cusim_memory
#
# It stands between "<!-- test_cusim_memory table -->" and "<!-- end -->", and needs no GPU: make
# MODE=cusim build/cusim/tests/test_cusim_memory. The test of that name compares both.
set -eu
. "${0%"${0##*/}"}help.sh"
cd "$(dirname "$0")/.."
program=${1:-build/cusim/tests/test_cusim_memory}
[ -x "$program" ] || { echo "gpu_traffic.sh: $program is not built" >&2 && exit 2; }
new=$(mktemp)
trap 'rm -f "$new"' EXIT
while IFS= read -r line; do
    printf '%s\n' "$line"
    [ "$line" = '<!-- test_cusim_memory table -->' ] || continue
    printf '\n'
    "$program" table
    printf '\n'
    while IFS= read -r line && [ "$line" != '<!-- end -->' ]; do :; done
    printf '%s\n' "$line"
done <docs/gpu.md >"$new"
cat "$new" >docs/gpu.md
