#!/bin/bash
# Writes the budgets on paper in docs/gpu.md again, after a change of what a step launches.
#
#   scripts/budget.sh [STEP_KERNELS]    default: build/cusim/tests/step_kernels
#
# What stands between "<!-- step_kernels WORDS -->" and "<!-- end -->" is what the program prints
# for these words. It needs no GPU: make MODE=cusim build/cusim/tests/step_kernels. The test
# test_step_kernels compares both.
set -eu
. "${0%"${0##*/}"}help.sh"
cd "$(dirname "$0")/.."
program=${1:-build/cusim/tests/step_kernels}
[ -x "$program" ] || { echo "budget.sh: $program is not built" >&2 && exit 2; }
new=$(mktemp)
trap 'rm -f "$new"' EXIT
while IFS= read -r line; do
    if [[ $line =~ ^'<!-- step_kernels '(.*)' -->'$ ]]; then
        read -ra words <<<"${BASH_REMATCH[1]}"
        printf '%s\n\n' "$line"
        "$program" "${words[@]}"
        printf '\n'
        while IFS= read -r line && [ "$line" != '<!-- end -->' ]; do :; done
    fi
    printf '%s\n' "$line"
done <docs/gpu.md >"$new"
cat "$new" >docs/gpu.md
