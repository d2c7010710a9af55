#!/bin/bash
# From a bare Debian or Ubuntu to a small trained GPT, in some five minutes on two cores:
#
#   scripts/quickstart.sh [flags of ./train]
#
# installs what is missing, builds, gets text (tinyshakespeare; where the network is closed, the
# English text of Debian's package `fortunes`), trains a tokenizer and a GPT of 4 million
# parameters, and prints how well it predicts the last tenth of the text, which it never saw, a
# sample, how long each part took, and where everything lies. Flags are handed on to ./train and win
# over those below: --steps 50 for a short run, --data FILE for a text of your own. The last line is
# "quickstart: done in N min N s".
#
# Training takes some three minutes: its first steps are timed, and where 3,600 would take longer,
# on an older CPU or a busy one, it does fewer, or trains a GPT of half the size. --steps N does N
# of the usual size.
#
# The sizes are for few cores and little text: bits per byte of the last tenth of `fortunes` are
# 2.28 (seed 1, bf16). Of 1.64 million tokens, with 2,048 pieces, steps of 16 sequences left 2.42,
# of 8 2.37, of 4 2.36; 4,096 pieces are worth 0.07 more. A learning rate of 3e-3 was worse (2.41,
# of 25% more steps of 8) than 2e-3 and 1e-3 (2.37 and 2.38). 600 steps leave 2.70; 1,200 of the
# smaller model take no longer and leave 2.54, 700 2.65.
set -eu -o pipefail
. "${0%"${0##*/}"}help.sh"
cd "$(dirname "$0")/.."
SECONDS=0
export LC_ALL=C # numbers with points

# step NAME WORDS: begins a part, and notes how long the one before took.
took='' part='' part_began=0
step() {
    [ -z "$part" ] || took+="$part $((SECONDS - part_began)) s, "
    part=$1 part_began=$SECONDS
    [ $# = 1 ] || printf '\n== %s: %s\n' "$1" "$2"
}
say() { printf '%s\n' "$*"; }
die() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }

# flag_value NAME ARGUMENT...: the value of --NAME among them, if it is there.
flag_value() {
    local argument value='' next=no
    for argument in "${@:2}"; do
        [ $next = no ] || value=$argument
        next=no
        case $argument in
        "$1") next=yes ;;
        "$1="*) value=${argument#*=} ;;
        esac
    done
    printf '%s' "$value"
}

# plan SIZE STEPS: sets model, training and steps.
plan() {
    local lr=1e-3
    model=(--layers 4 --heads 4 --channels 256 --seq-len 128)
    if [ "$1" = small ]; then
        model=(--layers 3 --heads 3 --channels 192 --seq-len 128) lr=2e-3
    fi
    steps=$2
    training=(--batch 4 --steps "$steps" --lr $lr --warmup $((steps / 20)) --schedule linear
        --beta2 0.99 --weight-decay 0.1 --val-every 1000 --log-every 100 --save-every 1000)
}
asked=$(flag_value --steps "$@")
[[ $asked =~ ^[0-9]+$ ]] || asked=
plan usual "${asked:-3600}"

# Where downloads and prepared text are kept: below the home folder; beside the results without one.
cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
cache=${cache:+$cache/zero.c}
mkdir -p "${cache:=out/cache}" 2>/dev/null && [ -w "$cache" ] || cache=out/cache

# A folder of its own for each run: out/quickstart, out/quickstart-2, ...; or --out.
new_out() {
    local n=1
    out=$(flag_value --out "$@")
    [ -z "$out" ] || return 0
    out=out/quickstart
    while [ -e "$out" ]; do
        n=$((n + 1))
        out=out/quickstart-$n
    done
    mkdir -p "$out" || die "cannot create the folder $out; name another with --out"
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

train() { # train ARGUMENT...: the run itself
    local text=(--data "$data")
    [ -z "$given" ] || text=() # it is among the arguments
    ./train "${model[@]}" "${training[@]}" "${text[@]}" --cache "$cache" "$@" --out "$out"
}

# Milliseconds of a step, the mean of the last 20 of the first 24: into $step_ms. The text is in the
# cache then.
time_steps() {
    local said out=$cache/first-steps-$$
    said=$(train "$@" --steps 24 --warmup 2 --val-batches 1 --val-every 24 --save-every 24 \
        --no-tensorboard) || { say "$said"; return 1; }
    step_ms=$(sed -n 's/.*"step_ms": *\([0-9.]*\).*/\1/p' "$out/log.jsonl" | tail -n 20 |
        awk '{ sum += $1 } END { printf "%d", sum / NR + 1 }')
    rm -rf "$out"
}

# Takes what fits into three minutes, as the first steps go.
fit_to_this_machine() {
    local fit seconds=175 size="a GPT of 4 million parameters"
    say "Timing the first steps, which also prepares the text."
    time_steps "$@" || return
    fit=$((seconds * 1000 / step_ms))
    if [ $fit -ge 3600 ]; then
        return
    elif [ $fit -ge 1800 ]; then
        plan usual $fit
    else
        plan small 3600
        time_steps "$@" || return
        fit=$((seconds * 1000 / step_ms)) size="a GPT of 2 million parameters"
        plan small $((fit < 900 ? 900 : fit > 3600 ? 3600 : fit))
    fi
    say "3600 steps of the usual size would take more than three minutes on this machine now."
    say "So $steps steps of $size, $step_ms ms each: some" \
        "$(((steps * step_ms + 30000) / 60000)) min. (--steps N does N of the usual size.)"
}

train_here() { # train_here ARGUMENT...
    [ -n "$asked" ] || fit_to_this_machine "$@" || return
    train "$@"
}

# values KEY: first and last value of a key of the log.
values() {
    sed -n "s/.*\"$1\": *\([-+0-9.eE]*\).*/\1/p" "$out/log.jsonl" | sed -n '1p;$p' | tr '\n' ' '
}

step packages "what is missing"
scripts/setup.sh
step build "./train"
make -j"$(nproc)" train || die "the build failed; the lines above say why"

step text "to learn from"
new_out "$@"
data=tinyshakespeare
given=$(flag_value --data "$@")
if [ -n "$given" ]; then
    say "as given: $given"
elif [ -e "$cache/tinyshakespeare.txt" ] || network_is_open; then
    say "Shakespeare's plays (1.1 MB), which ./train downloads"
else
    say "The network is closed: raw.githubusercontent.com does not answer, so no tinyshakespeare."
    make_fortunes_text
fi

step training "a small GPT, in $out"
if ! train_here "$@"; then
    if [ "$data" != tinyshakespeare ] || [ -s "$out/log.jsonl" ] || [ -n "$given" ]; then
        die "the training failed; the line above says why"
    fi
    say "The text could not be downloaded."
    make_fortunes_text
    rm -rf "$out" && mkdir "$out"
    train_here "$@"
fi

step sample "what it has learned, from \"The\" on"
./train --out "$out" --resume auto --sample-only --prompt "The" --sample-tokens 120 \
    --temperature 0.7 >"$out/sample.txt" 2>"$out/sample.log" ||
    die "no sample: $(tail -n 1 "$out/sample.log")"
rm "$out/sample.log"
cat "$out/sample.txt"
step end
# In a run on ids that others made there is no text to count bits by.
read -r _ last <<<"$(values val_loss)"
read -r first_bits last_bits <<<"$(values bits_per_byte)"

say ""
[ -z "$last_bits" ] || say "bits per byte of the last tenth of the text, which it never saw:" \
    "$(printf '%.2f -> %.2f' "$first_bits" "$last_bits")"
say "validation loss at the end    $(printf '%.3f' "$last")"
say "time                          ${took%, }"
say "checkpoint, log and sample    $out"
say "prepared text and tokenizer   $cache"
say "more text from it      ./train --out $out --resume auto --sample-only --prompt \"Once\""
say "train it further       ./train --out $out --resume auto --steps $((2 * steps))"
say "loss curves            scripts/bench/plot.sh $out"
say "all flags              ./train --help"
say ""
say "quickstart: done in $((SECONDS / 60)) min $((SECONDS % 60)) s"
