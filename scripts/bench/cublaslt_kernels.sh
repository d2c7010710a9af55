#!/bin/bash
# Which kernels cuBLASLt has by the names in its library, as the tables in docs/cublaslt.md. To be
# run when the CUDA Toolkit changes, without a GPU. Needs python3.
#
#   scripts/bench/cublaslt_kernels.sh                    writes the table into docs/cublaslt.md again
#   scripts/bench/cublaslt_kernels.sh --print [LIBRARY]  prints it
#
# LIBRARY is a libcublasLt.so. Without it: that of nvcc's toolkit, else that of PyTorch's packages.
# docs/cublaslt.md says how the names are read, and what follows from them.
set -eu
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.."
. scripts/dev/torch.sh
export LC_ALL=C
page=docs/cublaslt.md

find_library() {
    local nvcc folder file
    local -a folders=()
    nvcc=$(command -v nvcc || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc") &&
        folder=$(dirname "$(dirname "$(readlink -f "$nvcc")")") &&
        folders=("$folder/lib64" "$folder/lib" "$folder"/targets/*/lib)
    torch_find 2>/dev/null && IFS=: read -ra found <<<"$(torch_libraries)" &&
        folders+=("${found[@]}")
    for folder in ${folders[@]+"${folders[@]}"}; do
        for file in "$folder"/libcublasLt.so.[0-9]*; do
            [ -f "$file" ] && echo "$file" && return
        done
    done
    echo "cublaslt_kernels: no libcublasLt.so in nvcc's toolkit or PyTorch's packages; name one" >&2
    return 2
}

# The library itself says it: 130100 is 13.1.0.
version_of() { # version_of LIBRARY
    python3 -c '
import ctypes, sys
v = ctypes.CDLL(sys.argv[1]).cublasLtGetVersion()
print("%d.%d.%d" % (v // 10000, v // 100 % 100, v % 100))' "$1"
}

# A line for each kernel: "GPU format epilogue layout tile". What splits k, or has its code's name
# beside its own, is a form of one kernel.
read_names() {
    sed 's/_execute_.*//; s/EEv.*//' | sort -u | awk '
        BEGIN {
            format["bf16bf16_bf16f32"] = format["bf16_bf16"] = "bf16"
            format["bf16f32_bf16f32"] = format["_bf16"] = "bf16_to_fp32"
            format["f16f16_f16f32"] = format["f16_f16"] = "fp16"
            format["f16f32_f16f32"] = format["_f16"] = "fp16_to_fp32"
            format["f32f32_tf32f32"] = format["tensorop_s1688gemm"] = "tf32"
            format["f32f32_f32f32"] = format["simt_sgemm"] = "fp32"
        }
        function column(words) { # of the table below; those with ReLU are in none
            if (match(words, /bgrad[ab]/))
                return words ~ /dgelu/ ? "dgelu_bgrad" : substr(words, RSTART, RLENGTH)
            if (words ~ /dgelu/)
                return "dgelu" # its aux is what GELU was given
            if (words ~ /gelu/)
                return words ~ /aux/ ? "gelu_aux" : "gelu"
            return words ~ /relu/ ? "relu" : words ~ /bias/ ? "bias" : "plain"
        }
        function say(gpu, key, words, layout, tile) {
            if (key in format && layout ~ /^[nt][nt]$/)
                print gpu, format[key], column(words), layout, tile
        }
        { n = split($0, part, "_") }
        part[2] == "xmma" {
            say(part[1] == "sm90" ? "9.0" : "8.0", part[4] "_" part[5], $0, part[7], part[9])
        }
        # cutlass_80 [wmma] UNITS [OUT] PRODUCT [EPILOGUE] [IN] [forwardCompat] MxN KxSTAGES LAYOUT
        part[1] == "cutlass" && !/planar/ && match($0, /_[0-9]+x[0-9]+_[0-9]+x[0-9]+_[nt][nt]_/) {
            split(substr($0, RSTART + 1, RLENGTH), shape, "_")
            words = substr($0, 1, RSTART - 1)
            sub(/_forwardCompat$/, "", words)
            n = split(words, part, "_")
            i = part[3] == "wmma" ? 4 : 3
            out = part[i + 1] ~ /^b?f16$/ ? part[i + 1] : ""
            product = part[out == "" ? i + 1 : i + 2]
            key = part[i] "_" product
            if (product ~ /^s(16816|161616)gemm$/)
                key = out "_" part[n]
            say("8.0", key, words, shape[3], shape[1] "x" shape[2] + 0)
        }'
}

table() { # table: of the lines that read_names makes
    awk '
        {
            cell = $1 " " $2 " " $3
            kernels[cell]++
            if (!((cell, $5) in tiles)) {
                tiles[cell, $5] = 1
                shapes[cell]++
            }
            if (!((cell, $4) in seen)) {
                seen[cell, $4] = 1
                layouts[cell]++
            }
        }
        function fill(cell,    text, k) {
            if (!(cell in kernels))
                return "no"
            text = kernels[cell] " / " shapes[cell]
            if (layouts[cell] < 4)
                for (k = 1; k <= 4; k++)
                    if ((cell, layout[k]) in seen)
                        text = text " " layout[k]
            return text
        }
        END {
            split("nn nt tn tt", layout, " ")
            split("9.0 8.0", gpu, " ")
            split("bf16 bf16_to_fp32 fp16 fp16_to_fp32 tf32 fp32", format, " ")
            m = split("plain bias gelu gelu_aux dgelu dgelu_bgrad bgrada bgradb", column, " ")
            split("plain,bias,gelu,gelu and aux,dgelu,dgelu and bgrad,bgrada,bgradb", head, ",")
            line = "| for | format |"
            rule = "|---|---|"
            for (c = 1; c <= m; c++) {
                line = line " " head[c] " |"
                rule = rule "---:|"
            }
            print line
            print rule
            for (g = 1; g <= 2; g++)
                for (f = 1; f <= 6; f++) {
                    line = "| " gpu[g] " | " format[f] " |"
                    gsub(/_/, " ", line)
                    for (c = 1; c <= m; c++)
                        line = line " " fill(gpu[g] " " format[f] " " column[c]) " |"
                    print line
                }
        }'
}

# Kernels that make an epilogue of what any product has left, by the format that they read.
passes() {
    sort -u | awk '
        function add(text, name) {
            if (match(text, "^" name "ILi[0-9]+ELi[0-9]+E")) {
                text = substr(text, RLENGTH + 1)
                kernels[name, text ~ /^13__nv_bf/ ? "bf16" : text ~ /^6__half/ ? "fp16" : \
                    text ~ /^f[f1S]/ ? "fp32" : "other"]++
            }
        }
        /^_ZN8cublasLt8epilogue4impl/ {
            sub(/^_ZN8cublasLt8epilogue4impl[0-9]+/, "")
            for (i = 1; i <= n; i++)
                add($0, name[i])
        }
        BEGIN { n = split("globalKernel globalKernelBgradAB_v1 globalKernelBgradAB_v2", name, " ") }
        END {
            print "| pass of its own | bf16 | fp16 | fp32 |"
            print "|---|---:|---:|---:|"
            for (i = 1; i <= n; i++)
                print "| `" name[i] "` | " kernels[name[i], "bf16"] + 0 " | " \
                    kernels[name[i], "fp16"] + 0 " | " kernels[name[i], "fp32"] + 0 " |"
        }'
}

print_all() { # print_all LIBRARY
    local names
    echo "cuBLASLt $(version_of "$1"):"
    echo
    names=$(grep -aoE -e '(sm[89]0_xmma_gemm|cutlass_80)_[a-z0-9_A-Z]+' -e 'nvjet_sm[%a-z0-9_]+' \
        -e '_ZN8cublasLt8epilogue4impl[0-9A-Za-z_]+' "$1")
    read_names <<<"$names" | table
    echo
    passes <<<"$names"
    echo
    echo "Names of kernels that begin with \`nvjet\`:" \
        "$(grep -c '^nvjet_sm[0-9]*_[^%]*$' <<<"$names")."
}

if [ "${1:-}" = --print ]; then
    library=${2:-$(find_library)}
    [ -f "$library" ] || { echo "cublaslt_kernels: there is no $library" >&2 && exit 2; }
    print_all "$library"
    exit
fi
new=$(mktemp)
trap 'rm -f "$new"' EXIT
library=$(find_library)
{
    sed '/^<!-- cublaslt_kernels -->$/q' $page
    echo
    print_all "$library"
    echo
    sed -n '/^<!-- end -->$/,$p' $page
} >"$new"
cat "$new" >$page
