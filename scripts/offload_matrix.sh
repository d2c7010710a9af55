#!/bin/bash
# Every placement against every other: one weights hash.
#
#   scripts/offload_matrix.sh
#
# test_offload --whole compares runs with optimizer state, parameters and activations on the device,
# in the CPU's memory and on NVMe, at every stage, on 1 to 3 ranks, with and without accumulation,
# in every format, with the run in which all lies on the device. The test suite has a part of it.
# The last line is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 1
make -s -j"$(nproc)" build/release/tests/test_offload || exit 1
start=$SECONDS
if build/release/tests/test_offload --whole; then
    echo "every placement, in $((SECONDS - start)) s"
    echo "1 passed, 0 failed"
else
    echo "0 passed, 1 failed"
    exit 1
fi
