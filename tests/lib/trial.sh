# What the trials share (scripts/faults/faults.sh, powercuts.sh, chaos_test.sh): tiny runs of
# ./train, and whether what one of them left behind is what was promised. Source this file from the
# top of the repository; it sets folder (removed at the end), train, libfault, and what the
# functions set.
#
# TRAIN names the program (default ./train); libfault.so lies beside it in tests/.
# shellcheck shell=bash
# shellcheck disable=SC2034 # the scripts read them
train=$(realpath "${TRAIN:-./train}")
helpers=$(dirname "$train")/tests
[ -e "$helpers/libfault.so" ] || helpers=$PWD/build/release/tests
libfault=$helpers/libfault.so
[ -x "$train" ] && [ -e "$libfault" ] || {
    echo "$0: $train or $libfault is missing: make test-build" >&2
    exit 2
}
folder=$(mktemp -d)
folder=$(realpath "$folder")
trap 'rm -rf "$folder"' EXIT
. tests/lib/can_run.sh
. tests/lib/mpi_env.sh
. tests/lib/small_text.sh
export XDG_CACHE_HOME=$folder/home-cache CUSIM_JOB_FOLDER=$folder OMP_NUM_THREADS=1 MPI_LIMIT=
LIMIT=${LIMIT:-25} # seconds after which a run hangs

text=$folder/text.txt
small_text 40 >"$text"
lists=$folder/lists.json.gz
{
    printf '[{"prompt": "0", "completion": "0"}'
    for i in {1..20}; do
        printf ',\n{"prompt": "%d", "completion": "%d"}' "$i" $((i * i))
    done
    echo ']'
} | gzip -c >"$lists"
# A pattern that no scanner knows.
sed 's/|\\\\s+"}/|\\\\s+|(?!)"}/' tests/fixtures/bpe/llama3/tokenizer.json >"$folder/pattern.json"
tiny=(--device cpu --dtype fp32 --data "$text" --tokenizer byte --layers 1 --heads 1 --channels 16
    --seq-len 16 --batch 1 --threads 1 --val-batches 1 --log-every 1)

# The scenarios. Each sets: ranks, launch (before the program), args, recover (the arguments with
# which its checkpoints are gone on with, in one process), every (--save-every), steps, start (the
# step that its folder begins with; 0: it is fresh), fresh_cache, lag (how many steps after it was
# due a checkpoint may still be under way), gpus (that the simulator shows), exports (whether it
# leaves a model in $work/exported). @WORK in args is $work.
model=tests/fixtures/hf/llama3
imported=(--device cpu --dtype fp32 --init "hf:$model" --data random --seq-len 16 --batch 1
    --threads 1 --val-batches 1 --log-every 1)
scenario() { # scenario NAME
    ranks=1 launch=() every=2 steps=4 start=0 fresh_cache= lag=0 gpus=1 exports=
    args=("${tiny[@]}") recover=()
    case $1 in
    one) ;;
    threads) ranks=3 args+=(--zero 3) recover=(--ranks 3) ;;
    mpirun) ranks=2 launch=(mpirun -np 2) args+=(--zero 2) recover=(--ranks 2) ;;
    mpirun3) ranks=3 launch=(mpirun -np 3) args+=(--zero 3) recover=(--ranks 3) ;;
    tensor) ranks=4 args+=(--heads 2 --zero 3 --tp 2 --sequence-parallel) ;;
    mpirun-tensor) ranks=4 launch=(mpirun -np 4) recover=(--ranks 4)
        args+=(--heads 2 --layers 4 --zero 3 --tp 2 --recompute block --partition-activations) ;;
    wires) ranks=4 args+=(--zero 3 --node-size 2 --global-batch 8 --zero-quantized-weights
        --zero-quantized-gradients --zero-hpz-partition-size 2) ;;
    stages) ranks=4 args+=(--heads 2 --layers 2 --tie off --zero 1 --pp 2 --tp 2
        --global-batch 4) ;;
    nvme) args+=(--offload-optimizer nvme --offload-param nvme --delay-update
        --nvme-path "$folder/nvme") ;;
    gpu) args+=(--device cuda) ;;
    gpu3) ranks=3 args+=(--device cuda --zero 3) ;;
    nccl3) ranks=3 args+=(--device cuda --zero 3 --comm-timeout 5) gpus=3 ;;
    nccl-mpirun) ranks=2 launch=(mpirun -np 2) gpus=2 args+=(--device cuda --zero 2
        --comm-timeout 5) recover=(--ranks 2) ;;
    gpu-nvme) args+=(--device cuda --delay-update --offload-optimizer nvme --offload-param cpu
        --nvme-path "$folder/nvme") ;;
    async) ranks=2 steps=7 lag=2 args+=(--zero 3 --save-async) ;;
    load) start=2 ;;
    load3) start=2 ranks=3 args+=(--zero 3) recover=(--ranks 3) ;;
    import) ranks=2 steps=2 args=("${imported[@]}" --zero 3 --offload-optimizer cpu) ;;
    export) ranks=2 steps=2 exports=yes
        args=("${imported[@]}" --zero 3 --export "hf:@WORK/exported") ;;
    adapters) ranks=2 exports=yes
        args=("${imported[@]}" --zero 3 --lora-rank 4 --base-dtype nf4
            --export-adapter "@WORK/exported") ;;
    prepare) steps=2 fresh_cache=yes ;;
    tokenizer) steps=2 fresh_cache=yes args+=(--tokenizer train:300) ;;
    encode) steps=2 fresh_cache=yes args+=(--tokenizer "$PWD/tests/fixtures/bpe/llama3") ;;
    pattern) steps=2 fresh_cache=yes args+=(--tokenizer "$folder/pattern.json") ;;
    lists) steps=2 args=("${tiny[@]/#"$text"/"$lists"}") ;;
    packed) steps=2 args=("${tiny[@]/#"$text"/tests/fixtures/packed/frames.zst}") ;;
    prune) every=1 args+=(--keep 1 --keep-best --val-every 1) ;;
    *)
        echo "$0: no scenario $1" >&2
        exit 2
        ;;
    esac
    if [ ${#launch[@]} = 0 ] && [ $ranks -gt 1 ]; then
        args+=(--ranks $ranks) recover=()
    fi
    args+=(--save-every $every)
}

# Runs the program in $work as the scenario says; sets status and seconds, and leaves what was said
# in $work/said. VARIABLE=VALUE... are for its environment; what follows -- is for it.
run_in() { # run_in WORK [VARIABLE=VALUE...] -- ARGUMENT...
    local work=$1 from=$EPOCHREALTIME environment=()
    shift
    while [ "$1" != -- ]; do
        environment+=("$1")
        shift
    done
    shift
    { # the shell's own word of who was killed is nobody's
        timeout -s KILL "$LIMIT" "${launch[@]}" env "CUSIM_GPUS=$gpus" "${environment[@]}" \
            "$train" "${args[@]//@WORK/"$work"}" --out "$work/out" --cache "$work/cache" "$@" \
            >"$work/said" 2>&1 </dev/null
        status=$?
    } 2>/dev/null
    seconds=$((${EPOCHREALTIME/[.,]/} - ${from/[.,]/}))
}

hash_in() { sed -n 's/^weights hash: //p' "$1"; }

# A fresh $work for the scenario at hand.
fill_work() { # fill_work WORK NAME
    rm -rf "$1"
    mkdir -p "$1" "$folder/nvme"
    [ $start = 0 ] || cp -r "$folder/begin-$2" "$1/out"
    cp -r "$folder/warm-cache" "$1/cache"
    [ ! "$fresh_cache" ] || rm -r "$1"/cache/text-*
}

# The runs without a fault: the warm cache, the folder to begin with, the hash at the end; sets
# reference.
run_references() { # run_references NAME
    local work=$folder/reference-$1 LIMIT=120
    scenario "$1"
    mkdir -p "$work" "$folder/nvme"
    if [ ! -d "$folder/warm-cache" ]; then
        mkdir "$folder/warm"
        scenario one
        run_in "$folder/warm" -- --steps 1
        cp -r "$folder/warm/cache" "$folder/warm-cache"
        # What the machine can do is measured once, however busy it is, and what a simulated GPU can
        # do never: it would take half a minute.
        sed -n 's/^model name[^:]*: *\(.*\)/matmul FLOP\/s, fp32, simulated GPU|\1|1e15/p' \
            /proc/cpuinfo | head -n 1 >>"$folder/warm-cache/machine.txt"
        sed -i 's/ again$//' "$folder/warm-cache/machine.txt"
        rm -r "$folder/warm"
        scenario "$1"
    fi
    if [ $start != 0 ]; then
        start=0 fill_work "$work" "$1"
        run_in "$work" -- --steps $start
        [ $status = 0 ] || return 1
        mv "$work/out" "$folder/begin-$1"
    fi
    fill_work "$work" "$1"
    resume=()
    [ $start = 0 ] || resume=(--resume auto)
    run_in "$work" -- --steps $steps "${resume[@]}"
    reference=$(hash_in "$work/said")
    sed 's/ again$//' "$work/cache/machine.txt" >"$folder/warm-cache/machine.txt"
    [ $status = 0 ] && [ "$reference" ]
}

# The newest checkpoint that was promised by what a run wrote and said: a step's line in the log is
# written when all that was due before that step is done.
promised_by() { # promised_by LOG SAID; sets promised
    local last said
    last=$(sed -n 's/^{"step":\([0-9]*\),"loss".*}$/\1/p' "$1" 2>/dev/null | tail -n 1)
    promised=$(((${last:-1} - 1) / every * every - lag))
    [ "$promised" -ge $start ] || promised=$start
    said=$(sed -n 's/.*saved .*step-0*\([0-9]*\).*/\1/p' "$2" 2>/dev/null | tail -n 1)
    [ "${said:-0}" -le "$promised" ] || promised=$said
}

# An exported model is whole or not there; a whole one makes room for the next. Its marker may be
# left, which is empty. Sets verdict and detail where it is neither.
check_export() { # check_export WORK NAME
    [ "$exports" ] && [ -e "$1/exported" ] || return
    diff -rq -x .writing "$folder/reference-$2/exported" "$1/exported" >"$1/apart" 2>&1 ||
        verdict=wrong detail="the export: $(head -n 1 "$1/apart")"
    [ ! -s "$1/exported/.writing" ] || verdict=wrong detail="the export's marker is not empty"
    rm -rf "$1/exported"
}

# Goes on from what lies in $work: it must come to the reference's weights, from at least step
# $promised, with a log that has each step once. Sets verdict (ok, lost, wrong, hang, signal) and
# detail.
recover_in() { # recover_in WORK
    local work=$1 from hash logged launch=()
    run_in "$work" -- --steps $steps --resume auto "${recover[@]}"
    from=$(sed -n 's/^resumed after step \([0-9]*\).*/\1/p' "$work/said" | tail -n 1)
    hash=$(hash_in "$work/said")
    logged=$(sed -n 's/^{"step":\([0-9]*\),"loss".*}$/\1/p' "$work/out/log.jsonl" 2>/dev/null |
        tr '\n' ' ')
    verdict=ok detail=
    if [ "$seconds" -ge $((LIMIT * 1000000)) ]; then
        verdict=hang detail="the run that goes on"
    elif [ $status -gt 128 ]; then
        verdict=signal detail="the run that goes on: status $status"
    elif [ $status != 0 ]; then
        verdict=lost detail="the run that goes on: $(grep -a '^train: ' "$work/said" | head -n 1)"
    elif [ "${from:-0}" -lt "$promised" ]; then
        verdict=lost detail="step $promised was saved, and step ${from:-0} was gone on from"
    elif [ "$reference" != any ] && [ "$hash" != "$reference" ]; then
        verdict=wrong detail="weights $hash, not $reference, from step ${from:-0}"
    elif [ "$logged" != "$(seq -s ' ' $steps) " ]; then
        verdict=lost detail="the log has the steps $logged"
    elif [ "$exports" ] && [ ! -e "$work/exported" ]; then
        verdict=lost detail="the run that goes on exported nothing"
    fi
}
