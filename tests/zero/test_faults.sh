#!/bin/bash
# The covering part of the trials (docs/reliability.md): some faults of every class, power cuts in
# the models, flips in every kind of file, and a short swarm. Speaks TAP; a minute on two cores. The
# whole of each is its script.
#
# TRAIN names the program (default ./train); the trials' programs lie beside it in tests/.
set -u
cd "${BASH_SOURCE%/*}/../.." || exit 1
. tests/lib/tap.sh
export TRAIN=${TRAIN:-./train}

trial() { # trial NAME LAST-LINE COMMAND...: its last line must be as the pattern says
    local name=$1 pattern=$2 said
    shift 2
    said=$("$@" 2>&1)
    tail -n 1 <<<"$said" | grep -qE "$pattern"
    result $? "$name: $(tail -n 1 <<<"$said")" "$said"
}

none='[1-9][0-9]* [a-z ]*: 0 lost, 0 wrong, 0 hangs, 0 signals'
trial "faults of files" "$none" env MOST=1 SCENARIOS="one load async" scripts/faults/faults.sh open read \
    write fsync rename unlink mkdir close dir stat file
trial "faults of memory and threads" "$none" env MOST=6 SCENARIOS=threads scripts/faults/faults.sh \
    malloc mmap thread
trial "faults of packed data" "$none" env MOST=1 SCENARIOS="lists packed" scripts/faults/faults.sh \
    open read
trial "faults of models in and out" "$none" env MOST=1 SCENARIOS="import export" \
    scripts/faults/faults.sh open write fsync rename dir file
"$TRAIN" --version | grep -qE '^liburing +[0-9]' &&
    trial "faults of the disk" "$none" env MOST=2 SCENARIOS=nvme scripts/faults/faults.sh \
        io_uring
trial "power cuts" "$none" env EVERY=13 SEEDS="0 2" DISKS="ordered nasty" scripts/faults/powercuts.sh \
    one prune
trial "flips" '0 not found, 0 wrong, 0 hangs, 0 signals' scripts/faults/corruption.sh 0 2
trial "a swarm" ' 0 violations' scripts/faults/chaos_test.sh 8 1
echo "1..$count"
exit $failed
