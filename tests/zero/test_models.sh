#!/bin/bash
# Models of others through ./train, --init and --export: what comes in goes out again, byte by byte,
# whoever holds it; a run of such a model has one hash over stages, tiers and recomputation; a
# checkpoint's weights go into any other run; and what cannot be read or written is one line, with
# nothing left behind. Speaks TAP. (What the models compute: tests/model/test_families.c; llm.c's
# files byte by byte: tests/data/test_llmc.c.)
set -u
. "${BASH_SOURCE%/*}/../lib/model_runs.sh"

# peaks FILE planned|measured: of each tier, and of all
peaks() {
    sed -n "/\"measured\"/q; s/.*\"peak\"://p" "$1" >"$folder/peaks"
    [ "$2" = planned ] || sed "1,/\"measured\"/d" "$1" | sed -n 's/.*"peak"://p' >"$folder/peaks"
    cat "$folder/peaks"
}

for model in gpt2 llama llama3 mistral qwen2 qwen3; do
    rm -rf "$folder"/{one,three,again}
    one=$(run --init "hf:$models/$model" --steps 0 --export "hf:$folder/one")
    three=$(run --init "hf:$models/$model" --steps 0 --export "hf:$folder/three" --ranks 3 \
        --zero 3 --offload-optimizer cpu --offload-param cpu)
    planned=$(peaks "$folder/out/memory.json" planned)
    measured=$(peaks "$folder/out/memory.json" measured)
    again=$(run --init "hf:$folder/one" --steps 0 --export "hf:$folder/again")
    cmp -s "$folder"/{one,three}/model.safetensors &&
        cmp -s "$folder"/{one,again}/model.safetensors &&
        [ "$(hash_of <<<"$one")" ] && [ "$(hash_of <<<"$one")" = "$(hash_of <<<"$again")" ]
    result $? "$model: out as it came in, of 1 rank, of 3 at stage 3 offloaded, and again" \
        "$one $three $again"
    [ "$(wc -l <<<"$planned")" = 3 ] && [ "$planned" = "$measured" ]
    result $? "$model: in and out take the bytes of the plan" "$planned | $measured"
    want=
    # Several micro-batches: the bits are those of stages 2 and 3 (zero/grad.c).
    for how in "--zero 2" "--ranks 2 --zero 3 --recompute block" \
        "--ranks 3 --zero 2 --recompute mlp" \
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

# In each format, by whoever holds it: the same bytes of tensors.
for dtype in fp32 bf16 fp16; do
    rm -rf "$folder"/{in,back}
    said=$(run --init "hf:$models/qwen2" --steps 0 --export "hf:$folder/in" --export-dtype $dtype)
    for how in "" "--ranks 3 --zero 0" "--zero 3 --offload-param cpu" \
        "--ranks 3 --zero 3 --offload-optimizer nvme --offload-param nvme --nvme-path $folder"; do
        rm -rf "$folder/back"
        # shellcheck disable=SC2086 # words
        said=$(run --init "hf:$folder/in" --steps 0 --export "hf:$folder/back" $how)
        cmp -s "$folder"/{in,back}/model.safetensors || break
    done
    cmp -s "$folder"/{in,back}/model.safetensors
    result $? "$dtype: stages 0 and 3, ranks 1 and 3, all tiers: out as it came in" "$how: $said"
done

# A window of all tokens hides none; a narrower one does.
mistral=(--family mistral --heads 4 --kv-heads 2 --channels 32 --layers 2 --vocab 61 --steps 3)
want=$(run "${mistral[@]}" | hash_of)
for window in 17 18 1000 16; do
    said=$(run "${mistral[@]}" --attention-window $window)
    [ "$want" ] && [ "$(hash_of <<<"$said")" = "$want" ] || break
done
[ $window = 16 ] && [ "$(hash_of <<<"$said")" ]
result $? "a window of all tokens has the bits of none, and one token less has others" \
    "$window: $said"

said=$(run --init "hf:$models/llama" --steps 100 --export "hf:$folder/half" --export-dtype bf16)
grep -qx -- '--init: --lr 1e-05 --weight-decay 0 --warmup 3' <<<"$said"
result $? "fine-tuning's defaults are told" "$said"
grep -q '"dtype":.*"bfloat16"' "$folder/half/config.json" &&
    grep -aq '"dtype": *"BF16"' "$folder/half/model.safetensors"
result $? "--export-dtype is the files'" "$(cat "$folder/half/config.json")"
said=$(timeout 60 "$train" --out "$folder/out" --resume auto --export "hf:$folder/later" 2>&1)
cmp -s <(run --init "hf:$folder/later" --steps 0 | hash_of) <(hash_of <<<"$said")
result $? "a run that is done is exported by a resume" "$said"

# ---- the weights of another run, and llm.c's files ----
# In bf16, so that master weights are not what a rank computes with; of 3 ranks, all in shards.
trained() { # trained OUT HEADS ARGUMENT...
    local out=$1 heads=$2
    shift 2
    timeout 60 "$train" "${usual[@]}" --dtype bf16 --out "$folder/$out" --layers 2 --channels 48 \
        --heads "$heads" --vocab 200 --lr 1e-2 --ranks 3 --zero 3 --save-every 2 "$@" 2>&1
}
export_of() { # export_of DTYPE PLACE: that run's weights, by itself
    timeout 60 "$train" --out "$folder/first" --resume auto --export "$2" --export-dtype "$1" 2>&1
}
trained first 4 --steps 2 >"$folder/said"
cp -r "$folder/first" "$folder/early"
trained first 4 --steps 4 --resume auto >"$folder/said"
said=$(export_of fp32 "hf:$folder/whole" && export_of bf16 "hf:$folder/half16" &&
    export_of fp32 "llmc:$folder/first.bin" && export_of bf16 "llmc:$folder/first16.bin")
[ -f "$folder/first16.bin" ]
result $? "a run of three ranks in shards is exported in two ways" "$(cat "$folder/said") $said"

# taken NAME WANTED ARGUMENT...: no step of a run so begun changes a bit of the exported tensors.
taken() {
    local name=$1 wanted=$2 said
    shift 2
    rm -rf "$folder/taken"
    said=$(run --steps 0 --export "hf:$folder/taken" "$@")
    cmp -s "$folder/taken/model.safetensors" "$wanted/model.safetensors"
    result $? "$name" "$said"
}
! cmp -s "$folder/whole/model.safetensors" "$folder/half16/model.safetensors"
result $? "(fp32 is more than bf16 here)"
taken "run: of 3 ranks at stage 3 into 1 at stage 0, with nvme and cpu" "$folder/whole" \
    --init "run:$folder/first" --offload-optimizer nvme --nvme-path "$folder" --offload-param cpu
taken "run: into 2 ranks at stage 2, with cpu" "$folder/whole" --init "run:$folder/first" \
    --ranks 2 --zero 2 --offload-optimizer cpu
taken "run: the folder of a checkpoint" "$folder/whole" --zero 1 --ranks 4 \
    --init "run:$folder/first/checkpoints/step-00000004"
taken "run -> llmc -> hf" "$folder/whole" --init "llmc:$folder/first.bin" --ranks 2 --zero 3
taken "run -> llmc -> hf in bf16, of itself" "$folder/half16" --init "llmc:$folder/first16.bin"
said=$(run --steps 0 --init "run:$folder/first" --ranks 3 --zero 2 --export "llmc:$folder/x.bin")
cmp -s "$folder/x.bin" "$folder/first.bin"
result $? "run: -> llmc: is what the run itself exports" "$said"

# Step, moments and the schedule are new: it trains as from the same weights of elsewhere.
said=$(run --steps 3 --init "run:$folder/first" --ranks 2 --zero 1)
seen=$(run --steps 3 --init "hf:$folder/whole" --ranks 2 --zero 1 | hash_of)
[ "$seen" ] && [ "$seen" = "$(hash_of <<<"$said")" ] && grep -q '^step 3/3 ' <<<"$said" &&
    grep -qx -- '--init: --lr 1e-05 --weight-decay 0 --warmup 0' <<<"$said" &&
    grep -qx -- "--init: the weights are those of $folder/first/checkpoints/step-00000004" \
        <<<"$said"
result $? "run: gives the weights alone, to a run that begins at step 0" "$said"
said=$(run --steps 0 --init "run:$folder/first" --seq-len 9 --plan)
grep -q '^parameters: ' <<<"$said"
result $? "run: shorter sequences, and a plan" "$said"
seen=$(run --steps 1 --init "run:$folder/first" | hash_of)
mv "$folder/first" "$folder/gone"
said=$(timeout 60 "$train" --out "$folder/out" --resume auto --export "llmc:$folder/y.bin" 2>&1)
[ -f "$folder/y.bin" ] && [ "$seen" ] && [ "$(hash_of <<<"$said")" = "$seen" ]
result $? "a resume needs the other run no more" "$said"
mv "$folder/gone" "$folder/first"

# A byte in the middle of a rank's file: only its hash tells.
flip() { # flip FILE
    local at=$(($(stat -c %s "$1") / 2))
    # shellcheck disable=SC2059 # the format is the byte
    printf "\\x$(printf %02x $((255 - $(od -An -tu1 -j$at -N1 "$1"))))" |
        dd of="$1" bs=1 seek=$at conv=notrunc status=none
}
cp -r "$folder/first" "$folder/damaged"
flip "$folder/damaged/checkpoints/step-00000004/rank-0001.state"
early=$(run --steps 0 --init "run:$folder/early" | hash_of)
said=$(run --steps 0 --ranks 2 --init "run:$folder/damaged")
[ "$early" ] && [ "$(hash_of <<<"$said")" = "$early" ] &&
    grep -q 'step-00000004/rank-0001.state is damaged.*: trying the one before' <<<"$said" &&
    ! grep -q '^train: ' <<<"$said"
result $? "run: of a damaged checkpoint the one before, which is told" "$said"
: >"$folder/damaged/checkpoints/step-00000004/rank-0000.state"
said=$(run --steps 0 --init "run:$folder/damaged")
[ "$(hash_of <<<"$said")" = "$early" ] && grep -q ': trying the one before' <<<"$said"
result $? "run: of one without a head, too" "$said"

refused "a folder that is not there" "E_FILE_READ /nowhere/config.json" --init hf:/nowhere
refused "no kind" "E_INIT_NAME --init llama" --init llama
refused "a kind without a place" "E_INIT_NAME --init run:" --init run:
refused "no kind of an export" "E_INIT_NAME --export run:new" --export run:new
refused "no run" "E_CHECKPOINT_MISSING --init run:/nowhere" --init run:/nowhere
refused "a run that is a file" "E_CHECKPOINT_MISSING first.bin" --init "run:$folder/first.bin"
refused "a run's flag that contradicts" "E_INIT_FLAG --layers 3*/step-00000004 has 2" \
    --init "run:$folder/first" --layers 3
refused "a run of fewer ids" "E_INIT_FLAG --vocab 199*/step-00000004 has 200" \
    --init "run:$folder/first" --vocab 199
refused "a run of fewer positions" "E_SEQ_LEN --seq-len 18*--positions 17" \
    --init "run:$folder/first" --seq-len 18
refused "a model beside a run" "E_INIT_MODEL --init run:" --init "run:$folder/first" --model tiny
on README.md
refused "a tokenizer of more ids than the run" "E_VOCAB_SIZE --vocab 200" \
    --init "run:$folder/first" --tokenizer byte
on random
trained other 2 --steps 2 >/dev/null # as many weights, and another model
rm -r "$folder/damaged/checkpoints/step-00000002"
cp -r "$folder"/{other,damaged}/checkpoints/step-00000002
cp "$folder"/{first,damaged}/checkpoints/step-00000004/rank-0000.state
refused "a run whose older checkpoint is another's" \
    'E_CHECKPOINT_IDENTITY "--heads 2", not "--heads 4"' --init "run:$folder/damaged"
: >"$folder/damaged/checkpoints/step-00000004/rank-0000.state"
flip "$folder/damaged/checkpoints/step-00000002/rank-0002.state"
refused "a run all of whose checkpoints are damaged" \
    "E_CHECKPOINT_DAMAGED step-00000002/rank-0002.state" --init "run:$folder/damaged" --ranks 2
refused "a checkpoint that is damaged" "E_CHECKPOINT_DAMAGED step-00000002/rank-0002.state" \
    --init "run:$folder/damaged/checkpoints/step-00000002"
refused "a checkpoint without a head" "E_CHECKPOINT_DAMAGED rank-0000.state*0 bytes" \
    --init "run:$folder/damaged/checkpoints/step-00000004"
refused "llm.c's flag that contradicts" "E_INIT_FLAG --heads 2*first.bin has 4" \
    --init "llmc:$folder/first.bin" --heads 2
refused "an export over a file" "E_FILE_EXISTS --export*first.bin" --export "llmc:$folder/first.bin"
refused "an export to nowhere" "E_FILE_WRITE --export /nowhere/x.bin" --export llmc:/nowhere/x.bin
refused "a flag that contradicts" "E_INIT_FLAG --layers 3*config.json has 2" \
    --init "hf:$models/qwen3" --layers 3
refused "a model beside it" "E_INIT_MODEL --init" --init "hf:$models/qwen3" --model gpt2

# A weight that is no number: every step would be skipped, and none would say why.
poke() { # poke FILE BYTES: the file's last bytes become these
    # shellcheck disable=SC2059 # the format is the bytes
    printf "$2" | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") - ${#2} / 4)) conv=notrunc status=none
}
for case in "gpt2 00003-of-00008 \\x00\\x00\\xc0\\x7f attn.c_attn.weight: element 12287 is NaN" \
    "llama 00001-of-00007 \\x00\\x00\\x80\\xff tokens.weight: element 13503 is infinite" \
    "mistral 00004-of-00004 \\x01\\x7c norm.weight: element 63 is NaN"; do
    read -r model file bytes line <<<"$case"
    rm -rf "$folder/bad"
    cp -r "$models/$model" "$folder/bad"
    poke "$folder/bad/model-$file.safetensors" "$bytes"
    refused "$model: a weight that is no number" \
        "E_WEIGHT_NOT_FINITE bad/model-$file.safetensors*$line" \
        --init "hf:$folder/bad" --ranks 3 --zero 3
done
cp "$folder/first16.bin" "$folder/infinite.bin"
poke "$folder/infinite.bin" '\x80\xff'
refused "llm.c's weight that is infinite" \
    "E_WEIGHT_NOT_FINITE infinite.bin: norm.bias of layer -1: element 47" \
    --init "llmc:$folder/infinite.bin" --ranks 2

# What goes on with a run is that run's model, and so is the config.json that an export copies.
rm -rf "$folder/moved"
cp -r "$models/llama" "$folder/moved"
timeout 60 "$train" "${usual[@]}" --init "hf:$folder/moved" --steps 1 --out "$folder/kept" \
    >"$folder/said" 2>&1
# resumed NAME ERROR ARGUMENT...: the same refusal of that run's resume, before a step of it.
resumed() {
    local name=$1 error=$2 said status
    shift 2
    said=$(timeout 60 "$train" --out "$folder/kept" --resume auto --steps 9 "$@" 2>&1)
    status=$?
    [ $status = 2 ] && [ "$(grep -c '^train: ' <<<"$said")" = 1 ] &&
        error_is "$error" && ! grep -q '^step ' <<<"$said" &&
        ! ls -d "$folder"/new* >/dev/null 2>&1
    result $? "$name" "status $status: $said"
}
resumed "a resume with another model" 'E_INIT_FLAG /gpt2/config.json*"gpt2"*"llama"' \
    --init "hf:$models/gpt2" --export "hf:$folder/new"
resumed "and without an export" 'E_INIT_FLAG --init*/qwen3/config.json*"qwen3"*"llama"' \
    --init "hf:$models/qwen3"
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 4/' "$folder/moved/config.json"
resumed "a config.json that changed" "E_INIT_FLAG /moved/config.json*--layers 4*has 2" \
    --export "hf:$folder/new"
sed 's/"rope_theta": 10000.0/"rope_theta": 5e5/' "$models/llama/config.json" \
    >"$folder/moved/config.json"
resumed "its angles" "E_INIT_FLAG --rope-theta 500000*has 10000" --export "hf:$folder/new"
said=$(timeout 60 "$train" --out "$folder/kept" --resume auto --init "hf:$models/llama" \
    --export "hf:$folder/there" 2>&1)
[ -f "$folder/there/config.json" ]
result $? "the same model of another folder goes on" "$said"
# A run of no --init, whose flags say less: its own weights, exported, are the same model.
for kind in run:early llmc:first.bin hf:whole; do
    rm -rf "$folder/again"
    cp -r "$folder/early" "$folder/again"
    said=$(timeout 60 "$train" --out "$folder/again" --resume auto --steps 3 \
        --init "${kind%%:*}:$folder/${kind#*:}" 2>&1)
    grep -q '^step 3/3 ' <<<"$said" || break
done
grep -q '^step 3/3 ' <<<"$said"
result $? "a run goes on with an --init that is its own model" "$kind: $said"
refused "a window that the folder has not" "E_INIT_FLAG --attention-window 0*has 8" \
    --init "hf:$models/llama" --attention-window 8 --export "hf:$folder/new"
sed -i 's/"rope_type": "default"/"rope_type": "linear", "factor": 2.0/' "$folder/moved/config.json"
said=$(run --init "hf:$folder/moved" --steps 0 --rope-scaling linear:2.0)
[ "$(hash_of <<<"$said")" ]
result $? "one number in two spellings" "$said"
refused "another number" "E_INIT_FLAG --rope-scaling linear:2.5*/config.json has linear:2" \
    --init "hf:$folder/moved" --rope-scaling linear:2.5

# What is passed over in a config.json is told; YaRN goes out as it came in, and by a flag.
yarn='"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 8},'
sed -e 's/"attention_dropout": 0.0/"attention_dropout": 0.25/' -e "s/^{/{ $yarn/" \
    "$models/llama/config.json" >"$folder/moved/config.json"
rm -rf "$folder"/{one,again}
said=$(run --init "hf:$folder/moved" --steps 0 --export "hf:$folder/one")
grep -q '/config.json: rope_scaling counts, as in transformers; rope_parameters says' <<<"$said" &&
    grep -q '/config.json: attention_dropout 0.25: there is no dropout here' <<<"$said" &&
    tr -d ' \t\n' <"$folder/one/config.json" |
    grep -q '"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":8}'
result $? "what is passed over in a config.json is told, and YaRN is exported as it came" \
    "$said $(cat "$folder/one/config.json")"
said=$(run --init "hf:$folder/one" --steps 2 | hash_of)
rm -rf "$folder/turned"
mv "$folder/out" "$folder/turned"
again=$(run --init "hf:$models/llama" --steps 2 | hash_of)
[ "$said" ] && [ "$said" != "$again" ]
result $? "and turns otherwise than without" "$said"
said=$(run --init "run:$folder/turned" --steps 0 --export "hf:$folder/again")
seen=$(run --init "hf:$folder/again" --steps 2 --plan 2>&1)
tr -d ' \t\n' <"$folder/again/config.json" |
    grep -q '"rope_type":"yarn","factor":4,"original_max_position_embeddings":8}' &&
    grep -q '^parameters: ' <<<"$seen"
result $? "and of a run's flags a config.json is made" "$said $seen"
refused "an angle that grows" "E_ROPE_SCALING --rope-scaling yarn:0.5:8" \
    --family llama --rope-scaling yarn:0.5:8

# A tied matrix may be stored by the name of either.
rm -rf "$folder/moved"
cp -r "$models/llama3" "$folder/moved"
sed -i 's/"model.embed_tokens.weight"/"lm_head.weight"           /' "$folder"/moved/model*
said=$(run --init "hf:$folder/moved" --steps 1)
again=$(run --init "hf:$models/llama3" --steps 1)
[ "$(hash_of <<<"$said")" ] && [ "$(hash_of <<<"$said")" = "$(hash_of <<<"$again")" ] &&
    [ ! "$(grep -l embed_tokens "$folder"/moved/model*)" ]
result $? "a tied head without an embedding is the same model" "$said"
rm -rf "$folder/moved"
cp -r "$models/llama" "$folder/moved"

# What an export will fail on is told before the first step.
refused "an export into no folder" "E_FILE_WRITE --export /nowhere/x" --export hf:/nowhere/x
ln -s nowhere "$folder/linked.writing"
refused "a link aside" "E_FILE_EXISTS --export hf:*/linked.writing" --export "hf:$folder/linked"
mkdir "$folder/foreign.writing"
echo x >"$folder/foreign.writing/thesis.txt"
refused "a folder of somebody aside" "E_FILE_EXISTS /foreign.writing" --export "hf:$folder/foreign"
[ -f "$folder/foreign.writing/thesis.txt" ] && [ -L "$folder/linked.writing" ]
result $? "they stay"
cp "$models/llama/config.json" "$folder/moved/config.json"
mkdir "$folder/moved/tokenizer"
echo '{}' >"$folder/moved/vocab.json"
said=$(run --init "hf:$folder/moved" --steps 0 --export "hf:$folder/slash/")
[ -f "$folder/slash/vocab.json" ] && [ ! -e "$folder/slash/tokenizer" ]
result $? "files are copied and folders are not, to a place with a slash behind it" "$said"
ln -s nowhere "$folder/moved/tokenizer.json"
refused "a tokenizer that leads nowhere" "E_FILE_READ --export hf:*/moved/tokenizer.json" \
    --init "hf:$folder/moved" --export "hf:$folder/new"
said=$(run --init "hf:$folder/moved" --steps 0)
[ "$(hash_of <<<"$said")" ]
result $? "which is no matter without an export" "$said"
rm "$folder/moved/tokenizer.json"
# A checkpoint that is named is gone on from without them, but its export is not the same.
grep -q -- '--init: --lr' "$folder/said" # of the run "kept" when it began
result $? "fine-tuning's rate is told where a run begins" "$(cat "$folder/said")"
mv "$folder/moved" "$folder/away"
named=(--resume "$folder/kept/checkpoints/step-00000001" --config "$folder/begun.json")
sed "s|hf:$models/llama|hf:$folder/moved|" "$folder/kept/config.json" >"$folder/begun.json"
said=$(run --steps 2 "${named[@]}")
grep -q '^step 2/2 ' <<<"$said" && ! grep -q -- '--init: --lr' <<<"$said"
result $? "a named checkpoint does not need what its run began with" "$said"
refused "but its export does" "E_FILE_READ --export hf:*/new*/moved/config.json" \
    "${named[@]}" --export "hf:$folder/new"
mv "$folder/away" "$folder/moved"
said=$(run --steps 0 --init "hf:$folder/moved" --lr 2e-05)
grep -qx -- '--init: --lr 2e-05 --weight-decay 0 --warmup 0' <<<"$said"
result $? "and one that is on the line, with what is not" "$said"
ln -s nowhere "$folder/moved/model.safetensors"
refused "a link to weights that leads nowhere" "E_FILE_READ /moved/model.safetensors" \
    --init "hf:$folder/moved"
rm "$folder/moved/model.safetensors"

broken config.json 's/"model_type": "qwen3"/"model_type": "gemma"/'
refused "another architecture" 'E_HF_CONFIG model_type "gemma"' --init "hf:$folder/bad"
broken config.json 's/"head_dim": 24/"head_dim": 512/'
refused "heads that are too large" "E_SHAPE_RANGE --head-size 512" --init "hf:$folder/bad"
broken config.json 's/"num_hidden_layers": 2/"num_hidden_layers": 1/'
refused "a layer too many" "E_HF_TENSOR_EXTRA model.layers.1*qwen3" --init "hf:$folder/bad"
broken config.json 's/"tie_word_embeddings": false/"tie_word_embeddings": true/'
refused "a head that is not the embedding" "E_HF_TIED_HEAD lm_head.weight" --init "hf:$folder/bad"
refused "what a folder cannot say" "E_EXPORT_MODEL gpt2*--attention-window 8" \
    --attention-window 8 --export "hf:$folder/new"
refused "heads too few" "E_HEAD_SIZE --heads 1*512*256" --heads 1 --channels 512
echo "1..$count"
exit $failed
