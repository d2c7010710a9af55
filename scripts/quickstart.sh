#!/bin/bash
# From a bare Debian or Ubuntu to a small trained GPT, in some five minutes on two cores:
#
#   scripts/quickstart.sh [flags of ./train]
#
# installs what is missing, builds, gets text (tinyshakespeare; where the network is closed, the
# English text of Debian's package `fortunes`), trains a tokenizer and a GPT of 10 million
# parameters, and prints a sample and where everything lies. Flags are handed on to ./train and win
# over those below: --steps 50 for a short run, --data FILE for a text of your own. The last line is
# "quickstart: done in N min N s".
set -eu -o pipefail
cd "$(dirname "$0")/.."
SECONDS=0
export LC_ALL=C # numbers with points

step() { printf '\n== %s\n' "$*"; }
say() { printf '%s\n' "$*"; }
die() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }

model=(--layers 6 --heads 5 --channels 320 --seq-len 256 --tokenizer train:8192)
training=(--batch 8 --steps 200 --lr 1e-3 --min-lr 1e-4 --warmup 20 --schedule cosine
    --val-every 50 --val-batches 8 --log-every 10 --save-every 100)

# Where downloads and prepared text are kept: below the home folder; beside the results without one.
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
cache=${cache:+$cache/zero.c}
mkdir -p "${cache:=out/cache}" 2>/dev/null && [ -w "$cache" ] || cache=out/cache

# A folder of its own for each run: out/quickstart, out/quickstart-2, ...
new_out() {
    local n=1
    out=out/quickstart
    while [ -e "$out" ]; do
        n=$((n + 1))
        out=out/quickstart-$n
    done
    mkdir -p "$out" || die "cannot create the folder $out"
}

# The server of tinyshakespeare answers, or there is a proxy, of which only a download can tell.
network_is_open() {
    [ -z "${https_proxy:-${HTTPS_PROXY:-${all_proxy:-}}}" ] || return 0
    timeout 6 bash -c 'exec 3<>/dev/tcp/raw.githubusercontent.com/443' 2>/dev/null
}

# Joins the texts of Debian's fortunes, some 2.6 MB, into one file: quotations, verse, small talk.
make_fortunes_text() {
    local folder=/usr/share/games/fortunes
    data=$cache/fortunes.txt
    scripts/setup.sh --text ||
        die "no network and no package 'fortunes': give a text, scripts/quickstart.sh --data FILE"
    # *.dat are indexes, *.u8 links to the texts; a line with % parts two quotations.
    find $folder -maxdepth 1 -type f ! -name '*.dat' ! -name '*.u8' -print0 | sort -z |
        xargs -0 cat | iconv -c -f utf-8 -t utf-8 | sed 's/^%$//' >"$data.new"
    [ -s "$data.new" ] || die "no text in $folder. Give a text: scripts/quickstart.sh --data FILE"
    mv "$data.new" "$data"
    say "English text of the package 'fortunes': $(wc -c <"$data") bytes in $data"
}

has_flag() { # has_flag NAME ARGUMENT...
    local argument
    for argument in "${@:2}"; do
        [[ $argument == "$1" || $argument == "$1="* ]] && return 0
    done
    return 1
}

train() { # train ARGUMENT...: the run itself
    ./train "${model[@]}" "${training[@]}" --data "$data" --cache "$cache" --out "$out" "$@"
}

# values KEY: first and last value of a key of the log.
values() {
    sed -n "s/.*\"$1\": *\\([-+0-9.eE]*\\).*/\\1/p" "$out/log.jsonl" | sed -n '1p;$p' | tr '\n' ' '
}

step "1/5 packages"
scripts/setup.sh
step "2/5 build"
make -j"$(nproc)" || die "the build failed; the lines above say why"

step "3/5 text"
new_out
data=tinyshakespeare
if has_flag --data "$@"; then
    say "as given"
elif [ -e "$cache/tinyshakespeare.txt" ] || network_is_open; then
    say "Shakespeare's plays (1.1 MB), which ./train downloads"
else
    say "The network is closed: raw.githubusercontent.com does not answer, so no tinyshakespeare."
    make_fortunes_text
fi

step "4/5 training: a GPT of 10 million parameters, in $out"
if ! train "$@"; then
    if [ "$data" != tinyshakespeare ] || [ -s "$out/log.jsonl" ] || has_flag --data "$@"; then
        die "the training failed; the line above says why"
    fi
    say "The text could not be downloaded."
    make_fortunes_text
    rm -rf "$out" && mkdir "$out"
    train "$@"
fi

step "5/5 what it has learned"
./train --out "$out" --resume auto --sample-only --prompt "The" --sample-tokens 120 |
    sed -n '/^--- sample/,/^---$/p' | tee "$out/sample.txt"
read -r first last <<<"$(values val_loss)"
percent=$(awk -v a="$first" -v b="$last" 'BEGIN { printf "%.0f", 100 * b / a }')

say ""
say "validation loss $(printf '%.3f -> %.3f' "$first" "$last") ($percent% of the start)"
say "checkpoint, configuration, log and sample   $out"
say "prepared text and tokenizer                 $cache"
say "more text from it      ./train --out $out --resume auto --sample-only --prompt \"Once\""
say "train it further       ./train --out $out --resume auto --steps 500"
say "loss curves            scripts/plot.sh $out"
say "all flags              ./train --help"
say ""
say "quickstart: done in $((SECONDS / 60)) min $((SECONDS % 60)) s"
