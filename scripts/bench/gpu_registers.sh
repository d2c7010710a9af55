#!/bin/bash
# Registers, spills and shared memory of every CUDA kernel on every target, as a table.
#
#   scripts/bench/gpu_registers.sh                 builds the kernels and writes docs/registers.md
#   scripts/bench/gpu_registers.sh --print [DIR]   the table of what is built in DIR (default
#                                            build/release), on standard output; builds nothing
#
# nvcc's assembler says all this when it compiles (-Xptxas -v), and the Makefile keeps what it said
# beside the object. A variant for sm_90a (kernels/cuda/variants.h) has that column alone. A kernel
# that spills keeps some of its registers in memory: for attention on sm_90
# tests/scripts/test_registers.sh holds that to 0, and it holds docs/registers.md to what is built.
# The simulator holds launches to that table (tests/cusim/resources.cc).
set -eu
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.."
export LC_ALL=C

# One line for each kernel and target: "file kernel target registers spilled_bytes shared_bytes".
list() { # list DIR
    local log
    for log in "$1"/kernels/cuda/*.ptxas; do
        c++filt <"$log" | awk -v file="$(basename "$log" .ptxas).cu" '
            function field(word,    i) { # the number before a word
                for (i = 2; i <= NF; i++)
                    if ($i ~ "^" word)
                        return $(i - 1) + 0
                return 0
            }
            /Compiling entry function/ {
                split($0, part, "\047")
                name = part[2]
                target = part[4]
                sub(/^void /, "", name)
                gsub(/__nv_bfloat16/, "bf16", name)
                gsub(/__half/, "fp16", name)
                while (match(name, /\([A-Za-z_: ]+\)[0-9]/)) # the type of a template argument
                    name = substr(name, 1, RSTART - 1) substr(name, RSTART + RLENGTH - 1)
                sub(/\(.*$/, "", name) # parameters
                gsub(/ /, "", name)
                spills = 0
            }
            /bytes spill stores/ {
                match($0, /[0-9]+ bytes spill stores/)
                spills = substr($0, RSTART) + 0
                match($0, /[0-9]+ bytes spill loads/)
                spills += substr($0, RSTART) + 0
            }
            /Used [0-9]+ registers/ {
                shared = 0
                if (match($0, /[0-9]+ bytes smem/))
                    shared = substr($0, RSTART) + 0
                match($0, /Used [0-9]+/)
                print file, name, target, substr($0, RSTART + 5) + 0, spills, shared
            }'
    done
}

table() { # table DIR
    local version
    version=$(awk '$1 == "CUDA" { print $2 }' "$1/features.txt")
    echo "# Registers of the CUDA kernels"
    echo
    echo "Written by \`scripts/bench/gpu_registers.sh\`, with nvcc $version."
    echo "For each target: registers of a thread, and in brackets the bytes that spill (stores and"
    echo "loads), if any. Shared memory, in bytes, is the static part; attention and"
    echo "norm_backward add to it at launch."
    echo
    list "$1" | sort -k1,1 -k2,2 | awk '
        {
            row = $1 " " $2
            if (!(row in seen)) {
                seen[row] = 1
                order[++n] = row
            }
            if (!($3 in known)) {
                known[$3] = 1
                number = $3
                sub(/sm_/, "", number)
                targets[2 * number + (number ~ /a$/)] = $3 # sm_90a stands behind sm_90
            }
            cell[row, $3] = $4 ($5 > 0 ? " (" $5 ")" : "")
            shared[row] = shared[row] > $6 ? shared[row] : $6
        }
        END {
            head = "| file | kernel | shared |"
            rule = "|---|---|---:|"
            for (i = 1; i < 2000; i++)
                if (i in targets) {
                    head = head " " targets[i] " |"
                    rule = rule "---:|"
                }
            print head
            print rule
            for (k = 1; k <= n; k++) {
                split(order[k], part, " ")
                line = "| " part[1] " | `" part[2] "` | " shared[order[k]] + 0 " |"
                for (i = 1; i < 2000; i++)
                    if (i in targets)
                        line = line " " cell[order[k], targets[i]] " |"
                print line
            }
        }'
}

if [ "${1:-}" = --print ]; then
    table "${2:-build/release}"
    exit
fi
scripts/setup.sh || exit 1
make registers
table build/release >docs/registers.md
echo "docs/registers.md: $(grep -c '^| [a-z_]*\.cu ' docs/registers.md) kernels"
