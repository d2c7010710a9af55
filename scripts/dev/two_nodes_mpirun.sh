#!/bin/bash
# An example: one training job over two machines with mpirun, two ranks on each.
#
#   scripts/dev/two_nodes_mpirun.sh HOST1 HOST2 [FLAG OF ./train ...]
#
# Needs mpirun. Both machines need the same checkout built in the same place, Open MPI of the same
# version, and ssh from the first to the second without a password. --out may be a folder that both
# see (NFS or the like), or one of each machine's own: every rank writes its part of a checkpoint
# there, and a resume finds it. The text is looked for on both, and prepared once on each; a --cache
# that both see saves one of the two. --tp 2 would put the two ranks of a machine, which follow one
# another, on parts of every matrix. Change what you need in a copy.
set -eu
. "${0%"${0##*/}"}../help.sh"
[ $# -ge 2 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
host1=$1 host2=$2
shift 2
cd "$(dirname "$0")/../.."

options=(
    -np 4 --host "$host1:2,$host2:2"
    # A rank has several threads: they share the cores that --threads counts, and mpirun must not
    # bind them all to one.
    --bind-to none
    # When mpirun is told to end (Ctrl-C, SIGTERM), it tells all ranks, and they save at the next
    # step. It kills them after 1 s unless told to wait (Open MPI 4; 5 cannot be told, so there send
    # SIGTERM to a rank): give a step and a checkpoint time enough. mpirun itself then ends after
    # this many seconds, also when a rank has died.
    --mca odls_base_sigkill_timeout 60
)
exec mpirun "${options[@]}" ./train --data tinyshakespeare --tokenizer byte --zero 3 \
    --comm-timeout 120 --out out/two_nodes "$@"
