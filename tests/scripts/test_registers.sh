#!/bin/bash
# docs/registers.md says what the kernels that are built here need, and attention spills nothing on
# an H100 or H200 (sm_90), but a few registers in one place. Speaks TAP for
# scripts/dev/run_tests.sh. The table depends on the version of nvcc: with another one than it
# names, it is not compared.
set -u
# shellcheck source=tests/lib/tap.sh
. tests/lib/tap.sh
table=$(mktemp)
trap 'rm -f "$table"' EXIT

if ! ls build/release/kernels/cuda/*.ptxas >/dev/null 2>&1; then
    echo "1..0 # SKIP this build has no CUDA"
    exit 0
fi
scripts/bench/gpu_registers.sh --print >"$table"

# Column 7 is sm_90's in a table of all six targets; the head names it.
column=$(awk -F ' *[|] *' '$2 == "file" { for (i = 1; i <= NF; i++) if ($i == "sm_90") print i }' \
    "$table")
kernels=$(awk -F ' *[|] *' -v c="${column:-0}" '$2 ~ /^attention/ && $c != ""' "$table" | wc -l)
# dK and dV of heads of 64 have 255 registers and want three more: 12 bytes stored, 16 loaded. Those
# of sparse attention want thirteen: 52 bytes stored, 36 loaded.
spilled=$(awk -F ' *[|] *' -v c="${column:-0}" '$2 ~ /^attention/ && $c ~ /\(/ {
    bytes = $c; sub(/.*\(/, "", bytes)
    most = $3 ~ /dkv_mma_kernel<.*64,false>/ ? 28 : $3 ~ /dkv_mma_kernel<.*,true>/ ? 88 : 0
    if (bytes + 0 > most) print }' "$table")
[ "$kernels" -gt 0 ] && [ -z "$spilled" ]
result $? "no attention kernel spills on sm_90, but 28 bytes of dK and dV, 88 of sparse ones" \
    "${spilled:-no kernel was found}"

written='^Written by .* with '
head='^| file | kernel |'
if [ "$(grep "$head" docs/registers.md)" != "$(grep "$head" "$table")" ]; then
    result 0 "docs/registers.md # SKIP this build is not for all targets (CUDA_ARCHS=all)"
elif [ "$(grep "$written" docs/registers.md)" = "$(grep "$written" "$table")" ]; then
    seen=$(diff docs/registers.md "$table")
    result $? "docs/registers.md is what is built (scripts/bench/gpu_registers.sh writes it)" "$seen"
else
    result 0 "docs/registers.md # SKIP it was made with another nvcc"
fi
# A variant for one target has a column of its own, behind the common code's.
folder=$(mktemp -d)
trap 'rm -rf "$table" "$folder"' EXIT
mkdir -p "$folder/kernels/cuda"
echo "CUDA 13.0" >"$folder/features.txt"
say() { # say FILE TARGET REGISTERS
    printf "%s\n" "ptxas info    : Compiling entry function '_Z1kv' for '$2'" \
        "ptxas info    : Used $3 registers, used 1 barriers" >>"$folder/kernels/cuda/$1.ptxas"
}
say common sm_90 11
say common sm_100 12
say variant sm_90a 13
seen=$(scripts/bench/gpu_registers.sh --print "$folder" | grep -E '^\| (file|common|variant)')
want="| file | kernel | shared | sm_90 | sm_90a | sm_100 |
| common.cu | \`k\` | 0 | 11 |  | 12 |
| variant.cu | \`k\` | 0 |  | 13 |  |"
[ "$seen" = "$want" ]
result $? "a variant's target is a column of its own" "$seen"
echo "1..$count"
exit $failed
