#!/bin/bash
# docs/registers.md says what the kernels that are built here need, and attention spills nothing on
# an H100 or H200 (sm_90). Speaks TAP for scripts/run_tests.sh. The table depends on the version of
# nvcc: with another one than it names, it is not compared.
set -u
# shellcheck source=tests/tap.sh
. tests/tap.sh
table=$(mktemp)
trap 'rm -f "$table"' EXIT

if ! ls build/release/kernels/cuda/*.ptxas >/dev/null 2>&1; then
    echo "1..0 # SKIP this build has no CUDA"
    exit 0
fi
scripts/gpu_registers.sh --print >"$table"

# Column 7 is sm_90's in a table of all six targets; the head names it.
column=$(awk -F ' *[|] *' '$2 == "file" { for (i = 1; i <= NF; i++) if ($i == "sm_90") print i }' \
    "$table")
kernels=$(awk -F ' *[|] *' -v c="${column:-0}" '$2 ~ /^attention/ && $c != ""' "$table" | wc -l)
spilled=$(awk -F ' *[|] *' -v c="${column:-0}" '$2 ~ /^attention/ && $c ~ /\(/' "$table")
[ "$kernels" -gt 0 ] && [ -z "$spilled" ]
result $? "no attention kernel spills on sm_90" "${spilled:-no kernel was found}"

written='^Written by .* with '
if [ "$(grep "$written" docs/registers.md)" = "$(grep "$written" "$table")" ]; then
    seen=$(diff docs/registers.md "$table")
    result $? "docs/registers.md is what is built (scripts/gpu_registers.sh writes it)" "$seen"
else
    result 0 "docs/registers.md # SKIP it was made with another nvcc"
fi
echo "1..$count"
exit $failed
