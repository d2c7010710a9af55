#!/bin/bash
# Hugging Face folders through ./train: what comes in goes out again, byte by byte, whoever holds
# it; a run of such a model has one hash over stages, tiers and recomputation; and what cannot be
# read or written is one line, with nothing left behind. Speaks TAP. (What the models compute:
# tests/model/test_families.c.)
#
# TRAIN names the program (default ./train).
set -u
train=$(realpath "${TRAIN:-./train}")
models=$PWD/tests/fixtures/hf
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME=$folder/cache
. "${BASH_SOURCE%/*}/../lib/tap.sh"
usual=(--device cpu --dtype fp32 --data random --seq-len 17 --batch 1 --threads 1 --no-tensorboard)

run() { # run ARGUMENT...: a fresh run
    rm -rf "$folder/out"
    timeout 60 "$train" "${usual[@]}" --out "$folder/out" "$@" 2>&1
}
hash_of() { sed -n 's/^weights hash: //p'; }

for model in gpt2 llama llama3 mistral qwen2 qwen3; do
    rm -rf "$folder"/{one,three,again}
    one=$(run --init "hf:$models/$model" --steps 0 --export "hf:$folder/one")
    three=$(run --init "hf:$models/$model" --steps 0 --export "hf:$folder/three" --ranks 3 \
        --zero 3 --offload-optimizer cpu --offload-param cpu)
    again=$(run --init "hf:$folder/one" --steps 0 --export "hf:$folder/again")
    cmp -s "$folder"/{one,three}/model.safetensors &&
        cmp -s "$folder"/{one,again}/model.safetensors &&
        [ "$(hash_of <<<"$one")" ] && [ "$(hash_of <<<"$one")" = "$(hash_of <<<"$again")" ]
    result $? "$model: out as it came in, of 1 rank, of 3 at stage 3 offloaded, and again" \
        "$one $three $again"
    want=
    # Several micro-batches: the bits are those of stages 2 and 3 (zero/grad.c).
    for how in "--zero 2" "--ranks 2 --zero 3 --recompute block" "--ranks 3 --zero 2" \
        "--zero 3 --recompute attention --offload-param cpu --offload-activations cpu"; do
        # shellcheck disable=SC2086 # words
        said=$(run --init "hf:$models/$model" --steps 3 --dtype bf16 --grad-dtype fp32 \
            --global-batch 6 $how)
        seen=$(hash_of <<<"$said")
        [ "$seen" ] && [ "$seen" = "${want:=$seen}" ] || break
    done
    [ "$seen" ] && [ "$seen" = "$want" ]
    result $? "$model: one hash over stages, ranks, tiers and recomputation" "$how: $said"
done

said=$(run --init "hf:$models/llama" --steps 100 --export "hf:$folder/half" --export-dtype bf16)
grep -qx -- '--init: --lr 1e-05 --weight-decay 0 --warmup 3' <<<"$said"
result $? "fine-tuning's defaults are told" "$said"
grep -q '"dtype":.*"bfloat16"' "$folder/half/config.json" &&
    grep -aq '"dtype": *"BF16"' "$folder/half/model.safetensors"
result $? "--export-dtype is the files'" "$(cat "$folder/half/config.json")"
said=$(timeout 60 "$train" --out "$folder/out" --resume auto --export "hf:$folder/later" 2>&1)
cmp -s <(run --init "hf:$folder/later" --steps 0 | hash_of) <(hash_of <<<"$said")
result $? "a run that is done is exported by a resume" "$said"

# refused NAME PATTERN ARGUMENT...: one line "train: ..." that matches, status 2, and no folder.
refused() {
    local name=$1 pattern=$2 said status
    shift 2
    said=$(run --steps 1 "$@")
    status=$?
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        grep -qE -- "^train: .*$pattern" <<<"$said" && ! ls -d "$folder"/new* >/dev/null 2>&1
    result $? "$name" "status $status: $said"
}
broken() { # broken FILE SED: a copy of qwen3's with FILE changed
    rm -rf "$folder/bad"
    cp -r "$models/qwen3" "$folder/bad"
    sed -i "$2" "$folder/bad/$1"
}
refused "a folder that is not there" "cannot read /nowhere/config.json" --init hf:/nowhere
refused "no folder" "--init llama: expected hf:DIR" --init llama
refused "a flag that contradicts" "--layers 3: .*config.json has 2" --init "hf:$models/qwen3" \
    --layers 3
refused "a model beside it" "--model: --init .* says what the model is" --init "hf:$models/qwen3" \
    --model gpt2
broken config.json 's/"model_type": "qwen3"/"model_type": "gemma"/'
refused "another architecture" 'model_type "gemma": expected gpt2' --init "hf:$folder/bad"
broken config.json 's/"rope_type": "default"/"rope_type": "yarn"/'
refused "a scaling that is not built" "rope_type default, linear or llama3" --init "hf:$folder/bad"
broken config.json 's/"num_hidden_layers": 2/"num_hidden_layers": 1/'
refused "a layer too many" "tensor model.layers.1.*: a qwen3 model has none such" \
    --init "hf:$folder/bad"
broken config.json 's/"intermediate_size": 96/"intermediate_size": 98/'
refused "another shape" "mlp.gate_proj.weight is \[96, 64\].*\[98, 64\] is right" \
    --init "hf:$folder/bad"
broken config.json ''
rm "$folder/bad/model-00002-of-00005.safetensors"
refused "a shard that is missing" "model-00002-of-00005.safetensors" --init "hf:$folder/bad"
refused "an export over a folder" "--export $folder/bad exists" --export "hf:$folder/bad"
refused "what a folder cannot say" "a folder of gpt2 cannot say --attention-window 8" \
    --attention-window 8 --export "hf:$folder/new"
refused "no model of that name" "--model gpt5: expected one of tiny, gpt2" --model gpt5
refused "heads that do not divide" "--kv-heads 3: expected a divisor of --heads 4" --kv-heads 3
echo "1..$count"
exit $failed
