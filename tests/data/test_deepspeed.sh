#!/bin/bash
# ./train with DeepSpeed's files: the four that tutorials repeat train as they are, and are the runs
# of a person who types the flags: one config.json, one hash. What contradicts is told at once and
# nothing is written. The table of docs/from-deepspeed.md is the program's. Speaks TAP.
set -u
files=$PWD/tests/fixtures/deepspeed
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"
tiny=(--device cpu --data README.md --tokenizer byte --layers 2 --heads 2 --channels 32 --seq-len 32
    --threads 1 --no-tensorboard)
cp README.md "$folder"

run() { # run ARGUMENT...: a fresh run, whose configuration is kept in $folder/config.json
    rm -rf "$folder/out" "$folder/config.json"
    (cd "$folder" && timeout 60 "$train" "${tiny[@]}" --out out "$@" 2>&1)
    local status=$?
    cp "$folder/out/config.json" "$folder/config.json" 2>/dev/null
    return $status
}

# equal NAME FILE "WHAT BOTH HAVE" FLAG...: the file gives the run of the flags.
equal() {
    local name=$1 file=$2 both=$3 said typed
    shift 3
    # shellcheck disable=SC2086
    said=$(run $both --deepspeed "$files/$file.json")
    cp "$folder/config.json" "$folder/theirs.json"
    # shellcheck disable=SC2086
    typed=$(run $both "$@")
    [ -n "$(hash_of <<<"$said")" ] && [ "$(hash_of <<<"$said")" = "$(hash_of <<<"$typed")" ] &&
        cmp -s "$folder/config.json" "$folder/theirs.json"
    result $? "$name" "$said
$typed
$(diff "$folder/config.json" "$folder/theirs.json")"
}

adam=(--beta1 0.9 --beta2 0.999 --eps 1e-8 --weight-decay 0)
equal "ZeRO-1 with CPU offload" zero1_cpu_offload "--ranks 2 --steps 4" \
    --batch 4 --global-batch 8 --lr 1e-4 "${adam[@]}" --dtype bf16 --zero 1 \
    --offload-optimizer cpu --clip 0
equal "ZeRO-2 with offload_gradients" zero2_offload_gradients "--ranks 2 --steps 3" \
    --batch 2 --global-batch 16 --lr 3e-4 --beta1 0.9 --beta2 0.95 --eps 1e-8 --weight-decay 0.01 \
    --dtype fp32 --zero 2 --offload-optimizer cpu --overlap on --clip 1
equal "ZeRO-3 with both offloads" zero3_offload "--ranks 3" \
    --batch 2 --global-batch 12 --lr 3e-5 --beta1 0.8 --beta2 0.999 --eps 1e-8 --weight-decay 3e-7 \
    --schedule WarmupDecayLR --min-lr 0 --warmup 2 --warmup-type log --steps 6 --dtype bf16 \
    --zero 3 --offload-optimizer cpu --offload-param cpu --overlap on --clip 1 --log-every 5
equal "fp16, WarmupLR, accumulation 2, batch 32, 4 a GPU" fp16_full "--ranks 4 --steps 3" \
    --batch 4 --global-batch 32 --lr 0.001 --beta1 0.9 --beta2 0.999 --eps 1e-8 \
    --weight-decay 0.01 --schedule WarmupLR --min-lr 0 --warmup 1000 --warmup-type log \
    --dtype fp16 --loss-scale 65536 --loss-scale-window 1000 --loss-scale-hysteresis 2 \
    --loss-scale-min 1 --zero 2 --overlap on --clip 1 --log-every 10

printf '{"train_batch_size": 2, "zz\\u001b[31m\\nzz": 1}' >"$folder/a"$'\e[31m.json'
said=$(run --steps 1 --deepspeed "$folder/a"$'\e[31m.json')
grep -qF '/a\x1b[31m.json' <<<"$said" && grep -qF 'zz\x1b[31m zz 1' <<<"$said" &&
    ! grep -q $'\e' <<<"$said"
result $? "names reach the terminal without what it would obey" "$said"
said=$(run --ranks 4 --steps 3 --deepspeed "$files/fp16_full.json")
grep -q '^  gradient_accumulation_steps 2 *with 4 ranks: 2$' <<<"$said" &&
    grep -q '^  scheduler.params.warmup_type absent *--warmup-type log, DeepSpeed.s default$' \
        <<<"$said" && grep -q '^  allgather_partitions true *equal by design: ' <<<"$said" &&
    grep -q '^  zero_allow_untested_optimizer true *not applicable: ' <<<"$said"
result $? "the resolved table is told" "$said"

said=$(run --ranks 2 --steps 3 --lr 1 --clip 2 --deepspeed "$files/fp16_full.json")
[ $? = 2 ] && [ "$(wc -l <<<"$said")" = 1 ] && error_is 'E_DEEPSPEED_KEYS train_batch_size 32' &&
    error_is 'E_DEEPSPEED_KEYS --lr 0.001' &&
    error_is 'E_DEEPSPEED_KEYS --clip 1,' && [ ! -e "$folder/out" ]
result $? "all contradictions in one line, and nothing is written" "$said"

# A schedule that ends before its warm-up does, by the file or by flags.
late='{"total_num_steps": 100, "warmup_num_steps": 200}'
printf '{"scheduler": {"type": "WarmupDecayLR", "params": %s}}' "$late" >"$folder/late.json"
said=$(run --plan --deepspeed "$folder/late.json")
[ $? = 2 ] &&
    error_is 'E_WARMUP --warmup 200*--steps 100*late.json'
result $? "a warm-up beyond the schedule's end is refused in a file" "$said"
said=$(run --plan --schedule WarmupCosineLR --warmup 200 --steps 100)
[ $? = 2 ] && error_is 'E_WARMUP --warmup 200'
result $? "and on the line" "$said"
said=$(run --plan --schedule WarmupLR --warmup 200 --steps 100)
result $? "but not where the schedule has no end" "$said"

printf '{\n  "train_batch_size": 4,\n}\n' >"$folder/comma.json"
said=$(run --steps 3 --deepspeed "$folder/comma.json")
[ $? = 2 ] && error_is 'E_JSON_SYNTAX comma.json: line 3' &&
    [ ! -e "$folder/out" ]
result $? "a trailing comma is named by its line" "$said"

said=$(run --steps 4 --deepspeed "$files/zero1_cpu_offload.json" --ranks 2)
cp -r "$folder/out" "$folder/first"
said=$(cd "$folder" && timeout 60 "$train" --out first --resume auto --steps 6 2>&1)
[ $? = 0 ] && grep -q 'weights hash' <<<"$said"
result $? "a run goes on without the file" "$said"

said=$(cd "$folder" && timeout 60 "$train" "${tiny[@]}" --plan --json \
    --deepspeed "$files/zero3_offload.json" --ranks 3 2>/dev/null)
[ "${said:0:1}" = "{" ]
result $? "a plan as JSON has no table before it" "$said"

# MiCS and a breakdown, by their keys.
said=$(run --ranks 4 --steps 2 --deepspeed "$files/mics.json")
typed=$(run --ranks 4 --steps 2 --batch 2 --global-batch 8 --zero 3 --zero-shard-size 2 \
    --breakdown --dtype fp32 --clip 0)
[ -n "$(hash_of <<<"$said")" ] && [ "$(hash_of <<<"$said")" = "$(hash_of <<<"$typed")" ] &&
    grep -q '^  mics_shard_size 2  *--zero-shard-size 2$' <<<"$said" &&
    grep -q '^compute waited for  weights ' <<<"$said" &&
    grep -q '16bit_weights_on_model_save true  *not applicable: for whole weights' <<<"$said"
result $? "MiCS is --zero-shard-size, and wall_clock_breakdown --breakdown" "$said
$typed"

# Rates of a run's first steps, as a table of DeepSpeed's engine and ours says them.
run --ranks 1 --steps 20 --lr 0.1 --schedule WarmupLR --warmup 10 --warmup-type log >/dev/null
rates=$(sed 's/.*"lr":\([^,]*\),.*/\1/' "$folder/out/log.jsonl" | head -5 | xargs printf '%9.5f')
grep -qFx "WarmupLR        log     ./train               $rates" "$files/first_steps.txt"
result $? "a run's first rates are those that the page tells" "$rates"
sed -n '/^<!-- first steps -->$/,/^$/p' docs/from-deepspeed.md | sed '1,2d' | sed '/^```$/,$d' |
    cmp -s - "$files/first_steps.txt"
result $? "and the page's table is the one that was made with DeepSpeed's scheduler"

printf '{"fp16": {"enabled": false}, "bf16": {"enabled": true}}' >"$folder/bf16.json"
said=$(run --plan --deepspeed "$folder/bf16.json")
grep -q '^  fp16.enabled false  *bf16 is on$' <<<"$said"
result $? "a format that is off says which is on" "$said"

said=$("$train" --help deepspeed | sed '1,/^$/d')
table=$(sed -n '/^<!-- table -->$/,/^<!-- end -->$/p' docs/from-deepspeed.md | sed '1,2d' |
    sed '$d' | sed '$d')
[ -n "$said" ] && [ "$said" = "$table" ]
result $? "the table in docs/from-deepspeed.md is --help deepspeed's" \
    "$(diff <(echo "$table") <(echo "$said"))"
echo "1..$count"
exit $failed
