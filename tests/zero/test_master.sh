#!/bin/bash
# --master-dtype as a user meets it: split trains to fp32's weights hash, saves what goes on elsewhere,
# and exports the same bytes; another value is refused on resume, and with other formats; its name of
# before is read; and --params knows the bytes. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"

model=(--device cpu --dtype bf16 --data random --vocab 61 --layers 2 --channels 24 --heads 2
    --seq-len 16 --batch 2 --threads 1 --lr 3e-3 --schedule constant --val-batches 1
    --no-tensorboard --save-every 10)

run() { # run NAME ARGUMENT...
    "$train" "${model[@]}" --out "$folder/$1" "${@:2}" 2>&1
}

# ---- one result ----

said=$(run fp32 --steps 20)
want=$(hash_of <<<"$said")
said=$(run split --steps 20 --master-dtype split)
[ -n "$want" ] && [ "$(hash_of <<<"$said")" = "$want" ]
result $? "split has the weights of fp32" "$said"
grep -q '"master-dtype":[[:space:]]*"split"' "$folder/split/config.json"
result $? "config.json says so" "$(cat "$folder/split/config.json")"
said=$(run bf16 --steps 20 --master-dtype bf16)
rounded=$(hash_of <<<"$said")
[ -n "$rounded" ] && [ "$rounded" != "$want" ]
result $? "bf16 has others" "$said"
# ---- the name of before ----

said=$(run old --steps 10 --master split)
[ "$(grep -c '^--master is called --master-dtype now' <<<"$said")" = 1 ] &&
    grep -q '"master-dtype":[[:space:]]*"split"' "$folder/old/config.json"
result $? "--master is read, and told once" "$said"
sed -i 's/"master-dtype"/"master"/; s/"adam-dtype"/"moments"/' "$folder/old/config.json"
said=$(run old --steps 20 --resume auto)
[ "$(hash_of <<<"$said")" = "$want" ] && [ "$(grep -c ' is called ' <<<"$said")" = 1 ] &&
    grep -q '^--master is called --master-dtype now' <<<"$said"
result $? "a config.json with it resumes, and what was given is told" "$said"
echo '{"master": "split", "master-dtype": "bf16"}' >"$folder/twice.json"
said=$(run twice --config "$folder/twice.json")
error_is 'E_CONFIG_KEY leave out "master"'
result $? "both in one file are refused" "$said"

# ---- resume ----

# refused NAME ERROR ARGUMENT...: no status 0, and one line, that error's
refused() {
    local said status name=$1 error=$2
    shift 2
    said=$("$train" "$@" 2>&1 >/dev/null)
    status=$?
    [ $status != 0 ] && [ "$(wc -l <<<"$said")" = 1 ] &&
        error_is "$error"
    result $? "$name" "$status: $said"
}
refused "another value is refused on resume" \
    'E_CHECKPOINT_IDENTITY "--master-dtype split", not "--master-dtype bf16"' \
    "${model[@]}" --out "$folder/split" --steps 30 --resume auto --master-dtype bf16
refused "and fp32 is" 'E_CHECKPOINT_IDENTITY "--master-dtype split"' \
    "${model[@]}" --out "$folder/split" --steps 30 --resume auto --master-dtype fp32
refused "another flag is named, not the one in its place" \
    'E_CHECKPOINT_IDENTITY "--attention-window 8"' \
    "${model[@]}" --out "$folder/split" --steps 30 --resume auto --attention-window 8
refused "a flag is named, not the text that it cuts" \
    'E_CHECKPOINT_IDENTITY "--seq-len 16", not "--seq-len 32"' \
    "${model[@]}" --out "$folder/split" --steps 30 --resume auto --seq-len 32
for dtype in fp32 fp16; do
    refused "refused with $dtype" "E_MASTER --master-dtype split*$dtype" \
        "${model[@]}" --dtype $dtype --out "$folder/none" --steps 3 --master-dtype split
done

# ---- bytes ----

# bytes MASTER WANT: of a parameter, of all model states in host memory
bytes() {
    local said
    said=$("$train" --plan --params 1000000000 --device cpu --dtype bf16 --adam-dtype bf16 \
        --offload-optimizer cpu --offload-param cpu --master-dtype "$1" 2>&1)
    grep -q "sum  *$2\.000  cpu" <<<"$said"
    result $? "$1: $2 bytes a parameter" "$said"
}
bytes fp32 12
bytes split 10
bytes bf16 8

echo "1..$count"
exit $failed
