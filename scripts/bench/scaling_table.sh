#!/usr/bin/env bash
# Weak scaling on paper: models of 1.5B, 7B, 70B and 1T on 8 to 1,024 GPUs, as a Markdown table on
# standard output and as a picture.
#
#   scripts/bench/scaling_table.sh [KIND [OUTDIR]]     KIND: a file docs/clusters/KIND.json (h100)
#   scripts/bench/scaling_table.sh --check FILE        whether the rows of such a table in FILE (of h100)
#                                                are what ./train says of their layouts
#
# Each GPU has as many tokens in a step, however many there are. Of the layouts below the quickest
# that fits is shown; it takes some minutes. The picture is OUTDIR/scaling_KIND.svg, OUTDIR docs/
# unless it is given; without gnuplot there is none. Every number comes from ./train --plan
# --cluster ($TRAIN names another).
set -euo pipefail
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.."
export LC_ALL=C

die() {
    echo "scaling_table.sh: $*" >&2
    exit 2
}
usage="usage: scripts/bench/scaling_table.sh [KIND [OUTDIR]] | --check FILE"
[ $# -le 2 ] || die "$usage"
table=
if [ "${1:-}" = --check ]; then
    table=${2:?"$usage"}
    [ -f "$table" ] || die "$table is missing"
    set --
fi
kind=${1:-h100}
out=${2:-docs}
file=docs/clusters/$kind.json
train=${TRAIN:-./train}
[ -x "$train" ] || die "$train is missing; build it with make"
[ -f "$file" ] || die "$file is missing"
[ -n "$table" ] || mkdir -p "$out" || die "cannot make the folder $out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
node=$(sed -n 's/.*"gpus_per_node": *\([0-9]*\).*/\1/p' "$file")
dtype=bf16
[ "$kind" != v100 ] || dtype=fp16

# Name; sequences of a step on each GPU; places of tensor parallelism to try, and stages of a
# pipeline; the model.
models=(
    "1.5B;16;1;1;--model gpt2-xl"
    "7B;4;1 2;1 2 4 8;--layers 32 --channels 4096 --heads 32 --seq-len 4096 --vocab 50257"
    "70B;2;1 2 4 8;1 2 4 8;--family llama --layers 80 --channels 8192 --heads 64 --kv-heads 8
        --ffn 28672 --seq-len 4096 --vocab 128256 --tie off"
    "1T;1;4 8;1 8 16 32;--layers 128 --channels 25600 --heads 160 --seq-len 4096 --vocab 50257"
)
# More and more is offloaded; behind the first two only where nothing has fitted yet.
offloads=(
    ""
    "--offload-optimizer cpu"
    "--offload-optimizer cpu --offload-param cpu"
    "--offload-optimizer nvme --offload-param cpu"
    "--offload-optimizer nvme --offload-param nvme --offload-activations cpu"
)

number() { # number KEY: of the last forecast
    awk -F ':' -v key="\"$1\"" '
        $1 ~ key "$" { gsub(/[,\t ]/, "", $2); print $2; exit }' "$work/json"
}

try() { # try FLAGS: status 1 where that is no run, or does not fit
    # shellcheck disable=SC2086
    "$train" --plan --json --cluster "$file" --device cuda --reduce-order native --dtype "$dtype" $1 \
        >"$work/json" 2>"$work/error"
}

# What is offloaded must gain more than such forecasts err by (docs/scaling.md).
keep_if_quicker() { # keep_if_quicker FLAGS OFFLOAD
    local speed
    speed=$(number tokens_per_second)
    awk -v a="$speed" -v b="$best" -v far="${2:+1}" -v far_is="${offloaded:+1}" '
        BEGIN { exit !(a > b * (far && !far_is ? 1.5 : 1.005)) }' || return 0
    offloaded=$2
    best=$speed
    flags=$1
    cp "$work/json" "$work/best"
}

# The quickest of the layouts with so many places and stages. GPUS, EACH, MODEL: search has them.
search_grid() { # search_grid PLACES STAGES OFFLOAD
    local tp=$1 pp=$2 offload=$3 grid="--tp $1 --pp $2" zero recompute batch said
    local zeros=("1" "3" "3 --zero-shard-size $((node / tp))") batches=(16 8 4 2 1)
    [ $((gpus % (tp * pp))) = 0 ] || return 0
    if [ "$pp" != 1 ]; then # several micro-batches are kept, rows between products in parts
        zeros=("1" "3") batches=(4 2 1)
        [ "$tp" = 1 ] || grid+=" --sequence-parallel"
    fi
    for zero in "${zeros[@]}"; do
        for recompute in none mlp block; do
            for batch in "${batches[@]}"; do
                [ $((each * tp * pp % batch)) = 0 ] || continue
                said="$grid --zero $zero --recompute $recompute --batch $batch $offload"
                try "$model --ranks $gpus --global-batch $((each * gpus)) $said" || continue
                keep_if_quicker "$said" "$offload"
                [ "$pp" != 1 ] || break # a smaller batch takes longer, but for a smaller bubble
            done
        done
    done
}

# The quickest layout of a model on so many GPUs; into best, flags and $work/best. What stages are
# for is to need no offload: they have some where nothing else has fitted.
search() { # search GPUS EACH PLACES STAGES MODEL
    local gpus=$1 each=$2 places=$3 stages=$4 model=$5 offload tp pp
    best=0 flags='' offloaded=''
    for offload in "${offloads[@]}"; do
        for pp in $stages; do
            [ "$best" = 0 ] || [ -z "$offload" ] || [ "$pp" = 1 ] || continue
            for tp in $places; do
                search_grid "$tp" "$pp" "$offload"
            done
        done
        [ "$best" = 0 ] || [ -z "$offload" ] || break
    done
    [ "$best" = 0 ] || cp "$work/best" "$work/json"
}

# The rows of a table, one by one.
check() {
    local name gpus speed layout model each shape found rows=0 wrong=0
    while IFS='|' read -r _ name gpus speed _ _ _ _ _ _ _ layout _; do
        for model in "${models[@]}"; do
            IFS=';' read -rd '' found each _ _ shape <<<"$model" || true
            [ "$found" = "${name// /}" ] || continue
            rows=$((rows + 1))
            layout=$(sed -E 's/(^| )([a-z])/\1--\2/g; s/--(none|mlp|block|cpu|nvme)/\1/g' \
                <<<"$layout")
            try "$shape --ranks ${gpus// /} --global-batch $((each * gpus)) $layout" ||
                { cat "$work/error" >&2 && wrong=$((wrong + 1)) && continue; }
            [ "$(number tokens_per_second | awk '{ printf "%.0f", $1 }')" = "${speed// /}" ] ||
                { echo "$name on $gpus: $(number tokens_per_second), not $speed" >&2 &&
                    wrong=$((wrong + 1)); }
        done
    done < <(grep -E '^\| [0-9.]+[BT] \| [0-9]+ \| [0-9]' "$table")
    echo "$rows rows, $wrong wrong"
    [ "$rows" -gt 0 ] && [ "$wrong" = 0 ]
}

if [ -n "$table" ]; then
    check
    exit
fi

echo "| model | GPUs | tokens/s a GPU | TFLOP/s a GPU | of the fewest | step (s) | waits | sums |" \
    "bubble | GPU (GB) | layout |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
for model in "${models[@]}"; do
    IFS=';' read -rd '' name each places stages shape <<<"$model" || true
    first=
    for gpus in 8 16 32 64 128 256 512 1024; do
        search "$gpus" "$each" "$places" "$stages" "$shape"
        if [ "$best" = 0 ]; then
            echo "| $name | $gpus | does not fit | | | | | | | | |"
            continue
        fi
        first=${first:-$best}
        awk -v name="$name" -v gpus="$gpus" -v speed="$best" -v first="$first" -v flags="$flags" \
            -v flops="$(number flops_per_token)" -v step="$(number step)" \
            -v waits="$(number waits)" -v sums="$(number tensor_sums)" \
            -v bubble="$(number bubble)" \
            -v device="$(number device)" -v data="$work/$name.data" 'BEGIN {
            gsub(/--/, "", flags); gsub(/ +$/, "", flags)
            printf "| %s | %d | %.0f | %.1f | %.0f%% | %.2f |", name, gpus, speed,
                speed * flops / 1e12, speed / first * 100, step
            printf " %.1f%% | %.1f%% | %.1f%% | %.1f | %s |\n", waits / step * 100,
                sums / step * 100, bubble / step * 100, device / 1e9, flags
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
plot $(for m in 1.5B 7B 70B 1T; do
    [ ! -s "$work/$m.data" ] ||
        printf '"%s" using 1:2 with linespoints title "%s", ' "$work/$m.data" "$m"
done | sed 's/, $//')
EOF
gnuplot "$work/plot"
