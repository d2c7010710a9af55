#!/usr/bin/env bash
# Holds the predictions of --plan --cluster against what others have measured, as a Markdown table
# on standard output: published, predicted, the error and its reason, and the median error of the
# points that were held out.
#
#   scripts/bench/scaling_points.sh           status 0: that median is at most MOST (20) percent
#
# The points and what is known of each are in docs/clusters/points.txt, the GPUs in
# docs/clusters/*.json. Every prediction comes from ./train ($TRAIN names another).
set -euo pipefail
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.."
export LC_ALL=C

die() {
    echo "scaling_points.sh: $*" >&2
    exit 2
}
[ $# = 0 ] || die "usage: scripts/bench/scaling_points.sh"
train=${TRAIN:-./train}
[ -x "$train" ] || die "$train is missing; build it with make"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

trim() { # trim NAME: white space at both ends of a variable's value
    local value=${!1}
    value=${value#"${value%%[! ]*}"}
    printf -v "$1" '%s' "${value%"${value##*[! ]}"}"
}

number() { # number KEY: of the last forecast
    awk -F ':' -v key="\"$1\"" '
        $1 ~ key "$" { gsub(/[,\t ]/, "", $2); print $2; exit }' "$work/json"
}

forecast() { # forecast FLAG...: into $work/json; status 1: it does not fit
    "$train" --plan --json --cluster "$work/cluster.json" "$@" >"$work/json" 2>"$work/error" ||
        { [ -s "$work/json" ] && return 1; } || die "$(cat "$work/error")"
}

# The quickest micro-batch that fits, of those to try; into $work/best.
quickest() { # quickest "BATCHES" FLAG...
    local batches=$1 batch best=0 speed
    shift
    rm -f "$work/best"
    for batch in $batches; do
        forecast "${@/#@/$batch}" 2>/dev/null || continue
        speed=$(number tokens_per_second)
        awk -v a="$speed" -v b="$best" 'BEGIN { exit !(a > b) }' || continue
        best=$speed
        cp "$work/json" "$work/best"
    done
    [ -s "$work/best" ] || return 1
    cp "$work/best" "$work/json"
}

value_of() { # value_of FLAG WORD...: what follows it
    local flag=$1
    shift
    while [ $# -gt 1 ]; do
        [ "$1" != "$flag" ] || { echo "$2" && return; }
        shift
    done
}

# The figure in its source's unit.
figure() { # figure UNIT FLAG...
    local unit=$1
    shift
    awk -v unit="$unit" -v step="$(number step)" -v tokens="$(number tokens)" \
        -v speed="$(number tokens_per_second)" -v parameters="$(number parameters)" \
        -v ranks="$(number ranks)" -v l="$(value_of --layers "$@")" \
        -v h="$(value_of --channels "$@")" -v s="$(value_of --seq-len "$@")" \
        -v v="$(value_of --vocab "$@")" 'BEGIN {
        if (unit == "ms") print step * 1e3
        else if (unit == "tokens") print speed
        else if (unit == "six") print speed * 6 * parameters / 1e12
        else print speed * 96 * l * h * h * (1 + s / (6 * h) + v / (16 * l * h)) / 1e12
    }'
}

echo "| # | point | unit | published | predicted | error | fits | its reason |"
echo "|---|---|---|---|---|---|---|---|"
: >"$work/held_out"
while IFS=';' read -r n what file attention unit published batches flags reason; do
    for name in n what file attention unit published batches flags reason; do trim "$name"; done
    case $n in '#'* | '') continue ;; esac
    sed "s/\"attention\": *\"[^\"]*\"/\"attention\": \"$attention\"/" "docs/clusters/$file.json" \
        >"$work/cluster.json"
    read -ra words <<<"$flags"
    fits=yes
    if [ "$batches" = - ]; then
        forecast "${words[@]}" || fits=no
    else
        quickest "$batches" "${words[@]}" || { forecast "${words[@]/#@/1}" || fits=no; }
    fi
    predicted=$(figure "$unit" "${words[@]}")
    error=$(awk -v a="$predicted" -v b="$published" 'BEGIN { printf "%.1f", (a / b - 1) * 100 }')
    [ "$batches" = - ] || what="$what, micro-batches of $(number batch)"
    printf '| %s | %s | %s | %s | %.4g | %+.0f%% | %s | %s |\n' "$n" "$what" "$unit" "$published" \
        "$predicted" "$error" "$fits" "$reason"
    case $n in *[02468] | *[02468]b) echo "${n%b} ${error#-}" >>"$work/held_out" ;; esac
done <docs/clusters/points.txt

# Of a point with two figures the larger error counts.
median=$(sort -k1,1n -k2,2gr "$work/held_out" | awk '!seen[$1]++ { print $2 }' | sort -g |
    awk '{ e[NR] = $1 } END { print NR % 2 ? e[(NR + 1) / 2] : (e[NR / 2] + e[NR / 2 + 1]) / 2 }')
echo
echo "Median error of the points held out (even numbers): $median%."
awk -v median="$median" -v most="${MOST:-20}" 'BEGIN { exit !(median <= most) }'
