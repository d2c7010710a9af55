#!/bin/bash
# The promise of the stages, whole: every stage, world size, recomputation, prefetch, format and
# size, with ranks as threads and as processes.
#
#   scripts/dev/stage_matrix.sh       some twenty minutes on two cores
#
# tests/zero/test_stages.c makes the comparisons; this script runs it with threads, then as 2, 3 and
# 4 processes, and compares the bits of the two kinds of ranks. The last line is `N passed, N
# failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
scripts/setup.sh --test || exit 1
make -s -j"$(nproc)" build/release/tests/test_stages || exit 1
test=build/release/tests/test_stages
folder=$tmp
. tests/lib/mpi_env.sh
. tests/lib/tally.sh

$test --whole >"$tmp/threads" 2>&1
result $? "threads: $(grep -c '^size' "$tmp/threads") sizes, worlds and formats; $(
    grep -c ' OK ' "$tmp/threads") tests"
grep -E 'FAILED|ERROR|LINE' "$tmp/threads"
for n in 2 3 4; do
    mpirun -np $n $test --whole >"$tmp/processes" 2>&1
    status=$?
    result $status "$n processes: the stages agree"
    [ $status = 0 ] || grep -E 'FAILED|ERROR|LINE' "$tmp/processes" | head -n 5
    grep "^size.* $n ranks" "$tmp/threads" | sort >"$tmp/a"
    grep "^size.* $n ranks" "$tmp/processes" | sort >"$tmp/b"
    [ -s "$tmp/a" ] && cmp -s "$tmp/a" "$tmp/b"
    result $? "$n processes: the bits of $n threads ($(wc -l <"$tmp/b") lines)"
done
tally_end
