#!/bin/bash
# ./train --plan --cluster as a user meets it: every fault of a file is one line and status 2; the
# largest grid takes less than a second; what docs/scaling.md prints is what the program says, and
# published points are met as it tells. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"
export TRAIN=$train # for scripts/bench
good=docs/clusters/a100.json

plan() { # plan FILE FLAG...
    "$train" --plan --cluster "$@" 2>&1
}

# ---- what it says ----

said=$(plan $good --model gpt2-xl --ranks 64 --zero 3 --batch 4)
[ $? = 0 ] && grep -q '^DGX A100.*64 GPUs on 8 nodes' <<<"$said" &&
    grep -q '^grid: tp 1, pp 1, dp 64; ZeRO stage 3' <<<"$said" &&
    grep -q 'each GPU .* of 80.00' <<<"$said" && grep -q '^parameters: 1557611200' <<<"$said"
result $? "the grid, memory and time" "$said"
sum=$(awk '/takes$/ { on = 1; next } /hidden/ { on = 0 } on && $1 != "sum" { s += $(NF - 1) }
    on && $1 == "sum" { t = $2 } END { print (s > t - 0.05 && s < t + 0.05 && t > 0) }' <<<"$said")
[ "$sum" = 1 ]
result $? "the parts of a step add up to it" "$said"
said=$(plan $good --layers 8 --channels 512 --heads 8 --ranks 16 --tp 2 --pp 4 --global-batch 64 \
    --batch 2 --json)
status=$?
grid=$(awk '
    /"(ranks|tp|pp|dp|micro_batches)"/ { gsub(/[\t ,"]/, ""); printf "%s ", $0 }' <<<"$said")
[ $status = 0 ] && [ "$grid" = "ranks:16 tp:2 pp:4 dp:2 micro_batches:16 " ] &&
    grep -q '"fits":.*true' <<<"$said"
result $? "as JSON, of a pipeline" "$said"
said=$(plan $good --model gpt2-xl --ranks 1 --batch 512 --json)
status=$?
[ $status = 2 ] && grep -q '"fits":.*false' <<<"$said" &&
    error_is "E_CLUSTER_MEMORY --cluster $good*each GPU has 80.00"
result $? "what does not fit is refused, and shown" "$status: $said"
[[ $said = *"; add --fit auto to search"* ]] &&
    plan $good --model gpt2-xl --ranks 1 --fit auto >"$folder/found"
result $? "and told is what finds a layout" "$said"
one=$(plan $good --model gpt2-xl --ranks 8 --offload-optimizer cpu --batch 2 --json)
two=$(TMPDIR=$folder OMP_NUM_THREADS=1 "$train" --plan --cluster $good --threads 3 \
    --model gpt2-xl --ranks 8 --offload-optimizer cpu --batch 2 --json 2>&1)
[ "$one" = "$two" ] && grep -q '"host":.*[1-9]' <<<"$one"
result $? "nothing of this machine is in it" "$one $two"

# ---- what it chooses ----

model=(--layers 32 --channels 4096 --heads 32 --seq-len 2048 --vocab 50257 --ranks 16
    --global-batch 64)
said=$(plan $good "${model[@]}" --fit auto --pp 1)
[ $? = 0 ] && grep -q -- '^--fit auto: the best of [0-9]* forecasts' <<<"$said" &&
    [ "$(grep -c -- '--tp [0-9]* --pp 1' <<<"$said")" = 3 ]
result $? "--fit auto prints the three best, and plans the first" "$said"
step() { awk '$1 == "\"step\":" { print $2 + 0 }'; }
best=$(plan $good "${model[@]}" --fit auto --pp 1 --json | step)
worse=0 tried=0
for tp in 1 2 4; do
    for zero in 0 1 3; do
        for recompute in none mlp block; do
            said=$(plan $good "${model[@]}" --tp $tp --zero $zero --recompute $recompute \
                --batch 4 --json) || continue # it does not fit
            tried=$((tried + 1))
            awk -v a="$best" -v b="$(step <<<"$said")" '
                BEGIN { exit !(a > 0 && a <= 1.01 * b) }' || worse=$((worse + 1))
        done
    done
done
[ $tried -gt 10 ] && [ $worse = 0 ]
result $? "none of $tried other layouts is quicker" "$worse are quicker than $best"
said=$(plan $good "${model[@]}" --fit auto --tp 2 --pp 2 --zero 1 --recompute block --batch 2)
[ $? = 0 ] && grep -q '^grid: tp 2, pp 2, dp 4; ZeRO stage 1; a step of 8 micro-batches of 2' \
    <<<"$said"
result $? "what is said stays" "$said"
said=$(plan $good --layers 32 --channels 4096 --heads 32 --seq-len 2048 --vocab 50257 --ranks 16 \
    --pp 4 --tp 1 --zero 1 --recompute none --batch 10 --global-batch 320 --fit auto)
[ $? = 0 ] && grep -q -- '--zero 1 --offload-activations cpu --batch 10' <<<"$said"
result $? "the activations alone of a pipeline's many micro-batches go to the host" "$said"
said=$(plan $good --model gpt2-xl --ranks 64 --device-mem 20G --fit auto --json)
status=$?
device=$(awk '$1 == "\"device\":" { printf "%.0f", $2 }' <<<"$said")
[ $status = 0 ] && [ "${device:-0}" -gt 1000000000 ] && [ "$device" -le 20000000000 ]
result $? "in less memory than the file has, where --device-mem says so" "$said"

# ---- how long it takes ----

quick() { # quick FLAG...: less than a second for the largest grid
    local from to
    from=$(date +%s%N)
    plan $good --layers 128 --channels 25600 --heads 160 --seq-len 2048 --vocab 51200 \
        --ranks 16384 --json "$@" >"$folder/quick"
    to=$(date +%s%N)
    echo "$(((to - from) / 1000000)) ms"
    [ $((to - from)) -lt 1000000000 ] && grep -q '"ranks":.*16384' "$folder/quick"
}
took=$(quick --tp 8 --pp 64 --batch 1 --global-batch 16384 --recompute block --zero 1)
result $? "16384 ranks in stages of a pipeline in less than a second ($took)"
took=$(quick --tp 8 --batch 1 --global-batch 131072 --recompute block --zero 3 \
    --zero-hpz-partition-size 8)
result $? "and with 64 micro-batches of stage 3 ($took)"

# Sums in two hops are those of the file's nodes, as far as the ranks fill them.
for grid in "--ranks 4" "--ranks 32" "--ranks 32 --pp 4" "--ranks 12 --pp 2" \
    "--ranks 32 --node-size 8"; do
    said=$(plan $good --model gpt2 --zero 2 --zero-quantized-gradients $grid --batch 4)
    status=$?
    [ $status = 0 ] && grep -q "^grid: " <<<"$said"
    result $? "--zero-quantized-gradients $grid" "status $status: $said"
done

# ---- what is refused ----

refused() { # refused WHAT FLAG...: one line that begins so, status 2
    local what=$1 status
    shift
    said=$("$train" "$@" 2>&1)
    status=$?
    [ $status = 2 ] && [ "$(wc -l <<<"$said")" = 1 ] && error_is "$what"
    result $? "refused: ${what:0:60}" "$status: $said"
}
refused "E_PP_SPLIT --pp-split 3" --plan --pp-split 3
refused "E_PLAN_MISSING --cluster $good" --cluster $good --data random
refused 'E_RANKS --ranks 1025' --plan --ranks 1025
refused 'E_GRID --tp 3' \
    --plan --cluster $good --ranks 8 --tp 3 \
    --pp 2
refused "E_CLUSTER_DTYPE --cluster $good" --plan --cluster $good --dtype fp32
refused "E_FIT_NOTHING --cluster $good" --plan --cluster $good --fit auto \
    --model gpt2-xl --zero 0 --offload-optimizer none --offload-param none --batch 8 \
    --seq-len 262144

refused 'E_QUANT_NODES 12' --plan --cluster $good --ranks 12 --zero 2 --zero-quantized-gradients
refused "E_CLUSTER_NODE_SIZE --cluster $good have 8" --plan \
    --cluster $good --ranks 16 --node-size 4 --fit auto
refused 'E_CLUSTER_FLAG --device cpu' --plan --cluster $good --device cpu
refused 'E_CLUSTER_FLAG --device cpu' --plan --cluster $good --device cpu --fit auto
refused 'E_CLUSTER_FLAG --kernels oracle' --plan --cluster $good --kernels oracle
refused "E_CLUSTER_FLAG --nvme-path $folder" --plan \
    --cluster $good --nvme-path "$folder" --offload-optimizer nvme
refused 'E_FIT_MASTERS --fit auto,masters' --plan --cluster $good --fit auto,masters
refused 'E_PARAMS_FLAG --params 7000000000' --plan --cluster $good --params 7G

# faulty WHAT SED-SCRIPT: a file with that fault is refused with the line "--cluster FILE: WHAT".
faulty() {
    local file=$folder/faulty.json
    sed -E "$2" $good >"$file"
    refused "E_CLUSTER_FILE $1" --plan --cluster "$file"
}
faulty '"matmul_flops"' '/"matmul_flops": [0-9]/d'
faulty '"attention_forward_flops"' '/"attention_forward_flops": [0-9]/d'
faulty '"near_bytes_per_s" is -3' 's/("near_bytes_per_s": )[0-9e]+/\1-3/'
faulty '"far_bytes_per_s" is 0' 's/("far_bytes_per_s": )[0-9e]+/\10/'
faulty '"nodes" is 1.5' 's/("nodes": )[0-9]+/\11.5/'
faulty '"nodes" is "many"' 's/("nodes": )[0-9]+/\1"many"/'
faulty '16384 nodes of 8 GPUs' 's/("nodes": )[0-9]+/\116384/'
faulty '"call_seconds" is 2' 's/("call_seconds": )[0-9.e-]+/\12/'
faulty '"matmul_flop"' 's/"matmul_flops": /"matmul_flop": /'
faulty '"attention" is "quick"' 's/"fused"/"quick"/'
faulty '"name"' '/"name"/d'
faulty '"nodes" is 7' 's/("sources": \{)/\1 "nodes": 7,/'
sed 's/"nodes"/"gpus_per_node": 4, "nodes"/' $good >"$folder/twice.json"
refused "E_JSON_DUPLICATE_KEY $folder/twice.json" --plan --cluster "$folder/twice.json"
echo '[1]' >"$folder/list.json"
refused "E_JSON_SYNTAX $folder/list.json" --plan --cluster "$folder/list.json"
said=$("$train" --plan --cluster "$folder/none.json" 2>&1)
[ $? = 2 ] && [ "$(wc -l <<<"$said")" = 1 ] && error_is 'E_FILE_READ none.json'
result $? "refused: a file that is not there" "$said"

# A file without rates of fused attention is right where attention keeps its scores.
sed -E '/"attention_(for|back)ward_flops": [0-9]/d; s/"fused"/"scores kept"/' $good \
    >"$folder/kept.json"
said=$(plan "$folder/kept.json" --json)
[ $? = 0 ]
result $? "rates of fused attention are not asked for where there is none" "$said"

# ---- what is written of it ----

for file in docs/clusters/*.json; do
    kind=$(basename "$file" .json)
    keys=$(sed -n '/"sources"/,$!p' docs/clusters/$kind.json |
        sed -n 's/^ *"\([a-z_]*\)": [0-9].*/\1/p' |
        grep -v '^nodes$\|^gpus_per_node$\|^disk_bytes$')
    missing=$(for key in $keys; do
        sed -n '/"sources"/,$p' docs/clusters/$kind.json | grep -q "\"$key\":" || echo "$key"
    done)
    [ -z "$missing" ] && [ -n "$keys" ]
    result $? "every number of docs/clusters/$kind.json has a source" "$missing"
done
points=$(MOST=1 scripts/bench/scaling_points.sh 2>"$folder/said")
status=$?
[ $status = 1 ]
result $? "a median that is too large is told" "$status: $(tail -n 1 <<<"$points")"
median=$(sed -n 's/^Median error of the points held out .*: \(.*\)%\.$/\1/p' <<<"$points")
[ "$(grep -c '^| [0-9]' <<<"$points")" = 15 ] &&
    awk -v median="$median" 'BEGIN { exit !(median > 0 && median <= 20) }'
result $? "the median error of the points that were held out is at most 20%" \
    "$points$(cat "$folder/said")"
missing=$(while read -r line; do
    [ -z "$line" ] || grep -qxF -- "$line" docs/scaling.md || echo "$line"
done <<<"$points")
[ -z "$missing" ]
result $? "docs/scaling.md has each of them as the program says it" "$missing"
said=$(scripts/bench/scaling_table.sh --check docs/scaling.md 2>&1)
[ $? = 0 ] && grep -q '^[1-9][0-9]* rows, 0 wrong$' <<<"$said"
result $? "so has it the table of weak scaling ($(tail -n 1 <<<"$said"))" "$said"
sed -n 's/\(| 7B | 64 | \)[0-9]*/\199999/p' docs/scaling.md >"$folder/wrong.md"
said=$(scripts/bench/scaling_table.sh --check "$folder/wrong.md" 2>&1)
[ $? = 1 ] && grep -q '^1 rows, 1 wrong$' <<<"$said"
result $? "and a wrong row is found" "$said"

echo "1..$count"
exit $failed
