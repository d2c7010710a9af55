#!/bin/bash
# Fine-tuning: what --init leaves to the run, held against PyTorch. Speaks TAP.
set -u
. "${BASH_SOURCE%/*}/../lib/model_runs.sh"

# ---- each default by itself ----

# The fixture has what scripts/gen/tuning_fixture.py computed in PyTorch.
fixture=tests/fixtures/tuning/llama.txt
of_fixture() { sed -n "s/^$1 //p" $fixture; }
shard() { # shard ID...: a token shard of llm.c
    perl -e 'print pack("l<256", 20240520, 1, scalar(@ARGV), (0) x 253), pack("S<*", @ARGV)' "$@"
}
# shellcheck disable=SC2046 # words
shard $(of_fixture ids) >"$folder/x.bin"
# losses: of the run in $folder/out, a line "loss STEP X" each.
losses() {
    sed -n 's/.*"step": *\([0-9]*\), *"loss": *\([^,]*\),.*/loss \1 \2/p' "$folder/out/log.jsonl"
}
# as_pytorch: whether the losses are the fixture's, to six digits.
as_pytorch() {
    awk 'NR == FNR { if ($1 == "loss") want[$2] = $3; next }
         $2 in want { n++; if (($3 - want[$2]) ^ 2 > (2e-6 * want[$2]) ^ 2) bad = 1 }
         END { exit bad || n < 12 }' $fixture <(losses)
}
tune() { # tune ARGUMENT...: with a rate alone
    said=$(run --init "hf:$models/llama" --val-data "$folder/x.bin" \
        --seq-len "$(of_fixture length)" --steps "$(of_fixture steps)" --lr "$(of_fixture lr)" "$@")
}
on "$folder/x.bin"
tune
as_pytorch && grep -qx -- '--init: --lr 0.001 --weight-decay 0 --warmup 3' <<<"$said"
result $? "a rate on the line leaves decay and warm-up to fine-tuning: PyTorch's losses" \
    "$said $(losses | head -12)"
tune --weight-decay 0.1
! as_pytorch && grep -qx -- '--init: --lr 0.001 --weight-decay 0.1 --warmup 3' <<<"$said"
result $? "(which a decay would miss)" "$said"

# ---- sequences for the longest example, a micro-batch for half of the memory ----

# A model of 1,500 positions, and examples of 61 to 160 tokens.
"$train" --device cpu --dtype fp32 --threads 1 --family llama --layers 1 --channels 32 --heads 2 \
    --seq-len 1500 --batch 1 --data random --vocab 256 --steps 0 --val-batches 1 \
    --no-tensorboard --out "$folder/base" >"$folder/said" 2>&1
result $? "a base model" "$(cat "$folder/said")"
"$train" --out "$folder/narrow" --config "$folder/base/config.json" --seq-len 100 \
    >"$folder/said" 2>&1
result $? "and one of 100 positions" "$(cat "$folder/said")"
letters() { printf "%0$1d" 0; }
lines() { # lines LENGTH...: an example of so many tokens each
    local n
    for n; do
        echo "{\"prompt\": \"$(letters 50)\", \"completion\": \"$(letters $((n - 50)))\"}"
    done
}
for ((i = 0; i < 40; i++)); do lines 61 80 99; done >"$folder/chat.jsonl"
lines 160 >>"$folder/chat.jsonl"
of_config() {
    sed -n "s/^[[:space:]]*\"$1\":[[:space:]]*\([^,]*\),*$/\1/p" "$folder/out/config.json"
}
tuned=(--device cpu --dtype fp32 --threads 1 --no-tensorboard --init "run:$folder/base"
    --tokenizer byte --data "$folder/chat.jsonl" --val-batches 1)
start() { # start ARGUMENT...
    rm -rf "$folder/out"
    said=$(timeout 60 "$train" "${tuned[@]}" --out "$folder/out" "$@" 2>&1)
}
go_on() { # go_on ARGUMENT...: with what config.json has
    said=$(timeout 60 "$train" --out "$folder/out" --resume auto "$@" 2>&1)
}
start --steps 1
grep -qx -- '--seq-len 159: the longest example has 160 tokens' <<<"$said" &&
    [ "$(of_config seq-len)" = 159 ] && ! grep -q '^examples: cut to' <<<"$said" &&
    [ "$(of_config batch)" = 8 ] && grep -q '^weights hash' <<<"$said"
result $? "sequences are as long as the longest example" "$said"
go_on --steps 2
grep -q '^step 2/2 ' <<<"$said" && ! grep -q -- '^--seq-len' <<<"$said"
result $? "and a resume keeps their length" "$said"
lines 170 >"$folder/longer.jsonl"
start --steps 0 --val-data "$folder/longer.jsonl"
grep -qx -- '--seq-len 169: the longest example has 170 tokens' <<<"$said"
result $? "of those that validate, too" "$said"
start --steps 0 --seq-len 300
! grep -q -- '^--seq-len' <<<"$said" && [ "$(of_config seq-len)" = 300 ]
result $? "a length on the line is that" "$said"
echo '{"seq-len": 200}' >"$folder/length.json"
start --steps 0 --config "$folder/length.json"
! grep -q -- '^--seq-len' <<<"$said" && [ "$(of_config seq-len)" = 200 ]
result $? "and one of a file" "$said"
lines 1100 >>"$folder/longer.jsonl"
start --steps 0 --val-data "$folder/longer.jsonl" --batch 1
grep -qx -- '--seq-len 1024: no more, though the longest example has 1100 tokens' <<<"$said" &&
    grep -q '^examples: cut to --seq-len 1024: 1 of ' <<<"$said"
result $? "1,024 tokens are the most" "$said"
start --plan --json
grep -q '"seq_len":[[:space:]]*1024,' <<<"$said" && grep -q -- '^--seq-len 1024 at most' <<<"$said"
result $? "as a plan says, which reads no example" "$said"
start --steps 0 --init "run:$folder/narrow"
grep -qx -- '--seq-len 100: no more, though the longest example has 160 tokens' <<<"$said"
result $? "nor more than the model's" "$said"

peak_of() { # peak_of BATCH: bytes that a rank then takes
    timeout 60 "$train" "${tuned[@]}" --seq-len 159 --global-batch 8 --batch "$1" --plan --json \
        2>"$folder/said" | sed -n 's/^\t"peak":[[:space:]]*\([0-9]*\),*$/\1/p'
}
twice=$((2 * $(peak_of 2)))
start --steps 2 --device-mem $twice
grep -q -- '^--batch 2 of --global-batch 8 is chosen: .* more than half of the ' <<<"$said" &&
    [ "$(of_config batch) $(of_config global-batch)" = "2 8" ]
result $? "a micro-batch is for half of the memory" "$said"
start --sample-only --prompt a --sample-tokens 2 --device-mem $((2 * $(peak_of 8) - 2))
[ $? = 0 ] && ! grep -q -- '^--batch' <<<"$said"
result $? "which is not told before a sample" "$said"
start --steps 2 --device-mem $twice
go_on --steps 3 --device-mem 0
seen=$(hash_of <<<"$said")
! grep -q -- '^--batch' <<<"$said"
result $? "and a resume with more memory keeps it" "$said"
start --steps 3 --batch 2 --global-batch 8
[ "$seen" ] && [ "$seen" = "$(hash_of <<<"$said")" ]
result $? "it is the run of that --batch" "$said"
start --steps 1 --device-mem $((twice - 2))
grep -q -- '^--batch 1 of --global-batch 8 is ' <<<"$said"
result $? "two bytes less are too little for it" "$said"
start --steps 1 --device-mem $twice --batch 4 --global-batch 8
! grep -q -- '^--batch' <<<"$said" && [ "$(of_config batch)" = 4 ]
result $? "a --batch on the line is that" "$said"
start --steps 1 --device-mem $twice --fit auto
! grep -q -- '^--batch' <<<"$said" && [ "$(of_config batch)" -gt 2 ] &&
    grep -q '^weights hash' <<<"$said"
result $? "and --fit auto has all of the memory" "$said"
start --steps 1 --device-mem $twice --ranks 2 --zero 1 --global-batch 8
grep -q -- '^--batch [24] of --global-batch 8 is ' <<<"$said" && grep -q '^weights hash' <<<"$said"
result $? "ranks have one choice" "$said"
start --steps 1 --global-batch 3
[ "$(of_config batch)" = 3 ] && grep -q '^weights hash' <<<"$said"
result $? "and it divides the step" "$said"

# ---- frozen parts ----

on random
freezes=(--init "hf:$models/llama" --freeze embeddings,layers:0 --export "hf:$folder/made")
hash_of_run() { sed -n 's/^weights hash: //p' <<<"$said"; }
rm -rf "$folder/made"
said=$(run --steps 6 "${freezes[@]}")
unbroken=$(hash_of_run)
grep -qx "parameters: 88768, of which [1-9][0-9]* are trained" <<<"$said"
result $? "a run says how many parameters are trained" "$said"
[ "$unbroken" ] && /usr/bin/python3 - "$models/llama" "$folder/made" <<'PYTHON' >"$folder/said" 2>&1
import glob, json, struct, sys
def tensors(folder):
    out = {}
    for path in glob.glob(folder + "/*.safetensors"):
        data = open(path, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8 : 8 + n]).items():
            if name != "__metadata__":
                out[name] = data[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]]
    return out
was, now = tensors(sys.argv[1]), tensors(sys.argv[2])
for name in now:
    frozen = "embed_tokens" in name or "layers.0." in name
    if (was[name] == now[name]) != frozen:
        sys.exit("%s: frozen %s, same %s" % (name, frozen, was[name] == now[name]))
print(len(now))
PYTHON
result $? "an export has what is frozen as it was, and nothing else" "$said $(<"$folder/said")"
unset 'freezes[-1]' 'freezes[-1]'
for stage in 0 3; do
    run --steps 3 "${freezes[@]}" >/dev/null
    said=$(timeout 60 "$train" --out "$folder/out" --resume auto --steps 6 --zero $stage 2>&1)
    [ "$unbroken" ] && [ "$(hash_of_run)" = "$unbroken" ]
    result $? "a run with frozen parts is resumed as if it had not stopped, stage $stage" "$said"
done
bytes_of() { du -bs "$folder/out/checkpoints/step-00000006" | cut -f 1; }
small=$(bytes_of)
said=$(timeout 60 "$train" --out "$folder/out" --resume auto --steps 7 --freeze none 2>&1)
[ $? = 2 ] && error_is 'E_CHECKPOINT_IDENTITY --freeze'
result $? "it cannot go on with other parts" "$said"
said=$(timeout 60 "$train" --out "$folder/out" --resume auto --steps 6 \
    --export "hf:$folder/again" 2>&1)
cmp "$folder/made/model.safetensors" "$folder/again/model.safetensors" >"$folder/said" 2>&1
result $? "its checkpoint is exported as the run was" "$said $(<"$folder/said")"
run --steps 6 --init "hf:$models/llama" >/dev/null
[ "$small" -lt $(($(bytes_of) * 8 / 10)) ]
result $? "its checkpoint has no optimizer state of frozen parts" "$small bytes"
late=(--init "hf:$models/llama" --ranks 2 --pp 2 --pp-split 1,1 --global-batch 4 --zero 1
    --offload-optimizer cpu --delay-update --delay-after 1 --freeze embeddings,layers:0)
unbroken=$(run --steps 5 "${late[@]}" | sed -n 's/^weights hash: //p')
run --steps 3 "${late[@]}" >/dev/null
said=$(timeout 60 "$train" --out "$folder/out" --resume auto --steps 5 2>&1)
[ "$unbroken" ] && [ "$(hash_of_run)" = "$unbroken" ]
result $? "a stage that trains nothing is as late as the others" "$said"
refused "more layers than a model can have" E_SHAPE_RANGE --layers 2000 --freeze layers:0-1998
refused "all parts frozen" E_FREEZE --init "hf:$models/llama" \
    --freeze "embeddings,head,layers:0-1"

echo "1..$count"
exit $failed
