#!/bin/bash
# docs/registers.md says what the kernels that are built here need, and attention spills nothing on
# an H100 or H200 (sm_90), but a few registers in one place. Speaks TAP for
# scripts/dev/run_tests.sh. The table depends on the version of nvcc: with another one than it
# names, it is not compared, and of its columns those alone that this build is for.
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

# The head names sm_90's column.
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

# columns FILE: its table, of which those targets' columns that are built here.
columns() {
    awk -F ' *[|] *' '
        NR == FNR { for (i = 2; $2 == "file" && i < NF; i++) built[$i]; next }
        /^[|]/ {
            for (i = 2; $2 == "file" && i < NF; i++) keep[i] = $i in built
            for (i = 2; i < NF; i++) if (keep[i]) printf "| %s ", $i
            $0 = "|"
        }
        { print }' "$table" "$1"
}
written='^Written by .* with '
if [ "$(grep "$written" docs/registers.md)" = "$(grep "$written" "$table")" ]; then
    seen=$(diff <(columns docs/registers.md) <(columns "$table"))
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
