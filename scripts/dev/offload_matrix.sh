#!/bin/bash
# Every placement against every other: one weights hash. And every wait that offload needs: each
# left out, and missed.
#
#   scripts/dev/offload_matrix.sh
#
# test_offload --whole compares runs with optimizer state, parameters and activations on the device,
# in the CPU's memory and on NVMe, at every stage, on 1 to 3 ranks, with and without accumulation,
# in every format, with the run in which all lies on the device. test_gpu_offload --waits leaves out
# one record, wait or synchronisation of a step at a time, in the simulator (where nvcc is). The
# test suite has a part of both. The last line is `N passed, N failed`; a quarter of an hour.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
scripts/setup.sh --test || exit 1
passed=0 failed=0

run() { # run WHAT MODE PROGRAM FLAG
    local what=$1 mode=$2 program=build/$2/tests/$3 start=$SECONDS
    if make -s -j"$(nproc)" MODE="$mode" "$program" && "$program" "$4"; then
        echo "$what, in $((SECONDS - start)) s"
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

run "every placement" release test_offload --whole
if grep -q 'HAVE_CUDA := yes' build/release/features.mk; then
    run "every wait" cusim test_gpu_offload --waits
else
    echo "no nvcc: no wait was left out"
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
