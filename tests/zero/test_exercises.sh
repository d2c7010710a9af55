#!/bin/bash
# The exercises of the docs are true. docs/add-a-stage.md: the change that it shows takes at most 19
# lines in one file, builds, trains with stage 2's bits, and sends what is predicted.
# docs/add-a-wire.md: one file and one row of its table; it gives all stages the same bits, and is
# planned, counted and traced. docs/add-a-flag.md: at most 8 lines in three files, and the memory
# that is predicted. They are built at once. docs/add-a-kernel.md and docs/add-a-family.md change
# headers that all objects read: what they show applies, and is not built here. TRAIN: its objects
# are used again.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
train=$(realpath "${TRAIN:-build/release/train}")
tree=$(mktemp -d -t exercises.XXXXXX)
trap 'rm -rf "$tree"' EXIT

find . \( -path ./.git -o -path ./build -o -path ./out \) -prune -o -type f -print0 |
    xargs -0 cp --parents --preserve=timestamps -t "$tree"
mkdir -p "$tree/build/release"
find "$(dirname "$train")" -mindepth 1 -maxdepth 1 ! -name tests \
    -exec cp -at "$tree/build/release" {} +

shown() { # shown NAME: the change that docs/add-a-NAME.md shows
    sed -n '/^```diff$/,/^```$/p' "docs/add-a-$1.md" | sed '1d;$d'
}
for name in kernel family; do
    shown $name >"$tree/$name.diff"
    said=$(patch -d "$tree" -p1 --dry-run --fuzz=0 <"$tree/$name.diff" 2>&1) && [ -n "$said" ]
    result $? "a $name: the change applies" "$said"
done

# apply NAME LINES FILES: makes the change of docs/add-a-NAME.md, of at most so many lines and
# files.
apply() {
    local lines files said
    shown "$1" >"$tree/$1.diff"
    lines=$(grep -c '^+[^+]' "$tree/$1.diff") files=$(grep -c '^+++ ' "$tree/$1.diff")
    [ "$lines" -gt 0 ] && [ "$lines" -le "$2" ] && [ "$files" -le "$3" ]
    result $? "a $1: at most $2 lines, files: $3" "$lines lines in $files files"
    said=$(cd "$tree" && patch -p1 --no-backup-if-mismatch <"$1.diff" 2>&1)
    result $? "a $1: the change applies" "$said"
}
apply stage 19 1
apply wire 21 1
apply flag 8 3
said=$(cd "$tree" && make -s -j2 train 2>&1)
result $? "the changes build" "$said"

run() { # run FLAG...: the hash, and the table's lines in one
    "$tree/train" --data random --vocab 61 --device cpu --model tiny --layers 2 --heads 3 \
        --channels 36 --seq-len 17 --batch 2 --ranks 3 --steps 4 --threads 1 --no-tensorboard \
        --out "$tree/out" "$@" 2>&1
    rm -rf "$tree/out"
}
# Of a table's row, what was predicted and what was measured.
row() { awk -v name="$1" '$1 == name { said = $2 " " $3 } END { print said }' <<<"$2"; }
hash_of() { grep '^weights hash' <<<"$1"; }
sent_as_planned() {
    read -r predicted counted <<<"$(row sum "$1")"
    [ -n "$counted" ] && [ "$predicted" = "$counted" ]
}

# ---- a stage ----

for flags in "--dtype bf16" "--dtype fp32 --global-batch 12" "--dtype bf16 --global-batch 18"; do
    # shellcheck disable=SC2086
    two=$(run --zero 2 $flags) four=$(run --zero 4 $flags) zero=$(run --zero 0 $flags)
    [ -n "$(hash_of "$four")" ] && [ "$(hash_of "$four")" = "$(hash_of "$two")" ]
    result $? "stage 2's bits, $flags" "$four"
    [ "$(row gradients "$four")" = "$(row gradients "$two")" ] &&
        [ "$(row optimizer "$four")" = "$(row optimizer "$zero")" ]
    result $? "gradients of stage 2, optimizer state of stage 0, $flags" "$four"
    sent_as_planned "$four"
    result $? "sent what was predicted, $flags" "$four"
done
for flags in "--offload-optimizer cpu" "--offload-param cpu"; do
    # shellcheck disable=SC2086
    said=$(run --zero 4 --dtype bf16 $flags)
    error_is 'E_STAGE_OFFLOAD --zero 4'
    result $? "its update knows no $flags: refused" "$said"
done

# ---- a wire ----

fp32=$(run --zero 3 --dtype fp32) hashes=''
for stage in 1 2 3; do
    said=$(run --zero $stage --dtype fp32 --zero-quantized-weights bf16)
    hashes+=$(hash_of "$said")$'\n'
    sent_as_planned "$said"
    result $? "weights in bf16 at stage $stage: sent what was predicted" "$said"
done
[ "$(sort -u <<<"$hashes" | grep -c .)" = 1 ] && [ "$(hash_of "$said")" != "$(hash_of "$fp32")" ]
result $? "one hash of three stages, and not that of fp32" "$hashes$fp32"
whole=$(row all_gather "$fp32") half=$(row all_gather "$said")
awk -v a="${whole#* }" -v b="${half#* }" 'BEGIN { exit !(b > 0.45 * a && b < 0.55 * a) }'
result $? "half of fp32's bytes are gathered" "$whole, $half"
said=$(run --zero 3 --dtype fp32 --zero-quantized-weights bf16 --plan --show-chain block.0)
grep -q "^ *fetch (forward)  *cast  *comm .* of memory by kernels" <<<"$said"
result $? "--show-chain has its hops and their cost" "$said"
said=$(run --zero 3 --dtype fp32 --zero-quantized-weights bf16 --trace "$tree/trace.json")
grep -q '"cast"' "$tree/trace.json"
result $? "--trace has its kernels" "$said"

# ---- a flag ----

flags="--layers 6 --recompute block --offload-activations cpu"
# shellcheck disable=SC2086
one=$(run $flags) three=$(run $flags --prefetch-activations 3)
on_device() { awk '$1 == "activations" && NF == 3 { print $2, $3; exit }' <<<"$1"; }
read -r predicted measured <<<"$(on_device "$three")"
[ -n "$(hash_of "$three")" ] && [ "$(hash_of "$three")" = "$(hash_of "$one")" ] &&
    [ -n "$measured" ] && [ "$predicted" = "$measured" ] &&
    [ "$(on_device "$one")" != "$predicted $measured" ]
result $? "the flag changes memory as predicted, and no bit" "$one
$three"
"$tree/train" --help prefetch-activations | grep -q '(N<=64, default 0)'
result $? "--help knows it"

echo "1..$count"
exit $failed
