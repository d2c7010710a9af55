#!/bin/bash
# Fine-tuning: what --init leaves to the run, held against PyTorch. Speaks TAP.
#
# TRAIN names the program (default ./train).
set -u
. "${BASH_SOURCE%/*}/../lib/model_runs.sh"

# ---- each default by itself ----

# The fixture has what scripts/tuning_fixture.py computed in PyTorch.
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

echo "1..$count"
exit $failed
