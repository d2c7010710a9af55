#!/usr/bin/env bash
# Weak scaling on paper: models of 1.5B, 7B, 70B and 1T on 8 to 1,024 GPUs, as a Markdown table on
# standard output and as a picture.
#
#   scripts/scaling_table.sh [KIND [OUTDIR]]     KIND: a file docs/clusters/KIND.json (h100)
#
# Each GPU has as many tokens in a step, however many there are. Of the layouts below the quickest
# that fits is shown; no pipeline is among them, as no run has one. The picture is
# OUTDIR/scaling_KIND.svg, OUTDIR docs/ unless it is given; without gnuplot there is none. Every
# number comes from ./train --plan --cluster ($TRAIN names another).
set -euo pipefail
. "${0%"${0##*/}"}help.sh"
cd "$(dirname "$0")/.."
export LC_ALL=C

die() {
    echo "scaling_table.sh: $*" >&2
    exit 2
}
[ $# -le 2 ] || die "usage: scripts/scaling_table.sh [KIND [OUTDIR]]"
kind=${1:-h100}
out=${2:-docs}
file=docs/clusters/$kind.json
train=${TRAIN:-./train}
[ -x "$train" ] || die "$train is missing; build it with make"
[ -f "$file" ] || die "$file is missing"
mkdir -p "$out" || die "cannot make the folder $out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
node=$(sed -n 's/.*"gpus_per_node": *\([0-9]*\).*/\1/p' "$file")
dtype=bf16
[ "$kind" != v100 ] || dtype=fp16

# Name; sequences of a step on each GPU; the model.
models=(
    "1.5B;16;--model gpt2-xl"
    "7B;4;--layers 32 --channels 4096 --heads 32 --seq-len 4096 --vocab 50257"
    "70B;2;--model llama3.1-70b --seq-len 4096"
    "1T;1;--layers 128 --channels 25600 --heads 160 --seq-len 4096 --vocab 50257"
)
# What is looked for in turn, until something fits: nothing offloaded, then more and more.
offloads=(
    ""
    "--offload-optimizer cpu"
    "--offload-optimizer cpu --offload-param cpu"
    "--offload-optimizer nvme --offload-param cpu"
    "--offload-optimizer nvme --offload-param nvme --offload-activations cpu"
)

number() { # number KEY: of the last forecast
    awk -F ':' -v key="\"$1\"" '$1 ~ key "$" { gsub(/[,\t ]/, "", $2); print $2; exit }' "$work/json"
}

try() { # try FLAGS: status 1 where that is no run, or does not fit
    # shellcheck disable=SC2086
    "$train" --plan --json --cluster "$file" --device cuda --reduce native --dtype "$dtype" $1 \
        >"$work/json" 2>"$work/error"
}

keep_if_quicker() { # keep_if_quicker FLAGS
    local speed
    speed=$(number tokens_per_second)
    awk -v a="$speed" -v b="$best" 'BEGIN { exit !(a > b * 1.005) }' || return 0
    best=$speed
    flags=$1
    cp "$work/json" "$work/best"
}

# The quickest layout of a model on so many GPUs; into best, flags and $work/best.
search() { # search GPUS EACH MODEL
    local gpus=$1 each=$2 model=$3 offload tp zero recompute batch said
    best=0 flags=
    for offload in "${offloads[@]}"; do
        for tp in 1 2 4 8; do
            for zero in "1" "3" "3 --zero-shard-size $((node / tp))"; do
                for recompute in none mlp block; do
                    for batch in 16 8 4 2 1; do
                        [ $((each * tp % batch)) = 0 ] || continue
                        said="--tp $tp --zero $zero --recompute $recompute --batch $batch $offload"
                        try "$model --ranks $gpus --global-batch $((each * gpus)) $said" || continue
                        keep_if_quicker "$said"
                        break # a smaller batch takes longer
                    done
                done
            done
        done
        [ "$best" = 0 ] || break
    done
    [ "$best" = 0 ] || cp "$work/best" "$work/json"
}

echo "| model | GPUs | tokens/s a GPU | TFLOP/s a GPU | of 8 GPUs | step (s) | waits | sums | GPU GB | layout |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for model in "${models[@]}"; do
    IFS=';' read -r name each shape <<<"$model"
    first=
    for gpus in 8 16 32 64 128 256 512 1024; do
        search "$gpus" "$each" "$shape"
        if [ "$best" = 0 ]; then
            echo "| $name | $gpus | does not fit | | | | | | | |"
            continue
        fi
        first=${first:-$best}
        awk -v name="$name" -v gpus="$gpus" -v speed="$best" -v first="$first" -v flags="$flags" \
            -v flops="$(number flops_per_token)" -v step="$(number step)" \
            -v waits="$(number waits)" -v sums="$(number tensor_sums)" \
            -v device="$(number device)" -v data="$work/$name.data" 'BEGIN {
            gsub(/--/, "", flags)
            printf "| %s | %d | %.0f | %.1f | %.0f%% | %.2f | %.1f%% | %.1f%% | %.1f | %s |\n",
                name, gpus, speed, speed * flops / 1e12, speed / first * 100, step,
                waits / step * 100, sums / step * 100, device / 1e9, flags
            print gpus, speed * flops / 1e12 >> data
        }'
    done
done

command -v gnuplot >/dev/null || exit 0
cat >"$work/plot" <<EOF
set terminal svg size 720,440 background "white"
set output "$out/scaling_$kind.svg"
set title "Weak scaling on paper, $(sed -n 's/.*"name": *"\([^"]*\)".*/\1/p' "$file")"
set logscale x 2
set xlabel "GPUs"
set ylabel "TFLOP/s of the model on each GPU"
set yrange [0:*]
set grid
set key outside right
plot $(for m in 1.5B 7B 70B 1T; do [ ! -s "$work/$m.data" ] ||
    printf '"%s" using 1:2 with linespoints title "%s", ' "$work/$m.data" "$m"; done | sed 's/, $//')
EOF
gnuplot "$work/plot"
