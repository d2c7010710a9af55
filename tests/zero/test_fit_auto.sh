#!/bin/bash
# --fit auto as a user meets it: it prints the three best and trains with the first, within the
# limits; flags that are given stay; config.json has the choice, and a resume keeps it; all
# processes choose the same; where nothing fits one line says what is nearest. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"
rm "$XDG_CACHE_HOME/zero.c/machine.txt" # here they are measured

model=(--device cpu --dtype bf16 --data random --vocab 61 --layers 3 --channels 48 --heads 2
    --seq-len 32 --global-batch 4 --threads 1 --val-batches 1 --no-tensorboard)

run() { # run NAME ARGUMENT...
    "$train" "${model[@]}" --out "$folder/$1" "${@:2}" 2>&1
}
value() { # value NAME FLAG: of its config.json
    sed -n "s/^[[:space:]]*\"$2\":[[:space:]]*\"\{0,1\}\([a-z0-9]*\).*/\1/p" \
        "$folder/$1/config.json"
}

said=$(run free --fit auto --steps 4)
status=$?
rows=$(sed -n '/^ *device  *host/,/^memory/p' <<<"$said" | grep -cE '^ +[0-9.]+ +[0-9.]+')
[ $status = 0 ] && [ "$rows" = 3 ] && grep -q '^weights hash' <<<"$said"
result $? "it prints the three best, and trains" "$said"
[ "$(value free recompute) $(value free batch)" = "none 4" ] # where updates run is as quick
result $? "with room for all nothing is computed again or accumulated" \
    "$(cat "$folder/free/config.json")"

# What all of it takes, and less.
peak=$("$train" "${model[@]}" --batch 4 --plan --json | sed -n 's/^\t"peak":\t\([0-9]*\),/\1/p')
said=$(run tight --fit auto --steps 4 --device-mem $((peak / 2)))
status=$?
got=$(sed -n 's/^[[:space:]]*"peak":[[:space:]]*\([0-9]*\),*$/\1/p' "$folder/tight/memory.json" |
    sort -n | head -n 1)
[ $status = 0 ] && [ "${got:-0}" -gt 0 ] && [ "$got" -le $((peak / 2)) ]
result $? "with half of that it changes, and keeps to the limit" "$peak, $got: $said"
said=$(run fixed --fit auto --steps 2 --recompute mlp --batch 2 --offload-optimizer cpu)
[ $? = 0 ] && [ "$(value fixed recompute) $(value fixed batch)" = "mlp 2" ] &&
    [ "$(value fixed offload-optimizer)" = cpu ]
result $? "what is said stays" "$said"

choice() {
    echo "$(value "$1" zero) $(value "$1" recompute) $(value "$1" batch) $(value "$1" master)" \
        "$(value "$1" offload-optimizer) $(value "$1" offload-param)" \
        "$(value "$1" offload-activations)"
}
before=$(choice tight)
said=$("$train" --out "$folder/tight" --resume auto --steps 6 2>&1)
[ $? = 0 ] && [ "$(choice tight)" = "$before" ] && ! grep -q -- '--fit auto:' <<<"$said"
result $? "a resume keeps the choice, and does not choose again" "$before: $said"
said=$("$train" --out "$folder/tight" --resume auto --fit auto --device-mem 0 --steps 8 2>&1)
[ $? = 0 ] && grep -q -- '--fit auto: the best' <<<"$said" &&
    [ "$(value tight recompute)" = none ] &&
    [ "$(choice tight | cut -d ' ' -f 3-4)" = "$(cut -d ' ' -f 3-4 <<<"$before")" ]
result $? "a resume that says --fit chooses again, but what changes results" "$before: $said"

said=$(run masters --fit auto,masters --steps 2)
[ $? = 0 ] && grep -q '^weights hash' <<<"$said"
result $? "master weights and moments may be chosen, too" "$said"
said=$(run none --fit auto --steps 2 --device-mem 10k)
status=$?
error_is 'E_FIT_NOTHING --fit auto*device memory' "$(tail -n 1 <<<"$said")" &&
    [ ! -e "$folder/none/config.json" ]
result $? "where nothing fits, a line says what is nearest" "$status: $said"

# What it says is enough: a run that is given it is not refused for something else.
need() { # need MEMORY: the MiB of the last line, rounded up
    sed -n "s/.* even with .* \([0-9]*\)\.[0-9] MiB ([^)]*) of $1 memory are needed.*/\1/p" \
        <<<"$(tail -n 1 <<<"$said")" | awk '{ print $1 + 1 }'
}
both=(--plan --model gpt2 --data random --dtype bf16 --seq-len 64 --batch 1 --device cpu --fit auto
    --offload-optimizer cpu --offload-param cpu)
said=$("$train" "${both[@]}" --device-mem 10M --host-mem 20M 2>&1)
device=$(need device) host=$(need CPU)
short=$said
said=$("$train" "${both[@]}" --device-mem "${device:-1}Mi" --host-mem "${host:-1}Mi" 2>&1)
[ $? = 0 ] && [ "${device:-0}" -gt 10 ] && [ "${host:-0}" -gt 20 ]
result $? "it says all that there is too little of" "$device, $host: $short
$said"
said=$("$train" --plan --params 7G --fit auto 2>&1)
[ $? = 2 ] && error_is 'E_PARAMS_FLAG --fit'
result $? "a number of parameters has nothing to choose" "$said"
said=$("$train" "${model[@]}" --plan --fit auto --host-mem 64G --nvme-block 8192 2>&1)
[ $? = 0 ] && grep -q -- '--fit auto: the best' <<<"$said"
result $? "what is said of memory that it may not use is no contradiction" "$said"
said=$("$train" "${model[@]}" --plan --fit auto --ranks 2 2>&1)
[ $? = 0 ] && grep -q 'each of 2 ranks' <<<"$said"
result $? "on two ranks" "$said"
# With this much of the host for each of them, and with as much for both.
two=("${model[@]}" --plan --ranks 2 --zero 0 --offload-param none --batch 2
    --offload-activations none --offload-optimizer cpu --master-dtype fp32 --json)
share=$("$train" "${two[@]}" | sed -n 's/^\t"node_host":\t\([0-9]*\),/\1/p')
each=$("$train" "${two[@]}" --fit auto --host-mem-per-rank $((share / 2)) 2>&1)
both=$("$train" "${two[@]}" --fit auto --host-mem $((share / 2)) 2>&1)
[ "${share:-0}" -gt 0 ] && grep -q "\"node_host\":.*$share," <<<"$each" &&
    error_is 'E_FIT_NOTHING 2 ranks, --host-mem' "$both"
result $? "--host-mem bounds both ranks together" "$share: $each, $both"

for i in 1 2 3 4 5 6 7 8 9 10; do
    echo "{\"prompt\": \"question $i\", \"completion\": \" answer $i\"}"
done >"$folder/x.jsonl"
# New memory is filled, lest starts that nobody wrote be 0 by chance.
said=$(MALLOC_PERTURB_=85 "$train" --device cpu --family llama --dtype fp32 \
    --data "$folder/x.jsonl" --tokenizer byte --layers 1 --channels 32 --heads 2 --seq-len 48 \
    --global-batch 2 --threads 1 --steps 2 --no-tensorboard --out "$folder/packed" --fit auto 2>&1)
[ $? = 0 ] && grep -q '^weights hash' <<<"$said"
result $? "packed documents, which the model that is timed has none of" "$said"

if "$train" --version | grep -qi 'mpi  *[0-9O]' && command -v mpirun >/dev/null; then
    . "${BASH_SOURCE%/*}/../lib/mpi_env.sh"
    said=$(timeout 120 mpirun -n 2 "$train" "${model[@]}" --out "$folder/mpi" --fit auto --steps 2 \
        2>&1)
    status=$?
    [ $status = 0 ] && [ "$(grep -c -- '--fit auto: the best' <<<"$said")" = 1 ]
    result $? "two processes choose the same" "$status: $said"
fi
echo "1..$count"
exit $failed
