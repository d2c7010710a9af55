#!/bin/bash
# Makes the pictures of pages: trains a small model at each stage and with everything offloaded, and
# photographs the pages of scripts/view.sh in a browser without a screen, for docs/learn/pictures;
# and the calculator (--plan --html), for docs/calculator.png.
#
#   scripts/dev/pictures.sh [OUTDIR]      default: docs
#
# TRAIN names the program (default ./train), and KEEP a folder in which the traces and their pages
# stay. It needs chromium and ImageMagick's convert, which makes each picture at most 150 KB. Run it
# where nothing else runs: queues of a busy machine wait for cores.
set -eu
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.."
train=$(realpath "${TRAIN:-./train}") out=${1:-docs}
for tool in chromium convert; do
    command -v $tool >/dev/null || {
        echo "pictures.sh: $tool is missing; install the packages chromium and imagemagick" >&2
        exit 2
    }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out/learn/pictures"
model=(--device cpu --dtype bf16 --data random --vocab 2048 --layers 8 --channels 384 --heads 6
    --seq-len 128 --batch 4 --threads 1 --ranks 2 --steps 4 --no-tensorboard)

run() { # run NAME FLAG...: a run's traces, and their page
    local name=$1
    shift
    echo "$name: ./train $*"
    (cd "$work" && "$train" "${model[@]}" "$@" --out "$name" --trace-zero "$name.json") >"$work/said" 2>&1 || {
        cat "$work/said" >&2
        exit 1
    }
    rm -rf "${work:?}/$name"
    scripts/view.sh -o "$work/$name.html" "$work/$name".json* >/dev/null
}

shoot() { # shoot PICTURE PAGE AT ZOOM WIDTH HEIGHT: a moment of a page
    HOME=$work chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size="$5,$6" \
        --screenshot="$work/shot.png" "file://$work/$2.html#at=$3&zoom=$4" 2>"$work/said" >&2 || {
        cat "$work/said" >&2
        exit 1
    }
    convert "$work/shot.png" +dither -colors 96 -define png:compression-level=9 "PNG8:$out/$1.png"
    [ "$(wc -c <"$out/$1.png")" -le 150000 ] || {
        echo "pictures.sh: $out/$1.png has more than 150 KB; make its window smaller" >&2
        exit 1
    }
    echo "$out/$1.png"
}

for stage in 0 1 2 3; do
    run zero$stage --zero $stage
    shoot learn/pictures/zero$stage zero$stage 0.4 1 1400 1100
done
run offload --zero 3 --recompute block --offload-param nvme --offload-optimizer nvme --offload-activations nvme --nvme-path .
shoot learn/pictures/offload offload 0.8 1 1400 1150
shoot learn/pictures/zero3_near zero3 0.4 3 1400 900
scripts/view.sh -o "$work/beside.html" "$work"/zero0.json* --beside "$work"/zero3.json* >/dev/null
shoot learn/pictures/beside beside 0.4 1 1400 1500
"$train" --plan --html "$work/calculator.html" >"$work/said"
shoot calculator calculator 0 1 1040 1490 # it knows no moments
[ -z "${KEEP:-}" ] || {
    mkdir -p "$KEEP"
    cp "$work"/*.json* "$work"/*.html "$KEEP"
}
