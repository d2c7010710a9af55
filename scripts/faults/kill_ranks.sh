#!/bin/bash
# Kills one rank of four, with kill -9, at twenty random moments of twenty jobs. In turn these are
# the stages, tensor parallelism (sums, rows in parts, kept activations in parts), replicas, a
# second partition of weights, few bits on the way, and pipelines. Each time all ranks and mpirun
# must be gone within 5 s, with a line that names the rank.
#
#   scripts/faults/kill_ranks.sh [TIMES]
#
# It is the test of tests/zero/test_mpi_faults.sh, oftener. The last line is how many passed and
# failed.
set -eu
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.."
scripts/setup.sh --test
make -j test-build >/dev/null
KILLS=${1:-20} ONLY=kills TRAIN=build/release/train bash tests/zero/test_mpi_faults.sh |
    awk '{ print } /^ok/ { p++ } /^not ok/ { f++ } END { print p + 0 " passed, " f + 0 " failed"
          exit f > 0 || !p }'
