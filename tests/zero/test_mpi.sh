#!/bin/bash
# Ranks as processes: the bits of thread ranks at every stage, the traffic that MPI itself sees, and
# what is refused. What happens to a job when a rank fails is in test_mpi_faults.sh. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/mpi_jobs.sh"
. "${BASH_SOURCE%/*}/../lib/small_text.sh"
model+=(--vocab 5000) # some messages of a collective are still many pieces

# What two runs must have in common, to the last bit: hash, losses, norms.
bits() { # bits OUT SAID
    grep '^weights hash' <<<"$2"
    sed -n 's/.*\("step":.*"grad_norm":[^,]*\),.*/\1/p' "$1/log.jsonl"
}

# ---- the collectives, and whole runs ----

for case in "2 collectives" "2 staged" "3 collectives" "3 staged" "4 collectives"; do
    read -r np how <<<"$case"
    said=$(job $np "$helpers/mpi_ranks" $how)
    [ $? = 0 ] && [ "$(grep -c '^rank [0-9]*: [0-9]* comparisons$' <<<"$said")" = $np ]
    result $? "every collective between $np processes, in many sizes ($how)" "$said"
done

for world in "2 fp32" "3 bf16" "4 bf16"; do
    read -r np dtype <<<"$world"
    said=$("$train" "${model[@]}" --steps 4 --dtype $dtype --zero 1 --ranks $np \
        --out "$folder/threads" 2>&1)
    want=$(bits "$folder/threads" "$said")
    rm -rf "$folder/threads"
    [ "$(wc -l <<<"$want")" = 5 ]
    result $? "$np thread ranks, $dtype: four steps to compare with" "$said"
    for stage in 0 1 2 3; do
        out=$folder/processes
        said=$(job $np "$train" "${model[@]}" --steps 4 --dtype $dtype --zero $stage \
            --comm-chunk 65536 --out "$out")
        status=$?
        [ $status = 0 ] && [ "$(bits "$out" "$said")" = "$want" ]
        result $? "$np processes, stage $stage, $dtype: hash, losses, norms of thread ranks" \
            "status $status: $(tail -n 5 <<<"$said")"
        rm -rf "$out"
    done
done

# Llama's shape, its master weights in two more formats, states in every tier.
llama=(--family llama --heads 4 --kv-heads 2 --tie off --vocab 61 --steps 4 --dtype bf16)
disk="--nvme-path $folder"
for master in split bf16; do
    plain=$master
    [ $master = bf16 ] || plain=fp32
    said=$("$train" "${model[@]}" "${llama[@]}" --ranks 3 --master-dtype $plain \
        --out "$folder/threads" 2>&1)
    want=$(bits "$folder/threads" "$said")
    rm -rf "$folder/threads"
    [ "$(wc -l <<<"$want")" = 5 ] || want="none: $said"
    for how in "--zero 0" "--zero 1 --offload-optimizer cpu --recompute attention" \
        "--zero 2 --offload-optimizer nvme $disk --offload-param cpu --recompute mlp" \
        "--zero 3 --offload-param nvme $disk --recompute block"; do
        out=$folder/processes
        # shellcheck disable=SC2086 # words
        said=$(job 3 "$train" "${model[@]}" "${llama[@]}" --master-dtype $master $how --out "$out")
        status=$?
        [ $status = 0 ] && [ "$(bits "$out" "$said")" = "$want" ]
        result $? "3 processes, Llama's shape, master $master, $how: the bits of thread ranks" \
            "status $status: $want $(tail -n 5 <<<"$said")"
        rm -rf "$out"
    done
done

# ---- traffic ----

# With calls compared, each rank also sends its call, 24 bytes, to every other.
for stage in 0 1 2 3; do
    for check in --no-check-comm --check-comm; do
        out=$folder/traffic
        said=$(PMPI_COUNT=$folder/sent job 3 -x LD_PRELOAD="$(realpath "$helpers/pmpi_count.so")" \
            "$train" "${model[@]}" --steps 2 --zero $stage $check --out "$out")
        own=$(sed -n 's/.*"sent_bytes":{\(.*\)}}/\1/p' "$out/log.jsonl" | tr ',' '\n' |
            awk -F: '{ sum += $2 } END { printf "%.0f\n", sum }')
        seen=$(cat "$folder"/sent.[0-2])
        if [ $check = --no-check-comm ]; then
            [ "$own" -gt 100000 ] && [ "$seen" = "$own"$'\n'"$own"$'\n'"$own" ]
            result $? "stage $stage: MPI sent what the program counted, to the byte" \
                "counted $own, sent ${seen//$'\n'/ }"
        else
            extra=$(($(head -n 1 <<<"$seen") - own))
            [ $extra -gt 0 ] && [ $((extra % 48)) = 0 ] && [ $extra -lt 10000 ]
            result $? "stage $stage: comparing calls adds 24 bytes a call and rank" "added $extra"
        fi
        rm -rf "$out" "$folder"/sent.*
    done
done

# ---- the launcher's world, and what is refused ----

# refused NAME ERROR ARGUMENT...: told once by all processes together, status 2, no --out folder.
refused() {
    local name=$1 error=$2 said status
    shift 2
    said=$(job 3 "$train" --out "$folder/refused" "$@")
    status=$?
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        error_is "$error" && [ ! -e "$folder/refused" ]
    result $? "refused once: $name" "status $status: $said"
}
refused "--ranks under a launcher" 'E_RANKS --ranks 3' "${model[@]}" --ranks 3
refused "a mistyped flag" 'E_FLAG_UNKNOWN --chanels' "${model[@]}" --chanels 3
refused "data that is not there" "E_FILE_READ $folder/none" --data "$folder/none"
refused "too little memory" 'E_MEMORY --device-mem' "${model[@]}" --device-mem 1M
said=$(OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 timeout -k 5 60 "$train" "${model[@]}" \
    --out "$folder/refused" 2>&1)
status=$?
[ $status = 2 ] && error_is 'E_MPI 4 processes'
result $? "refused: a launcher that MPI does not know" "status $status: $said"
said=$(job 2 bash -c 'ulimit -s $((OMPI_COMM_WORLD_RANK == 1 ? 64 : 8192)); exec "$@"' bash \
    "$train" "${model[@]}" --steps 1 --out "$folder/stack")
status=$?
[ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
    error_is 'E_STACK_LIMIT ulimit -s 64'
result $? "refused once: what one process alone has not" "status $status: $said"

said=$(job 3 "$train" "${model[@]}" --steps 1 --zero 3 --plan)
[ "$(grep -c '^memory' <<<"$said")" = 1 ] && grep -q '^ *communication' <<<"$said"
result $? "one process tells the plan" "$said"

# Weights out and in: rank 0 makes the files, the other processes open them.
plain=("${here[@]}" --data random --steps 0 --layers 2 --heads 2 --channels 32 --seq-len 16
    --dtype fp32 --batch 1 --threads 1)
"$train" "${plain[@]}" --ranks 3 --zero 3 --out "$folder/w" --export "llmc:$folder/w.bin" \
    >/dev/null 2>&1
said=$(job 3 "$train" "${plain[@]}" --zero 3 --init "run:$folder/w" --out "$folder/w1" \
    --export "llmc:$folder/w1.bin")
cmp -s "$folder/w.bin" "$folder/w1.bin"
result $? "3 processes take a run's weights and export llm.c's file: as thread ranks" "$said"
"$train" "${plain[@]}" --init "llmc:$folder/w.bin" --out "$folder/w2" --export "hf:$folder/w2hf" \
    >/dev/null 2>&1
said=$(job 2 "$train" "${plain[@]}" --zero 2 --init "llmc:$folder/w1.bin" --out "$folder/w3" \
    --export "hf:$folder/w3hf")
cmp -s "$folder/w2hf/model.safetensors" "$folder/w3hf/model.safetensors"
result $? "2 processes take llm.c's file and export a folder: as one rank" "$said"

# Text is prepared by one process, and all find it.
small_text 300 >"$folder/text.txt"
text=("${here[@]}" --data "$folder/text.txt" --tokenizer byte --layers 2 --heads 2 --channels 32
    --seq-len 32 --batch 2 --threads 1 --log-every 0)
said=$(job 3 "$train" "${text[@]}" --steps 3 --out "$folder/text")
status=$?
[ $status = 0 ] && [ "$(grep -c '^tokens: ' <<<"$said")" = 1 ] &&
    [ "$(grep -c '^weights hash' <<<"$said")" = 1 ]
result $? "one process prepares the text and tells it" "status $status: $said"
said=$(job 3 "$train" "${text[@]}" --steps 3 --out "$folder/unused" --prepare-only 2>&1)
status=$?
[ $status = 0 ] && [ "$(grep -c '^prepared: ' <<<"$said")" = 1 ] && [ ! -e "$folder/unused" ]
result $? "which is all that --prepare-only does" "status $status: $said"
said=$(job 3 "$train" "${text[@]}" --steps 3 --out "$folder/unused" --data file:///none.txt 2>&1)
[ "$(grep -c '^train: ' <<<"$said")" = 1 ] && error_is 'E_FILE_READ file:///none.txt'
result $? "what cannot be fetched ends the job with one line" "$said"

echo "1..$count"
exit $failed
