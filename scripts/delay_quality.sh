#!/bin/bash
# What late updates cost in quality: the small model, trained with --delay-update and without it.
#
#   scripts/delay_quality.sh [STEPS]      default 2000; some ten minutes on two cores
#
# The two runs differ in nothing else: text, order of data, initial weights, schedule, and
# --offload-optimizer cpu, which by itself changes no bit. The loss over the whole validation text
# after the last step must be within 1 % of the other's (ZeRO-Offload's authors see no difference,
# arXiv 2101.06840, section 5.2, with late updates after a few dozen steps). The text is that of
# scripts/quickstart.sh, or DATA. FLAGS, in one string, are handed to ./train and win. The last line
# is `N passed, N failed`.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C # numbers with points
steps=${1:-2000} after=${DELAY_AFTER:-40}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

die() { printf 'delay_quality: %s\n' "$*" >&2; exit 1; }
[[ $steps =~ ^[1-9][0-9]*$ ]] || die "steps '$steps': expected a number from 1 on"
[ -x ./train ] || make -s -j"$(nproc)" train || die "the build failed"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/zero.c
data=${DATA:-}
for text in tinyshakespeare fortunes; do
    [ -n "$data" ] || [ ! -s "$cache/$text.txt" ] || data=$cache/$text.txt
done
[ -n "$data" ] || die "no text in $cache: run scripts/quickstart.sh once, or say DATA=FILE"

model=(--model tiny --tokenizer train:1024)
training=(--batch 8 --steps "$steps" --lr 1e-3 --min-lr 1e-4 --warmup 40 --schedule cosine
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
more=$(awk "BEGIN { printf \"%.2f\", 100 * ($late / $usual - 1) }")
if awk "BEGIN { exit !($late <= 1.01 * $usual && $late >= 0.99 * $usual) }"; then
    echo "PASS  late is $more % above (at most 1 % apart)"
    echo "1 passed, 0 failed"
else
    echo "FAIL  late is $more % above (at most 1 % apart)"
    echo "0 passed, 1 failed"
    exit 1
fi
