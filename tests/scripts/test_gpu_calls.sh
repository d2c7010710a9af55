#!/bin/bash
# scripts/gpu_check.sh on a card that is lent for half an hour in calls of ten minutes, on a machine
# that is made up: four calls do everything, and a call that is killed loses nothing that it showed.
# Speaks TAP.
#
#   FULL=1 bash tests/scripts/test_gpu_calls.sh    real limits, of which each part takes more than
#                                                  a half, and 3 seconds to open the card; twenty
#                                                  minutes. Without: limits of seconds
# shellcheck disable=SC1091,SC2086,SC2154 # gpu_machine.sh sets status
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
. "${BASH_SOURCE%/*}/../lib/gpu_machine.sh"
HALF_AN_HOUR=1680 # less two minutes, in which the machine starts and files travel
CALL=540

# ---- the list of parts ----

bash "$folder/scripts/gpu_check.sh" list >"$folder/list"
sum=$(awk '{ sum += $1 } END { print sum }' "$folder/list")
[ "$sum" -ge 1400 ] && [ "$sum" -le $HALF_AN_HOUR ]
result $? "limits of all parts sum to $sum s, at most $HALF_AN_HOUR" "$(cat "$folder/list")"
diff <(bash "$folder/scripts/gpu_check.sh" list) <(cd "$root" && bash scripts/gpu_check.sh list) \
    >"$folder/said"
result $? "the machine that is made up has every part of this tree" "$(cat "$folder/said")"
calls=$(awk -v call=$CALL '{ limit[NR] = $1 } END {
    for (left = NR; left; n++) {
        time = call
        for (i = 1; i <= NR; i++)
            if (limit[i] && limit[i] <= time) { time -= limit[i]; limit[i] = 0; left-- }
        if (n > 9) break
    }
    print n }' "$folder/list")
[ "$calls" -le 4 ]
result $? "if each part takes all of its limit, $calls calls have room for them"

# ---- what comes back ----

# parses REPORT: only what a report may have, and each part has its section once.
parses() {
    awk -v mode="$(basename "$1" .md)" '
        function wrong(what) { print FILENAME ":" FNR ": " what ": " $0; bad = 1; exit }
        BEGIN { sub("gpu_", "", mode) }
        NR == 1 { if ($0 != "# GPU " mode) wrong("title"); next }
        NR == 3 { if ($0 !~ /^Written by `[^`]+` on [-0-9]+\.$/) wrong("date"); next }
        NR == 4 { if ($0 !~ /^Source [0-9a-f]+ on sm_[0-9]+, .*\.$/) wrong("source"); next }
        NR == 5 { if ($0 !~ /^Build: .*\.$/) wrong("build"); next }
        /^## / { if (part && line != 4) wrong("no such line")
            part = substr($0, 4); line = 0; if (had[part]++) wrong("twice"); next }
        /^$/ || /^    / { if (/^    / && line != 4) wrong("output too early"); next }
        ++line == 1 {
            head = mode ", " part ": "
            if (index($0, head) != 1) wrong("another part")
            told = substr($0, length(head) + 1)
            if (told !~ /^(passed|not run|slow|slow twice|cut|RED), [0-9.]+ s / ||
                told !~ / \(limit [0-9]+ s, try [0-9]+\)(, .*)?$/)
                wrong("result")
            line = 3; next }
        line == 4 { if ($0 !~ /^`.*`$/) wrong("command"); next }
        { wrong("no such line") }
        END { if (!bad && (NR < 5 || (part && line != 4))) print FILENAME ": torn" }' "$1"
}

# losses: what is wrong with what came back: reports, number of files, and lines that were shown.
losses() {
    local name
    for name in smoke bench tests offload; do
        [ ! -e "$folder/out/gpu_$name.md" ] || parses "$folder/out/gpu_$name.md"
    done
    [ "$(find "$folder/out" -type f | wc -l)" -le 8 ] || echo "too many files"
    [ "$(find "$folder/out" -type d | wc -l)" = 1 ] || echo "folders"
    cat "$folder"/out/gpu_*.md 2>/dev/null >"$folder/all"
    grep -vxFf "$folder/all" "$folder/shown" | sed 's/^/not in a report: /'
}

# ---- four calls ----

cp "$folder/scripts/gpu/lib.sh" "$folder/lib.sh"
if [ -n "${FULL:-}" ]; then
    half_limits
    kill_s=600 slack=60
    export OPEN=3
else
    few_kernels
    short_limits
    bash "$folder/scripts/gpu_check.sh" list >"$folder/list"
    CALL=5 kill_s=15 slack=5
    export OPEN=0
fi
lost='' longest=0 all_s=0
for calls in 1 2 3 4; do
    begin=$SECONDS
    card_call $kill_s LIMIT=$CALL
    took=$((SECONDS - begin)) all_s=$((all_s + SECONDS - begin))
    [ $took -le $longest ] || longest=$took
    lost+=$(losses && grep ': cut, ' "$folder/shown")
    echo "# call $calls: $took s, status $status: $(tail -n 1 "$folder/shown")"
    [ "$status" = 3 ] || break
done
[ $status = 0 ] && [ -z "$lost" ] && [ "$longest" -le $((CALL + slack)) ] &&
    [ "$(cat "$folder"/out/gpu_*.md | grep -c ': passed, .*limit')" -ge "$(wc -l <"$folder/list")" ]
result $? "all is done and nothing is RED after $calls calls, $all_s s, the longest $longest s" \
    "$lost $(cat "$folder/shown" "$folder/said")"
[ "$(tail -n 1 "$folder/shown")" = \
    "- 0 RED, 0 slow, 0 ratios below target or not measured, 0 parts left" ] &&
    [ "$(sed -n '/^- smoke/,$p' "$folder/shown" | wc -l)" -le 40 ] &&
    [ "$(grep -c '(at least ' "$folder/shown")" = 9 ]
result $? "the last lines of the last call: every ratio, 40 lines at most" "$(cat "$folder/shown")"
begin=$SECONDS
card_call $kill_s LIMIT=$CALL
[ $status = 0 ] && [ $((SECONDS - begin)) -le 9 ] && ! grep -q '^smoke, ' "$folder/shown"
result $? "what is done is not done again" "$(cat "$folder/shown")"

# ---- killed at eight random moments ----

seed=${SEED:-$$} lost='' killed=0
RANDOM=$seed
rm -rf "$folder/back"
cp "$folder/lib.sh" "$folder/scripts/gpu/lib.sh" # real limits again
for _ in {1..30}; do
    [ -n "${FULL:-}" ] && after=$((2 + RANDOM % 18)) || after=0.$((15 + RANDOM % 35))
    card_call $after
    lost+=$(losses)
    [ $status = 137 ] || { rm -rf "$folder/back" && continue; } # all was done: from the beginning
    killed=$((killed + 1))
    [ $killed -lt 8 ] || break
done
[ $killed = 8 ] && [ -z "$lost" ]
result $? "killed at $killed random moments (SEED=$seed): no line that was shown is lost" "$lost"
for calls in 1 2 3 4; do
    card_call $kill_s
    [ $status = 3 ] || break
done
lost=$(losses)
[ $status = 0 ] && [ -z "$lost" ]
result $? "what was cut is done by the next calls ($calls)" "$lost $(cat "$folder/shown")"

echo "1..$count"
exit $failed
