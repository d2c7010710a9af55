#!/bin/bash
# Writes the tables on paper in docs/gpu.md again: budgets of a step after a change of what it
# launches, and what kernels ask of memory after a change of a kernel.
#
#   scripts/bench/gpu_tables.sh [PROGRAM ...]    default: step_kernels test_cusim_memory
#
# What stands between "<!-- PROGRAM WORDS -->" and "<!-- end -->" is what build/cusim/tests/PROGRAM
# prints for these words. It needs no GPU: make MODE=cusim build/cusim/tests/PROGRAM. The tests
# test_step_kernels and test_cusim_memory compare both.
set -eu
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- step_kernels test_cusim_memory
for program; do
    program=build/cusim/tests/$program
    [ -x "$program" ] || { echo "gpu_tables.sh: $program is not built" >&2 && exit 2; }
done
new=$(mktemp)
trap 'rm -f "$new"' EXIT
while IFS= read -r line; do
    printf '%s\n' "$line"
    [[ $line =~ ^'<!-- '([a-z_]+)' '(.*)' -->'$ ]] || continue
    [[ " $* " = *" ${BASH_REMATCH[1]} "* ]] || continue
    read -ra words <<<"${BASH_REMATCH[2]}"
    printf '\n'
    "build/cusim/tests/${BASH_REMATCH[1]}" "${words[@]}"
    printf '\n'
    while IFS= read -r line && [ "$line" != '<!-- end -->' ]; do :; done
    printf '%s\n' "$line"
done <docs/gpu.md >"$new"
cat "$new" >docs/gpu.md
