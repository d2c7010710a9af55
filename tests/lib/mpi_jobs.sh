# What the tests of ranks as processes share (test_mpi.sh, test_mpi_faults.sh): source this file. It
# sets train (which TRAIN names, default ./train), helpers and folder; with no MPI here it ends the
# test, which is skipped then.
# shellcheck shell=bash
# shellcheck disable=SC2034 # its tests read them
train=$(realpath "${TRAIN:-./train}")
helpers=$(dirname "$train")/tests
[ -d "$helpers" ] || helpers=build/release/tests
if ! command -v mpirun >/dev/null || [ ! -x "$helpers/mpi_ranks" ]; then
    echo "ok 1 # SKIP ranks as processes: no MPI here (libopenmpi-dev, openmpi-bin)"
    echo "1..1"
    exit 0
fi
folder=$(mktemp -d)
pids= # of the job at hand
clean_up() {
    for p in $pids; do kill -9 "$p" 2>/dev/null; done
    rm -rf "$folder"
}
trap clean_up EXIT
export XDG_CACHE_HOME=$folder/cache
. "${BASH_SOURCE%/*}/known_speeds.sh"
. "${BASH_SOURCE%/*}/mpi_env.sh"
. "${BASH_SOURCE%/*}/tap.sh"

job() { # job RANKS PROGRAM ARGUMENT...
    timeout -k 5 120 mpirun -np "$@" 2>&1
}

# On every machine the same: without these two, the machine chooses.
here=(--device cpu --dtype fp32)
model=("${here[@]}" --data random --vocab 50257 --layers 2 --channels 64 --heads 2 --seq-len 24
    --batch 1 --threads 1 --log-every 1 --val-batches 1 --no-tensorboard)
