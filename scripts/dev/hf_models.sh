#!/bin/bash
# Whole models in and out, against PyTorch and transformers: for each shape a Hugging Face folder
# with random weights is made, imported, trained for some steps and exported.
#
#   scripts/dev/hf_models.sh [MODEL...]     default: smollm2-135m qwen2.5-0.5b llama3.2-1b
#   DTYPES="fp32 bf16" STEPS=20 T=128 scripts/dev/hf_models.sh smollm2-135m
#
# Losses of every step are held against a PyTorch loop over the same tokens (within 1e-3 of them),
# and the logits of the exported folder in AutoModelForCausalLM against ours (within 1e-4 of the
# largest in fp32, 1e-2 in bf16). Needs a Python with torch and transformers ($PYTHON, or what
# scripts/dev/torch.sh installed, where transformers are added), 16 bytes of memory and 20 of disk a
# parameter (TMPDIR: where). The last line is `N passed, N failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
. scripts/dev/torch.sh
torch_install || exit 1
"$python" -c 'import transformers' 2>/dev/null || "$python" -m pip install -q transformers || exit 1
scripts/setup.sh --test || exit 1
make -s -j"$(nproc)" WITHOUT=cuda build/release/train build/release/tests/model_logits || exit 1

train=${TRAIN:-build/release/train} steps=${STEPS:-20} tokens=${T:-128}
lr=1e-4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/lib/tally.sh
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

# Steps and losses of our log, as the loop prints them.
losses_of() { # losses_of LOG
    sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([0-9.e+-]*\).*/\1 \2/p' "$1" | head -n "$steps"
}

# The largest distance of two lists of "step loss", in parts of the second's; nothing where they do
# not have all steps.
distance() { # distance OURS THEIRS
    awk -v steps="$steps" 'NR == FNR { ours[$1] = $2; next }
        ($1 in ours) { n++; d = (ours[$1] - $2) / $2; if (d < 0) d = -d; if (d > most) most = d }
        END { if (n == steps) printf "%.2g", most }' "$1" "$2"
}

below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a + 0 <= b) }'; }

try() { # try MODEL DTYPE LIMIT
    local name="$1, $2" out=$work/out apart begin=$SECONDS ours theirs
    rm -rf "$out" "$work/exported"
    "$train" --init "hf:$work/model" --data "$work/data/step-*.bin" --val-data \
        "$work/data/val.bin" --seq-len "$tokens" --batch 1 --steps "$steps" --lr $lr --warmup 0 \
        --weight-decay 0.1 --dtype "$2" --out "$out" --log-every 1 --export "hf:$work/exported" \
        --device cpu >"$work/said" 2>&1
    result $? "$name: imported, trained for $steps steps and exported"
    [ -d "$work/exported" ] || { tail -n 1 "$work/said"; return; }
    ours=$((SECONDS - begin)) begin=$SECONDS
    losses_of "$out/log.jsonl" >"$work/ours"
    rm -rf "$out"
    "$python" scripts/dev/hf_models.py loop "$work/model" "$work/data" "$steps" $lr "$2" \
        >"$work/theirs" 2>"$work/said" || tail -n 1 "$work/said"
    theirs=$((SECONDS - begin))
    apart=$(distance "$work/ours" "$work/theirs")
    below "$apart" 1e-3
    result $? "$name: losses $(head -n 1 "$work/ours" | cut -d' ' -f2) to $(
        tail -n 1 "$work/ours" | cut -d' ' -f2) are ${apart:-not all} from PyTorch's ($ours s, \
$theirs s there)"
    build/release/tests/model_logits "$work/exported" "$2" "$work/data/ids" "$work/logits" &&
        apart=$("$python" scripts/dev/hf_models.py logits "$work/exported" "$work/data/ids" \
            "$work/logits" 2>"$work/said") || { apart=; tail -n 1 "$work/said"; }
    below "$apart" "$3"
    result $? "$name: logits of the exported folder are ${apart:-nothing} from transformers'"
}

mkdir "$work/data"
"$python" scripts/dev/hf_models.py data "$work/data" "$steps" "$tokens" || exit 1
[ $# -gt 0 ] || set -- smollm2-135m qwen2.5-0.5b llama3.2-1b
for model in "$@"; do
    rm -rf "$work/model"
    "$python" scripts/dev/hf_models.py make "$model" "$work/model" 2>"$work/said" || {
        result 1 "$model: $(tail -n 1 "$work/said")"
        continue
    }
    for dtype in ${DTYPES:-fp32 bf16}; do
        try "$model" "$dtype" "$([ "$dtype" = fp32 ] && echo 1e-4 || echo 1e-2)"
    done
done
tally_end
