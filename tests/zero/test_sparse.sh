#!/bin/bash
# Sparse attention through ./train: each pattern in GPT-2 and Llama, one result over stages, tiers
# and recomputation, the bytes of the plan; a pattern of all blocks has the bits of dense attention;
# tensor parallelism has the heads' patterns; a checkpoint goes on with its own pattern alone; and
# what cannot say or keep one refuses it. Speaks TAP. (What a pattern is:
# tests/model/test_sparse.c.)
set -u
. "${BASH_SOURCE%/*}/../lib/model_runs.sh"
usual+=(--seq-len 200 --layers 2 --heads 4 --channels 32 --vocab 61 --steps 3 --lr 1e-2)
llama=(--family llama --kv-heads 2 --ffn 48)
apart=bigbird:different_layout_per_head=true

loss_of() { sed -n 's/^step 3 .*validation loss \([0-9.]*\).*/\1/p'; }

dense=$(run | hash_of)
all=$(run --sparse-attention fixed:num_local_blocks=13 | hash_of)
[ "$dense" ] && [ "$all" = "$dense" ]
result $? "a pattern of all blocks has the bits of dense attention" "$dense $all"

for family in gpt2 llama; do
    [ $family = gpt2 ] && words=() || words=("${llama[@]}")
    seen=$(run "${words[@]}" | hash_of)
    for pattern in fixed variable:num_random_blocks=1 $apart bslongformer local:block=32; do
        said=$(run "${words[@]}" --sparse-attention $pattern)
        hash=$(hash_of <<<"$said")
        [ "$hash" ] && ! grep -q "$hash" <<<"$seen"
        result $? "$family, $pattern: trains, and is another model" "$said"
        seen+=" $hash"
        for how in "--zero 3 --recompute block" "--recompute attention" \
            "--zero 2 --offload-optimizer cpu --offload-param cpu --offload-activations cpu"; do
            # shellcheck disable=SC2086 # words
            said=$(run "${words[@]}" --sparse-attention $pattern $how)
            [ "$(hash_of <<<"$said")" = "$hash" ] || break
        done
        [ "$hash" ] && [ "$(hash_of <<<"$said")" = "$hash" ]
        result $? "$family, $pattern: one hash over stages, tiers and recomputation" "$how: $said"
        workspace=$(sed -nE 's/^  workspace +([0-9.]+) +([0-9.]+)$/\1 \2/p' <<<"$said")
        [ "${workspace% *}" ] && [ "${workspace% *}" = "${workspace#* }" ]
        result $? "$family, $pattern: its tables take the bytes of the plan" "$said"
    done
done

# The tables of a long sequence are seen in the plan.
small=$(run --plan --seq-len 4096 --sparse-attention local:block=64)
large=$(run --plan --seq-len 4096 --sparse-attention fixed:num_local_blocks=999)
workspace() { sed -nE 's/^  workspace +([0-9.]+).*/\1/p' <<<"$1" | head -1; }
[ "$(workspace "$small")" ] && [ "$(workspace "$small")" != "$(workspace "$large")" ]
result $? "a plan counts the tables" "$(workspace "$small") $(workspace "$large") $small"

# Places of tensor parallelism compute their heads' patterns: the whole's losses, to rounding.
one=$(run "${llama[@]}" --sparse-attention $apart)
two=$(run "${llama[@]}" --sparse-attention $apart --ranks 2 --tp 2)
a=$(loss_of <<<"$one") b=$(loss_of <<<"$two")
[ "$a" ] && awk -v a="$a" -v b="$b" 'BEGIN { exit !(a - b < 2e-4 && b - a < 2e-4) }'
result $? "two places of tensor parallelism have the losses of one" "$a $b $two"

# Through a window besides.
window=$(run "${llama[@]}" --attention-window 40 --sparse-attention bslongformer | hash_of)
[ "$window" ] && [ "$window" != "$(run "${llama[@]}" --attention-window 40 | hash_of)" ] &&
    [ "$window" != "$(run "${llama[@]}" --sparse-attention bslongformer | hash_of)" ]
result $? "a window hides besides" "$window"

# ---- checkpoints ----

again() { # again ARGUMENT...: the run goes on
    timeout 60 "$train" "${usual[@]}" --out "$folder/out" --resume auto --steps 5 "$@" 2>&1
}
want=$(run --sparse-attention fixed --steps 5 | hash_of)
run --sparse-attention fixed >/dev/null
for other in "--sparse-attention dense" "--sparse-attention fixed:num_local_blocks=2" \
    "--sparse-attention local"; do
    # shellcheck disable=SC2086 # words
    said=$(again $other)
    [ $? = 2 ] && error_is 'E_CHECKPOINT_IDENTITY "--sparse-attention fixed:block=16,'
    result $? "refused: a resume with $other, by name" "$said"
done
said=$(again --sparse-attention fixed:block=16,num_local_blocks=4)
[ "$want" ] && [ "$(hash_of <<<"$said")" = "$want" ]
result $? "the same pattern in other words goes on, and to the same end" "$want $said"
run >/dev/null
said=$(again --sparse-attention fixed)
[ $? = 2 ] && error_is 'E_CHECKPOINT_IDENTITY "--sparse-attention fixed:'
result $? "refused: a dense run that is to go on sparse" "$said"

# ---- what is refused ----

refused "blocks that are no cells" "E_SPARSE_ATTENTION block=N*40" --sparse-attention fixed:block=40
refused "a sequence longer than patterns go" "E_SEQ_LEN --seq-len 262145*262144" \
    --sparse-attention local --seq-len 262145 --device-mem 1G
refused "a folder that cannot say it" "E_EXPORT_MODEL gpt2*--sparse-attention fixed:" \
    --sparse-attention fixed --export "hf:$folder/new"
refused "a file of llm.c that cannot say it" "E_EXPORT_MODEL --sparse-attention fixed:" \
    --sparse-attention fixed --export "llmc:$folder/new.bin"
for i in 1 2 3 4 5 6 7 8 9; do
    echo '{"prompt": "a", "completion": "b"}'
done >"$folder/chat.jsonl"
on "$folder/chat.jsonl"
refused "packed documents" E_SPARSE_PACKED \
    --sparse-attention fixed --tokenizer byte --vocab 0 --seq-len 64 --batch 1

echo "1..$count"
exit $failed
