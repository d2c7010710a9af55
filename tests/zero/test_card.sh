#!/bin/bash
# A plan for a card that is not here: in bf16, at the stage that was said, with the rates of one
# like it, of which it says whose they are. Speaks TAP.
#
# TRAIN names the program (default ./train).
set -u
export TRAIN=${TRAIN:-./train}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME=$folder/cache
. "${BASH_SOURCE%/*}/../lib/tap.sh"

if [ -e /dev/nvidia0 ]; then
    echo "1..0 # SKIP a card is here"
    exit 0
fi

# What --device-mem says makes it a plan for a card, in bf16, with the rates of one like it.
eight=(--plan --model llama3.1-8b --ranks 4 --zero 3)
for card in 16=a4000 20=a10g 24=a10g 25=a6000 48=a6000 80=a100 81=a100; do
    "$TRAIN" "${eight[@]}" --device-mem "${card%=*}G" 2>/dev/null |
        grep -A 1 '^device: cuda (for a card, by --device-mem), dtype: bf16 (' |
        grep -q "^rates: .* (docs/clusters/${card#*=}.json): no GPU is here; --cluster names"
    result $? "a card of ${card%=*} GB has the rates of docs/clusters/${card#*=}.json"
done
said=$("$TRAIN" "${eight[@]}" --device-mem 24G --fit auto --json 2>&1)
status=$?
# 8e9 parameters, 6 FLOP each and token, and a forward pass again, at 70 TFLOP/s: 10 s or so.
step=$(sed -n 's/.*"step":[ \t]*\([0-9]*\).*/\1/p' <<<"$said")
[ $status = 0 ] && [ "${step:-0}" -ge 5 ] && [ "${step:-0}" -le 30 ] &&
    grep -q '"stage":.*[^0-9]3,$' <<<"$said" && grep -q '"dtype":.*"bf16"' <<<"$said"
result $? "--fit auto has that card's rates, not this machine's" "step $step: $said"
said=$("$TRAIN" "${eight[@]}" --device-mem 24G 2>&1 >/dev/null)
status=$?
flags="--recompute block --offload-optimizer cpu"
# shellcheck disable=SC2086
[ $status = 2 ] && [[ $said == *": with $flags it would fit, in 4 x "* ]] &&
    "$TRAIN" "${eight[@]}" --device-mem 24G $flags >/dev/null
result $? "and 24 GB are enough with the optimizer on the host, at the stage that was said" \
    "$said"
[ ! -e "$XDG_CACHE_HOME/zero.c/machine.txt" ]
result $? "nothing of this machine was measured for it" \
    "$(cat "$XDG_CACHE_HOME/zero.c/machine.txt" 2>&1)"

echo "1..$count"
exit $failed
