#!/bin/bash
# docs/add-a-stage.md is true: the change that it shows takes at most 19 lines in one file, builds,
# trains with stage 2's bits, and sends what is predicted. TRAIN: its objects are used again.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
train=$(realpath "${TRAIN:-build/release/train}")
tree=$(mktemp -d -t add_stage.XXXXXX)
trap 'rm -rf "$tree"' EXIT

find . \( -path ./.git -o -path ./build -o -path ./out \) -prune -o -type f -print0 |
    xargs -0 cp --parents --preserve=timestamps -t "$tree"
mkdir -p "$tree/build/release"
find "$(dirname "$train")" -mindepth 1 -maxdepth 1 ! -name tests \
    -exec cp -at "$tree/build/release" {} +
sed -n '/^```diff$/,/^```$/p' docs/add-a-stage.md | sed '1d;$d' >"$tree/stage.diff"

lines=$(grep -c '^+[^+]' "$tree/stage.diff") files=$(grep -c '^+++ ' "$tree/stage.diff")
[ "$lines" -gt 0 ] && [ "$lines" -le 19 ] && [ "$files" -le 1 ]
result $? "at most 19 lines in one file" "$lines lines in $files files"
said=$(cd "$tree" && patch -p1 --no-backup-if-mismatch <stage.diff 2>&1 && make -s -j2 train 2>&1)
result $? "the change applies and builds" "$said"

run() { # run FLAG...: the hash, and the table's lines in one
    "$tree/train" --data random --vocab 61 --device cpu --model tiny --layers 2 --heads 3 \
        --channels 36 --seq-len 17 --batch 2 --ranks 3 --steps 4 --threads 1 --no-tensorboard \
        --out "$tree/out" "$@" 2>&1
    rm -rf "$tree/out"
}
# Of a table's row, what was predicted and what was measured.
row() { awk -v name="$1" '$1 == name { said = $2 " " $3 } END { print said }' <<<"$2"; }

for flags in "--dtype bf16" "--dtype fp32 --global-batch 12" "--dtype bf16 --global-batch 18"; do
    # shellcheck disable=SC2086
    two=$(run --zero 2 $flags) four=$(run --zero 4 $flags) zero=$(run --zero 0 $flags)
    hash=$(grep '^weights hash' <<<"$four")
    [ -n "$hash" ] && [ "$hash" = "$(grep '^weights hash' <<<"$two")" ]
    result $? "stage 2's bits, $flags" "$four"
    [ "$(row gradients "$four")" = "$(row gradients "$two")" ] &&
        [ "$(row optimizer "$four")" = "$(row optimizer "$zero")" ]
    result $? "gradients of stage 2, optimizer state of stage 0, $flags" "$four"
    read -r predicted counted <<<"$(row sum "$four")"
    [ -n "$counted" ] && [ "$predicted" = "$counted" ]
    result $? "sent what was predicted, $flags" "$four"
done
for flags in "--offload-optimizer cpu" "--offload-param cpu"; do
    # shellcheck disable=SC2086
    said=$(run --zero 4 --dtype bf16 $flags)
    error_is 'E_STAGE_OFFLOAD --zero 4'
    result $? "its update knows no $flags: refused" "$said"
done
echo "1..$count"
exit $failed
