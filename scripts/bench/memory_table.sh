#!/usr/bin/env bash
# Tables of memory and traffic, as Markdown on standard output and as stacked bars, SVG and PNG.
#
#   scripts/bench/memory_table.sh paper [OUTDIR]         Table 1 of the ZeRO paper, from the planner alone
#   scripts/bench/memory_table.sh tutorial-7b [OUTDIR]   7B on 4 ranks, beside a tutorial's figures
#   scripts/bench/memory_table.sh measured [OUTDIR]      GPT-2 124M on 4 thread ranks: forecast and run
#   scripts/bench/memory_table.sh models [OUTDIR]        the largest GPT by memory, stage and rank count
#   scripts/bench/memory_table.sh offload [OUTDIR]       the largest GPT of one device, by what leaves it
#   scripts/bench/memory_table.sh families               real models on one device: with which flags
#
# The pictures are OUTDIR/memory_NAME.svg and .png; OUTDIR is docs/ unless it is given. Every number
# comes from ./train ($TRAIN names another): `--plan --json`, and memory.json of a run. `measured`
# takes some 9 GB of memory and some minutes; its status is 1 where a forecast is not what was
# measured. Without gnuplot the tables are printed all the same. `families` makes no picture.
set -euo pipefail
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.."
export LC_ALL=C

# Also from within $(...), where exit alone would end no more than that.
die() {
    echo "memory_table.sh: $*" >&2
    kill -TERM $$
    exit 2
}

usage="usage: scripts/bench/memory_table.sh paper|tutorial-7b|measured|models|offload|families [OUTDIR]"
[ $# -ge 1 ] && [ $# -le 2 ] || die "$usage"
train=${TRAIN:-./train}
name=$1
out=${2:-docs}
[ -x "$train" ] || die "$train is missing; build it with make"
mkdir -p "$out" || die "cannot make the folder $out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ---- numbers ----

# JSON as ./train prints it, to lines "path value": "model_states.sum.numerator 125".
flatten() {
    awk '
        { gsub(/^[ \t]+/, "") }
        /^\},[ \t]*\{$/ { next } # the next object of an array has the same paths
        /^\}/ { depth--; next }
        {
            key = $0
            sub(/^"/, "", key)
            sub(/".*/, "", key)
        }
        /\{$/ { path[++depth] = /^"/ ? key "." : ""; next }
        {
            value = $0
            sub(/^"[^"]*":[ \t]*/, "", value)
            sub(/,$/, "", value)
            gsub(/"/, "", value)
            prefix = ""
            for (i = 1; i <= depth; i++) prefix = prefix path[i]
            print prefix key, value
        }' "$@"
}

value() { # value PATH FILE, a flattened one
    awk -v path="$1" '$1 == path { print $2; found = 1; exit } END { exit !found }' "$2" ||
        die "no $1 in the plan"
}

plan() { # plan ARGUMENT...: the flattened plan, in $work/plan
    "$train" --plan --json --device cpu "$@" >"$work/json" || die "no plan for $*"
    flatten "$work/json" >"$work/plan"
}

# NUMERATOR / DENOMINATOR bytes in GB as the ZeRO paper rounds: from 100 on truncated to whole GB;
# below, three digits, at most two behind the point, half up. In whole numbers: a double would not
# know 41.25 from its neighbours.
paper_gb() {
    local n=$1 d=$(($2 * 1000000000)) scale=1 digits=0 rounded
    if [ $((n / d)) -lt 100 ]; then
        digits=1 scale=10
        [ $((n / d)) -ge 10 ] || digits=2 scale=100
        rounded=$(((2 * n * scale + d) / (2 * d)))
    else
        rounded=$((n / d))
    fi
    awk -v x="$rounded" -v scale=$scale -v digits=$digits 'BEGIN {
        text = sprintf("%.*f", digits, x / scale)
        if (digits) sub(/\.?0+$/, "", text)
        print text
    }'
}

states=(param grad optimizer)
tags=(parameters gradients optimizer activations workspace communication)

. scripts/bench/bars.sh
. scripts/dev/families.sh

# ---- the ZeRO paper, Table 1 ----

paper() {
    local sizes=(7.5G 128G 1T) names=(7.5B 128B 1T) N size stage panel x row cell values k group=-1
    echo "Model states on each rank in GB, stages 1 / 2 / 3"
    echo
    echo "| ranks | ${names[0]} | ${names[1]} | ${names[2]} |"
    echo "|---|---|---|---|"
    for N in 1 4 16 64 256 1024; do
        group=$((group + 1))
        row="| $N |"
        for panel in 1 2 3; do
            size=${sizes[panel - 1]} cell=
            for stage in 1 2 3; do
                plan --params "$size" --dtype bf16 --ranks $N --zero $stage
                cell+=" $(paper_gb "$(value model_states.sum.numerator "$work/plan")" \
                    "$(value model_states.sum.denominator "$work/plan")") /"
                values=
                for k in "${states[@]}"; do
                    values+=" $(value "model_states.$k.bytes" "$work/plan")"
                done
                x=$((4 * group + stage))
                echo "$x|$stage|$(awk -v v="$values" 'BEGIN {
                    n = split(v, a, " ")
                    for (i = 1; i <= n; i++) printf "%.6f ", a[i] / 1e9
                }')|" >>"$work/bars.$panel"
                [ $stage != 2 ] || echo "$x|N = $N" >>"$work/groups.$panel"
            done
            row+="${cell% /} |"
        done
        echo "$row"
    done
    picture "Model states per rank, stages 1, 2, 3 on N ranks (ZeRO paper, Table 1)" "GB per rank" \
        "${names[0]} parameters|${names[1]} parameters|${names[2]} parameters" \
        "parameters|gradients|optimizer" 1900 "top right"
}

# ---- a tutorial's 7B ----

tutorial_7b() {
    local theirs=(40 15 10 5) theirs_all=(- 60 40 20) stage x=1 values k sum row
    echo "7B parameters on 4 ranks, GB on each rank"
    echo
    echo "| stage | parameters | gradients | optimizer | sum | all 4 ranks | tutorial | all 4 |"
    echo "|---|---|---|---|---|---|---|---|"
    for stage in 0 1 2 3; do
        plan --params 7G --dtype bf16 --ranks 4 --zero $stage
        values=
        for k in "${states[@]}" sum; do
            values+=" $(value "model_states.$k.bytes" "$work/plan")"
        done
        values=$(awk -v v="$values" 'BEGIN {
            split(v, a, " ")
            printf "%g %g %g %g %g", a[1] / 1e9, a[2] / 1e9, a[3] / 1e9, a[4] / 1e9, a[4] * 4 / 1e9
        }')
        read -r -a row <<<"$values"
        sum=${row[3]}
        echo "| $stage | ${row[0]} | ${row[1]} | ${row[2]} | **$sum** | ${row[4]} |" \
            "${theirs[stage]} | ${theirs_all[stage]} |"
        echo "$x|formula|${row[*]:0:3} 0|$sum" >>"$work/bars.1"
        echo "$((x + 1))|tutorial|0 0 0 ${theirs[stage]}|${theirs[stage]}" >>"$work/bars.1"
        echo "$x.5|stage $stage" >>"$work/groups.1"
        x=$((x + 3))
    done
    cat <<'END'

Mixed-precision Adam keeps 16 bytes a parameter: 2 for the bf16 weight, 2 for its gradient, 12 for
the fp32 master weight and two moments. 7B of them are 112 GB before anything is sharded, and 28 GB
on each of 4 ranks when all is. The tutorial's 40 GB would be 5.7 bytes a parameter, less than the
optimizer state alone; and what stage 3 shards over 4 ranks cannot shrink 40 GB to 5 on each (20 in
all): sharding moves bytes, it does not remove them. Its figures cannot be model states.
END
    picture "7B parameters on 4 ranks: model states and a tutorial's figures" "GB per rank" " " \
        "parameters|gradients|optimizer|the tutorial"
}

# ---- a run ----

bytes_row() { # bytes_row PREFIX FILE: the tags, the peak, and the process with its ranks
    local tag
    for tag in "${tags[@]}"; do
        printf ' %s |' "$(value "${1}tiers.tags.$tag" "$2")"
    done
    printf ' %s | %s |\n' "$(value "${1}peak" "$2")" "$(value "${1}all" "$2")"
}

traffic_row() {
    local kind
    for kind in all_gather reduce_scatter all_reduce sum; do
        printf ' %s |' "$(value "${1}traffic.$kind" "$2")"
    done
    echo
}

measured() {
    local stage level x=1 status=0 file tag
    for stage in 0 1 2 3; do
        for level in none block; do
            file=$work/run.$stage.$level
            timeout -s KILL 900 "$train" --data random --model gpt2 --vocab 50257 \
                --device cpu --dtype bf16 --seq-len 128 --batch 1 --ranks 4 --threads 1 \
                --zero $stage --recompute $level --steps 2 --no-tensorboard --out "$work/out" \
                >"$work/said" 2>&1 ||
                die "stage $stage, recompute $level: $(tail -n 1 "$work/said")"
            flatten "$work/out/memory.json" >"$file"
            rm -rf "$work/out"
            echo "stage $stage, recompute $level: done" >&2
        done
    done
    echo "GPT-2 124M, bf16, sequences of 128, 4 thread ranks: bytes of each rank and all"
    echo
    echo "| stage | recompute | |$(printf ' %s |' "${tags[@]}") peak | all |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|"
    for stage in 0 1 2 3; do
        for level in none block; do
            file=$work/run.$stage.$level
            echo "| $stage | $level | predicted |$(bytes_row "" "$file")"
            echo "| | | measured |$(bytes_row measured. "$file")"
            [ "$(bytes_row "" "$file" | cut -d '|' -f 1-7)" = \
                "$(bytes_row measured. "$file" | cut -d '|' -f 1-7)" ] || status=1
            echo "$x|$level|$(for tag in "${tags[@]}"; do
                value "measured.tiers.tags.$tag" "$file"
            done | awk '{ printf "%.4f ", $1 / 1e9 }')|$(value measured.peak "$file" |
                awk '{ printf "%.2f", $1 / 1e9 }')" >>"$work/bars.1"
            bytes_row measured. "$file" |
                awk '{ exit $1 + $3 + $5 + $7 + $9 + $11 != $13 }' || status=1 # add up to the peak
            x=$((x + 1))
        done
        echo "$((x - 2)).5|stage $stage" >>"$work/groups.1"
        x=$((x + 1))
    done
    echo
    echo "What each rank sends in a step, in bytes"
    echo
    echo "| stage | | all_gather | reduce_scatter | all_reduce | sum |"
    echo "|---|---|---|---|---|---|"
    for stage in 0 1 2 3; do
        file=$work/run.$stage.none
        echo "| $stage | predicted |$(traffic_row "" "$file")"
        echo "| | counted |$(traffic_row measured. "$file")"
        [ "$(traffic_row "" "$file")" = "$(traffic_row measured. "$file")" ] || status=1
    done
    picture "GPT-2 124M, bf16, on 4 ranks: measured peak per rank, by --recompute" \
        "GB per rank" " " "parameters|gradients|optimizer|activations|workspace|communication" 1320
    [ $status = 0 ] || echo "memory_table.sh: a forecast is not what was measured" >&2
    return $status
}

# ---- the largest models ----

# The family: L layers of 128 L channels in heads of 128, as GPT-3's larger models have, with
# GPT-2's vocabulary and sequences of 1024.
shape_plan() { # shape_plan L STAGE RANKS: "peak parameters", planned once
    local key=$work/shape.$1.$2.$3
    if [ ! -e "$key" ]; then
        plan --layers "$1" --heads "$1" --channels $((128 * $1)) --seq-len 1024 --vocab 50257 \
            --batch 1 --dtype bf16 --recompute block --zero "$2" --ranks "$3" --threads 1
        echo "$(value peak "$work/plan") $(value model.parameters "$work/plan")" >"$key"
    fi
    cat "$key"
}

largest() { # largest BYTES STAGE RANKS: "L parameters" of the largest shape that fits
    local low=0 high=256 middle peak parameters
    while [ $((high - low)) -gt 1 ]; do
        middle=$(((low + high) / 2))
        read -r peak parameters < <(shape_plan $middle "$2" "$3")
        if [ "$peak" -le "$1" ]; then low=$middle; else high=$middle; fi
    done
    [ $low -gt 0 ] || die "not even one layer fits into $1 bytes"
    read -r peak parameters < <(shape_plan $low "$2" "$3")
    echo "$low $parameters"
}

models() {
    local cards=(16 24 40 80 141) N stage card panel=0 row values last
    local layers parameters billions more
    echo "The largest GPT (billions of parameters, layers in brackets; L layers of 128 L channels)"
    echo "whose plan fits: bf16, one sequence of 1024 a rank, --recompute block"
    echo
    echo "| ranks | stage | 16 GB | 24 GB | 40 GB | 80 GB | 141 GB |"
    echo "|---|---|---|---|---|---|---|"
    for N in 1 8 64; do
        panel=$((panel + 1))
        for stage in 0 1 2 3; do
            row="| $N | $stage |" values='' last=0
            for card in "${cards[@]}"; do
                read -r layers parameters < <(largest $((card * 1000000000)) $stage $N)
                read -r billions more < <(awk -v p="$parameters" -v last="$last" 'BEGIN {
                    printf (p < 1e10 ? "%.1f" : "%.0f") " %.4f\n", p / 1e9, (p - last) / 1e9
                }')
                row+=" $billions ($layers) |"
                values+=" $more"
                last=$parameters
            done
            echo "$row"
            echo "$((stage + 1))|$stage|${values# }|$billions" >>"$work/bars.$panel"
        done
        echo "2.5|stage" >"$work/groups.$panel"
    done
    picture "The largest GPT that fits, by memory of a rank" "billion parameters" \
        "1 rank|8 ranks|64 ranks" "with 16 GB|24 GB|40 GB|80 GB|141 GB" 1500 "top left"
}

# ---- the largest models of one device, with offload ----

# The family: N layers of 128 N channels as above, up to 5120 channels, the most that a GPU's
# kernels take; from there on more layers of 5120 channels.
offload_needs() { # offload_needs N CASE: "device host disk parameters" in bytes, planned once
    local key=$work/offload.$1.$2 wide=$(($1 < 40 ? $1 : 40))
    if [ ! -e "$key" ]; then
        # shellcheck disable=SC2086
        plan --layers "$1" --heads $wide --channels $((128 * wide)) --seq-len 1024 --vocab 50257 \
            --batch 1 --dtype bf16 --recompute block --threads 1 ${offload_flags[$2]}
        awk '
            BEGIN { need["cpu"] = need["nvme"] = 0 }
            $1 == "tiers.name" { tier = $2 }
            $1 == "tiers.peak" { need[tier] = $2 }
            $1 == "model.parameters" { parameters = $2 }
            END { print need["device"], need["cpu"], need["nvme"], parameters }
        ' "$work/plan" >"$key"
    fi
    cat "$key"
}

largest_offloaded() { # largest_offloaded DEVICE HOST DISK CASE: "N parameters", in bytes
    local low=0 high=1024 middle device host disk parameters
    while [ $((high - low)) -gt 1 ]; do
        middle=$(((low + high) / 2))
        read -r device host disk parameters < <(offload_needs $middle "$4")
        if [ "$device" -le "$1" ] && [ "$host" -le "$2" ] && [ "$disk" -le "$3" ]; then
            low=$middle
        else
            high=$middle
        fi
    done
    [ $low -gt 0 ] || die "not even one layer fits into $1 bytes"
    read -r device host disk parameters < <(offload_needs $low "$4")
    echo "$low $parameters"
}

offload_flags=('' '--offload-optimizer cpu' '--offload-optimizer cpu --offload-param cpu'
    '--offload-optimizer nvme --offload-param nvme --offload-activations nvme')

offload() {
    local cards=(16 24 32 80) hosts=(64 128 256 512) disk=1000000000000 G=1000000000 card host case
    local row layers parameters billions bars panel=0
    echo "The largest GPT (billions of parameters, layers in brackets) that one device trains whose"
    echo "plan fits into its memory, the host's, and 1 TB of NVMe: bf16, one sequence of 1024,"
    echo "--recompute block; N layers of 128 N channels, from 40 layers on of 5120 channels"
    echo
    echo "| device | host | no offload | optimizer on CPU | and parameters | all on NVMe |"
    echo "|---|---|---|---|---|---|"
    for card in "${cards[@]}"; do
        panel=$((panel + 1)) bars=('' '' '' '') last=(0 0 0 0)
        for host in "${hosts[@]}"; do
            row="| $card GB | $host GB |"
            for case in 0 1 2 3; do
                read -r layers parameters < <(
                    largest_offloaded $((card * G)) $((host * G)) $disk $case
                )
                billions=$(awk -v p="$parameters" 'BEGIN {
                    printf (p < 1e10 ? "%.1f" : "%.0f"), p / 1e9
                }')
                row+=" $billions ($layers) |"
                bars[case]+=" $(awk -v p="$parameters" -v last="${last[case]}" 'BEGIN {
                    printf "%.4f", (p - last) / 1e9
                }')"
                last[case]=$parameters
                top[case]=$billions
            done
            echo "$row"
        done
        for case in 0 1 2 3; do
            echo "$((case + 1))|${offload_names[case]}|${bars[case]# }|${top[case]}" \
                >>"$work/bars.$panel"
        done
        echo "2.5|offloaded: O optimizer, P parameters" >"$work/groups.$panel"
    done
    cat <<'END'

The papers, on one 32 GB V100: PyTorch 1.4B, ZeRO-Offload 13B (Ren et al. 2021). On 16 of them:
ZeRO-Infinity 70B with CPU memory, 1T with NVMe (Rajbhandari et al. 2021).
END
    picture "The largest GPT of one device, by its memory, the host's (colours) and 1 TB of NVMe" \
        "billion parameters" "16 GB|24 GB|32 GB|80 GB of device memory" \
        "with 64 GB|128 GB|256 GB|512 GB" 1700 "top left"
}
offload_names=(none O OP NVMe)

case $name in
families) families ;;
offload) offload ;;
paper) paper ;;
tutorial-7b) tutorial_7b ;;
measured) measured ;;
models) models ;;
*) die "$name: $usage" ;;
esac
