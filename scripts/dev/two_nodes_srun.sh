#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --time=01:00:00
#SBATCH --signal=TERM@120
# An example: one training job over two machines under Slurm, two ranks on each.
#
#   sbatch scripts/dev/two_nodes_srun.sh [FLAG OF ./train ...]      (from the top of the repository)
#
# Slurm starts the ranks itself (srun) and tells them of each other through PMIx; `srun --mpi=list`
# shows what a cluster has. --signal above sends SIGTERM to every rank two minutes before the time
# is over: they save at the next step and end, and the same command goes on from there, because of
# --resume auto. --out may be a folder that all machines see, or one of each machine's own. With
# --tp 2 the two ranks of a machine (--distribution=block) have parts of every matrix. Needs srun.
set -eu
. "${0%"${0##*/}"}../help.sh"
export OMP_PROC_BIND=false # the threads of a rank move freely among its cores

# The default of --threads is a machine's cores shared out among its ranks; here Slurm has decided.
exec srun --mpi=pmix ./train --data tinyshakespeare --tokenizer byte --zero 3 \
    --threads "${SLURM_CPUS_PER_TASK:-8}" --comm-timeout 120 --out out/two_nodes --resume auto "$@"
