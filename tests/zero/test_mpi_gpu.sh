#!/bin/bash
# Ranks as processes with a GPU each, in the simulator: NCCL's id travels over MPI, and training has
# the bits of thread ranks; then a rank that is killed or stopped inside a collective of NCCL's, a
# link that breaks, and ranks whose queues run in other orders. Speaks TAP.
#
# TRAIN names the program, of MODE=cusim (default build/cusim/train). CUSIM_GPUS is how many GPUs it
# sees, CUSIM_NCCL_FAULT="WHAT RANK LAUNCH" what goes wrong (tests/cusim/nccl_calls.h).
set -u
train=$(realpath "${TRAIN:-build/cusim/train}")
if ! command -v mpirun >/dev/null || ! grep -q OMPI_COMM_WORLD_SIZE "$train"; then
    echo "ok 1 # SKIP ranks as processes with GPUs: no MPI here, or no simulator in $train"
    echo "1..1"
    exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CUSIM_JOB_FOLDER=$folder XDG_CACHE_HOME=$folder/cache
. "${BASH_SOURCE%/*}/../lib/mpi_env.sh"
. "${BASH_SOURCE%/*}/../lib/tap.sh"

model=(--device cuda --data random --vocab 61 --layers 2 --channels 24 --heads 2 --seq-len 16
    --batch 1 --threads 1 --steps 3 --log-every 1 --val-batches 1 --no-tensorboard --dtype bf16)

# Nobody waits until the simulator's speed is measured: the forecast of time alone depends on it.
mkdir -p "$XDG_CACHE_HOME/zero.c"
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
echo "matmul FLOP/s, bf16, simulated GPU|$cpu|1e15" >"$XDG_CACHE_HOME/zero.c/machine.txt"

job() { # job RANKS ARGUMENT...
    timeout -k 5 60 mpirun -np "$1" "$train" "${model[@]}" "${@:2}" 2>&1
}

# What two runs must have in common, to the last bit: hash, losses, norms.
bits() { # bits OUT SAID
    grep '^weights hash' <<<"$2"
    sed -n 's/.*\("step":.*"grad_norm":[^,]*\),.*/\1/p' "$1/log.jsonl"
    rm -rf "$1"
}

# ---- whole runs ----

# same NAME RANKS VIA ARGUMENT...: a job of processes has the bits in $want; VIA: nccl or mpi.
same() {
    local name=$1 ranks=$2 via=$3 said status by=nccl
    shift 3
    said=$(job "$ranks" --out "$folder/processes" "$@")
    status=$?
    grep -q 'collectives use MPI' <<<"$said" && by=mpi
    [ $status = 0 ] && [ $by = "$via" ] && [ "$(bits "$folder/processes" "$said")" = "$want" ] &&
        [ -z "$(ls -d "$folder"/cusim-nccl-* 2>/dev/null)" ]
    result $? "$ranks processes, $name, over $via: the bits of thread ranks" \
        "status $status, by $by: $(tail -n 5 <<<"$said")"
}

compare() { # compare RANKS STAGE...
    local stage
    export CUSIM_GPUS=$1
    said=$("$train" "${model[@]}" --zero 1 --ranks "$1" --out "$folder/threads" 2>&1)
    want=$(bits "$folder/threads" "$said")
    [ "$(wc -l <<<"$want")" = 4 ]
    result $? "$1 thread ranks with a GPU each: three steps to compare with" "$said"
    for stage in "${@:2}"; do
        same "a GPU each, stage $stage" "$1" nccl --zero "$stage"
    done
}
compare 2 3
compare 3 0 1 2 3
CUSIM_GPUS=1 same "one GPU for all" 3 mpi --zero 3
# Each launch waits until all that its process has queued is done, exchanges too (loading.cc).
CUSIM_GPUS=1 CUSIM_LOAD_LATE=1 same "one GPU for all, kernels loaded late" 3 mpi --zero 3

llama=(--family llama --kv-heads 1 --tie off)
export CUSIM_GPUS=2
said=$("$train" "${model[@]}" "${llama[@]}" --ranks 2 --out "$folder/threads" 2>&1)
want_before=$want
want=$(bits "$folder/threads" "$said")
same "Llama's shape, split masters in host memory" 2 nccl "${llama[@]}" --zero 3 --master-dtype split \
    --offload-optimizer cpu --recompute mlp
want=$want_before
export CUSIM_GPUS=3

# Shards over half of the ranks: two more communicators, on the same queue.
export CUSIM_GPUS=4
said=$("$train" "${model[@]}" --zero 1 --zero-shard-size 2 --ranks 4 --out "$folder/threads" 2>&1)
want=$(bits "$folder/threads" "$said")
[ "$(wc -l <<<"$want")" = 4 ]
result $? "4 thread ranks with a GPU each, shards over 2: three steps to compare with" "$said"
same "shards over 2" 4 nccl --zero 3 --zero-shard-size 2
CUSIM_GPUS=1 same "one GPU for all, shards over 2" 4 mpi --zero 2 --zero-shard-size 2

# Weights in 8 bits and gradients in 4, in two hops.
wire=(--zero-quantized-weights --zero-quantized-gradients --node-size 2)
said=$("$train" "${model[@]}" "${wire[@]}" --zero 1 --ranks 4 --out "$folder/threads" 2>&1)
want=$(bits "$folder/threads" "$said")
[ "$(wc -l <<<"$want")" = 4 ]
result $? "4 thread ranks with a GPU each, quantized: three steps to compare with" "$said"
same "quantized" 4 nccl "${wire[@]}" --zero 3 --zero-hpz-partition-size 2
CUSIM_GPUS=1 same "one GPU for all, quantized" 4 mpi "${wire[@]}" --zero 2
want=$want_before
export CUSIM_GPUS=3

# A launcher may show each process its own GPU alone.
cat >"$folder/own" <<END
#!/bin/bash
CUDA_VISIBLE_DEVICES=\$OMPI_COMM_WORLD_RANK exec "$train" "\$@"
END
chmod +x "$folder/own"
train=$folder/own same "each shown one GPU" 3 nccl --zero 2

# NCCL's operations stand in the trace of each process, under the collective's name.
job 2 --zero 3 --out "$folder/traced" --trace "$folder/trace" >"$folder/said" 2>&1
traced=$(cat "$folder/trace" "$folder/trace.1" | grep -c '"cat":"comm".*"operation":"nccl"')
[ "$traced" -gt 10 ] && grep -q '"name":"reduce_scatter".*"operation":"nccl"' "$folder/trace.1"
result $? "NCCL's operations are traced" "$traced: $(cat "$folder/said")"

# ---- what goes wrong ----

# fault NAME WHAT RANK LAUNCH ERROR ARGUMENT...: the job ends, one line says why, those who are
# left abort their communicators, and no process stays.
fault() {
    local name=$1 error=$5 said status aborts left begin=$SECONDS
    said=$(CUSIM_NCCL_FAULT="$2 $3 $4" job 3 --zero 3 --comm-timeout 2 --out "$folder/fault" \
        "${@:6}")
    status=$?
    # Open MPI 4.1's own mpirun may crash when it has ended a job; the job has ended as it should.
    [ $status = 139 ] && grep -q 'mpirun(+' <<<"$said" && status=2
    aborts=$(grep '^cusim: rank [0-9]: ncclCommAbort' <<<"$said" | sort -u | wc -l)
    left=$(pgrep -f "^$train .*--out $folder/fault")
    [ $status != 0 ] && [ $status != 124 ] && [ $((SECONDS - begin)) -le 20 ] &&
        [ "$(grep -c '^train: ' <<<"$said")" = 1 ] && error_is "$error" &&
        [ "$aborts" -ge 1 ] && [ -z "$left" ]
    said="status $status, $aborts aborts, $((SECONDS - begin)) s, left: $left; $said"
    result $? "fault_20: $name" "$(tail -n 20 <<<"$said")"
    rm -rf "$folder/fault" "$folder"/cusim-nccl-*
}

fault "killed in its first collective" kill 1 0 \
    'E_RANK_SILENT collective 0,*of rank 1'
for check in --check-comm --no-check-comm; do
    fault "killed between ncclGroupStart and End, $check" kill 1 20 \
        'E_RANK_SILENT collective [1-9]*of rank 1' $check
done
fault "stopped there: missed by those who compare their calls" stop 2 20 \
    'E_RANK_SILENT collective [1-9]*of rank 2 for 2 s'
fault "stopped there: missed when the roll is called" stop 2 20 \
    'E_RANK_SILENT for 2 s*of rank 2' --no-check-comm
fault "a broken link that NCCL tells of" error 1 30 'E_NCCL rank 1: collective'
fault "a broken link that nobody tells of" silence 1 30 \
    'E_RANK_SILENT for 2 s; all ranks'

echo "1..$count"
exit $failed
