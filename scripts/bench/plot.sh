#!/usr/bin/env bash
# Draws the loss curves of one or more runs from their log.jsonl, with gnuplot, as loss.svg and
# loss.png.
#
#   scripts/bench/plot.sh OUT                 one run: OUT/loss.svg and OUT/loss.png
#   scripts/bench/plot.sh OUT1 OUT2 ...       several runs in one picture, in OUT1
#   scripts/bench/plot.sh -o DIR OUT1 ...     the picture goes to DIR
#
# Training loss is shown twice: every step as a faint line, and smoothed as a strong one (the mean
# over a fiftieth of the run). Validation losses are points joined by a dashed line. Steps whose
# loss is null (it was not finite) are left out.
set -euo pipefail
. "${0%"${0##*/}"}../help.sh"

die() {
    echo "plot.sh: $*" >&2
    exit 2
}

usage="usage: scripts/bench/plot.sh [-o DIR] OUT [OUT ...], each OUT a folder with log.jsonl"
folder=
while getopts :o:h option; do
    case $option in
    o) folder=$OPTARG ;;
    h) echo "$usage" && exit 0 ;;
    *) die "unknown option -$OPTARG; $usage" ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || die "$usage"
command -v gnuplot >/dev/null || die "gnuplot is missing; install the package gnuplot-nox"
folder=${folder:-$1}
[ -d "$folder" ] || die "$folder is not a folder"
[ -w "$folder" ] || die "cannot write into $folder"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# KEY of every line that has a number there, as "step value".
column() {
    awk -v key="\"$1\":" '
        function number(name,    at, rest) {
            at = index($0, name)
            if (!at) return ""
            rest = substr($0, at + length(name))
            sub(/^ */, "", rest)
            return match(rest, /^-?[0-9][-+.eE0-9]*/) ? substr(rest, 1, RLENGTH) : ""
        }
        { step = number("\"step\":"); value = number(key) }
        step != "" && value != "" { print step, value }' "$2"
}

# The mean of column 2 over a window centred on each step, so that the curve does not lag behind the
# points. Near the ends the window shrinks on both sides alike.
smooth() {
    awk '
        { step[NR] = $1; sum[NR] = sum[NR - 1] + $2 }
        END {
            for (i = 1; i <= NR; i++) {
                half = int(NR / 100)
                if (half > i - 1) half = i - 1
                if (half > NR - i) half = NR - i
                print step[i], (sum[i + half] - sum[i - half - 1]) / (2 * half + 1)
            }
        }' "$1"
}

# A name as gnuplot text: in single quotes nothing but the quote itself is special.
quoted() {
    printf "'%s'" "$(printf %s "$1" | sed "s/'/''/g")"
}

colors=('#1f5fa8' '#c8501e' '#2d8a4e' '#8a3f9e' '#a07a00' '#0f8a8a' '#b02060' '#555555')
curves=
i=0
for out in "$@"; do
    log=$out/log.jsonl
    [ -f "$log" ] || die "$log is missing; OUT is the folder that ./train --out wrote"
    column loss "$log" >"$work/train.$i"
    column val_loss "$log" >"$work/val.$i"
    [ -s "$work/train.$i" ] || [ -s "$work/val.$i" ] || die "$log has no losses yet"
    smooth "$work/train.$i" >"$work/smooth.$i"
    color=${colors[i % ${#colors[@]}]}
    name=$(basename "$(cd "$out" && pwd)")
    prefix=$([ $# -gt 1 ] && echo "$name: " || true)
    if [ -s "$work/train.$i" ]; then
        curves+=", '$work/train.$i' with lines lw 1 lc rgb '#b0${color#\#}' notitle"
        curves+=", '$work/smooth.$i' with lines lw 2.5 lc rgb '$color'"
        curves+=" title $(quoted "${prefix}training")"
    fi
    if [ -s "$work/val.$i" ]; then
        [ $# -gt 1 ] || color=${colors[1]} # one run: its two curves can have two colours
        curves+=", '$work/val.$i' with linespoints lw 1.8 dt (8,5) pt 7 ps 0.7 lc rgb '$color'"
        curves+=" title $(quoted "${prefix}validation")"
    fi
    i=$((i + 1))
done
title=$([ $# -eq 1 ] && echo "Loss of $name" || echo "Loss of $# runs")

draw() { # TERMINAL FILE
    gnuplot 2>"$work/errors" <<END || die "gnuplot failed: $(tr '\n' ' ' <"$work/errors")"
set terminal $1
set output '$work/picture'
set title $(quoted "$title") noenhanced font ',16'
set xlabel 'step'
set ylabel 'loss (nats per token)'
set grid xtics ytics lt 1 lw 0.7 lc rgb '#dddddd'
set border 3 lc rgb '#666666'
set tics nomirror out textcolor rgb '#333333'
set key top right noenhanced spacing 1.3 samplen 3
set format x '%.0f'
set xrange [0:*]
set offsets 0, 0, graph 0.03, graph 0.03
plot ${curves#, }
END
    mv "$work/picture" "$2" || die "cannot write $2"
}

draw "pngcairo size 1200,750 font 'DejaVu Sans,13' background rgb 'white'" "$folder/loss.png"
draw "svg size 1200,750 font 'DejaVu Sans,13' background rgb 'white'" "$folder/loss.svg"
echo "$folder/loss.svg"
echo "$folder/loss.png"
