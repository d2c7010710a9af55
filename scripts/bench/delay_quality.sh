#!/bin/bash
# What delayed updates cost in quality: the small model, trained with --delay-update and without it.
#
#   scripts/bench/delay_quality.sh [STEPS]      default 2000; some five minutes on two cores
#
# The two runs differ in nothing else: text, order of data, initial weights, schedule, and
# --offload-optimizer cpu, which by itself changes no bit. The loss over the whole validation text
# after the last step must be within 1 % of the other's. Updates begin to be late after AFTER steps
# (default: a fifth of them): ZeRO-Offload's authors let the first steps go by, too, in which
# gradients change quickly (arXiv 2101.06840, section 5.2).
#
# The price grows with the learning rate, for a gradient that is one step old makes directions of
# high curvature unstable at a lower rate. Measured with this model, 2000 steps, and delayed updates
# from step 40 on: 1.3 % at --lr 3e-4, 2.6 % at 6e-4, 3.6 % at 1e-3; from step 400 on: 0.35 % at
# 3e-4, 0.53 % at 6e-4, which is the usual rate.
#
# The text is that of scripts/quickstart.sh, or DATA. FLAGS, in one string, are handed to ./train
# and win. The last line is `N passed, N failed`.
set -u
. "${0%"${0##*/}"}../help.sh"
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C # numbers with points
steps=${1:-2000}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

die() { printf 'delay_quality: %s\n' "$*" >&2; exit 1; }
[[ $steps =~ ^[1-9][0-9]*$ && $steps -ge 100 ]] ||
    die "steps '$steps': expected a number from 100 on"
after=${AFTER:-$((steps / 5))}
[ -x ./train ] || make -s -j"$(nproc)" train || die "the build failed"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/zero.c
data=${DATA:-}
for text in tinyshakespeare fortunes; do
    [ -n "$data" ] || [ ! -s "$cache/$text.txt" ] || data=$cache/$text.txt
done
[ -n "$data" ] || die "no text in $cache: run scripts/quickstart.sh once, or say DATA=FILE"

model=(--device cpu --dtype fp32 --model tiny --tokenizer train:1024)
training=(--batch 8 --steps "$steps" --lr 6e-4 --min-lr 6e-5 --warmup 100 --schedule cosine
    --offload-optimizer cpu --tensorboard=false)
read -ra more <<<"${FLAGS:-}"

# loss NAME FLAG...: trains into $tmp/NAME and prints the last validation loss.
loss() {
    local out=$tmp/$1
    ./train "${model[@]}" "${training[@]}" "${@:2}" ${more[@]+"${more[@]}"} --data "$data" \
        --cache "$cache" --out "$out" >"$tmp/$1.log" 2>&1 ||
        { tail -n 3 "$tmp/$1.log" >&2; die "./train failed ($1)"; }
    sed -n 's/.*"val_loss": *\([-+0-9.eE]*\).*/\1/p' "$out/log.jsonl" | tail -n 1
}

usual=$(loss usual) || exit 1
late=$(loss late --delay-update --delay-after "$after") || exit 1
[ -n "$usual" ] && [ -n "$late" ] || die "a run had no validation loss"
echo "validation loss after $steps steps on $data:"
echo "    updates in time       $usual"
echo "    one step late         $late (from step $after on)"
above=$(awk "BEGIN { printf \"%.2f\", 100 * ($late / $usual - 1) }")
if awk "BEGIN { exit !($late <= 1.01 * $usual && $late >= 0.99 * $usual) }"; then
    echo "PASS  late is $above % above (at most 1 % apart)"
    echo "1 passed, 0 failed"
else
    echo "FAIL  late is $above % above (at most 1 % apart)"
    echo "0 passed, 1 failed"
    exit 1
fi
