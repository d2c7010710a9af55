#!/bin/bash
# --plan --html: what the page says of a plan is what `--plan --json` says, to the byte, for points
# drawn at random; what a command refuses is refused with its words; a browser opens the page from
# the disk, shows those bytes, and draws it again within 50 ms. Speaks TAP.
#
# TRAIN names the program (default ./train). SEED draws other points, COUNT more.
set -u
export LC_ALL=C.UTF-8 # with a comma for a point, a time cannot be compared
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"
. "${BASH_SOURCE%/*}/../lib/browser.sh"
export TRAIN=$train
points=$(dirname "$train")/tests/page_points
[ -x "$points" ] || points=build/release/tests/page_points

# ---- all models ----

page=$folder/page.html
begin=$(date +%s)
said=$("$TRAIN" --plan --html "$page" 2>&1)
status=$?
said+=" in $(($(date +%s) - begin)) s"
echo "# $said"
[ $status = 0 ] && [ "$(stat -c %s "$page")" -le 5000000 ] && grep -q ': 16128 plans, 0 refused' <<<"$said"
result $? "a page of all models, in at most 5 MB" "$said"
! grep -qE '(src|href)=|https?:|@import|url\([^#]' "$page"
result $? "it asks for nothing from a network" "$(grep -nE 'src=|href=|https?:' "$page" | cut -c 1-200)"
said=$("$points" "$page" "${COUNT:-200}" "${SEED:-1}")
result $? "what the page says is what its commands say, to the byte" "$(head -n 3 <<<"$said")"
echo "# $(tail -n 1 <<<"$said")"

# One point more in front, which moves the others.
sed 's/"tiers.device.peak":"\([0-9a-z]*\)/"tiers.device.peak":"1*1,\1/' "$page" >"$folder/wrong.html"
said=$("$points" "$folder/wrong.html" 20 1 2>&1)
[ $? != 0 ]
result $? "a page whose bytes are moved by one point is found" "$said"
sed 's/"traffic.all_gather":"[^"]*",//' "$page" >"$folder/wrong.html"
said=$("$points" "$folder/wrong.html" 20 1)
[ $? = 1 ] && grep -q 'traffic.all_gather: the page has 0,' <<<"$said"
result $? "and one that lacks a column" "$said"

# ---- what the line says ----

said=$("$TRAIN" --plan --html "$folder/some.html" --model gpt2 --global-batch 8 --seq-len 256 \
    --recompute block --device cpu --offload-optimizer nvme 2>&1)
[ $? = 0 ] && [ "$("$points" "$folder/some.html" refused)" = "144 of 224 points are refused" ]
result $? "a batch that the ranks do not divide is refused, and nothing else" "$said"
said=$("$points" "$folder/some.html" 30 "${SEED:-1}")
result $? "in the words of the command; the line's flags are in each command" "$(head -n 3 <<<"$said")"
said=$("$TRAIN" --plan --html "$folder/some.html" --model tiny --tp 2 --out "a'b</script>" 2>&1)
[ $? = 0 ] && [ "$("$points" "$folder/some.html" refused)" = "96 of 672 points are refused" ] &&
    "$points" "$folder/some.html" 10 1 >"$folder/said" && [ "$(grep -c '</script>' "$folder/some.html")" = 2 ]
result $? "--tp 2 needs two ranks; a value may have any letters" "$said $(cat "$folder/said")"
cp "$folder/some.html" "$folder/before.html"
said=$("$TRAIN" --plan --html "$folder/some.html" --model tiny --tp 3 2>&1)
[ $? = 2 ] && error_is "E_GRID" && cmp -s "$folder/some.html" "$folder/before.html"
result $? "where all is refused the page that is there stays" "$said"
echo '{"tp": 3}' >"$folder/tp.json"
said=$("$TRAIN" --plan --html "$folder/some.html" --model tiny --config "$folder/tp.json" 2>&1)
[ $? = 2 ] && error_is "E_GRID" && [ "$(grep -o 'tp\.json' <<<"$said" | wc -l)" = 1 ]
result $? "where a value is from is told once" "$said"

refused() { # refused "ID" FLAG...
    said=$("$TRAIN" "${@:2}" 2>&1)
    [ $? = 2 ] && error_is "$1" && [ ! -e "$folder/none.html" ]
    result $? "refused: ${*:2}" "$said"
}
none=$folder/none.html
refused E_PLAN_MISSING --data random --html "$none"
refused E_HTML --plan --html "$none" --json
refused E_HTML --plan --html "$none" --params 7G
refused E_HTML --plan --html "$none" --fit auto
refused E_HTML --plan --html "$none" --cluster docs/clusters/h100.json
refused E_HTML --plan --html "$none" --show-chain block.0
said=$("$TRAIN" --plan --model tiny --html "$folder/no/page.html" 2>&1)
[ $? = 2 ] && error_is E_FILE_WRITE
result $? "a folder that is not there" "$said"

# ---- in a browser ----

if ! find_browser; then
    count=$((count + 1))
    echo "ok $count # SKIP no browser that opens a file without a screen (chromium)"
else
    # Three points by the dials; the numbers that stand there, and the time in which a quarter of the
    # redraws are done: other programs make some late. So the best of three tries counts, too.
    cat "$page" - >"$folder/check.html" <<'END'
<pre id="check"></pre><script>
const times = [];
let text = "";
[[3, 0, 3, 0, 3, 1], [8, 1, 1, 1, 5, 3], [23, 0, 2, 2, 0, 0]].forEach(values => {
  values.forEach((v, k) => {
    const dial = document.getElementById("d" + k), begin = performance.now();
    dial.value = v;
    dial.dispatchEvent(new Event("input"));
    document.body.offsetHeight; // lays the page out, so that its time counts
    times.push(performance.now() - begin);
  });
  text += "command " + document.getElementById("command").textContent + "\n";
  document.querySelectorAll("[data-path]").forEach(c =>
    text += c.dataset.path + " " + c.textContent.replace(/,/g, "") + "\n");
});
text += "redraw " + times.sort((a, b) => a - b)[times.length >> 2].toFixed(2) + "\n";
document.getElementById("check").textContent = "\n" + text + "broken " + !document.getElementById("broken").hidden + "\n";
</script>
END
    for try in 1 2 3; do
        dump_page "$folder/check.html" | sed -n '/<pre id="check">/,/^broken/p' >"$folder/checked"
        redraw=$(sed -n 's/^redraw //p' "$folder/checked")
        awk -v ms="${redraw:-99}" 'BEGIN { exit !(ms > 0 && ms < 50) }' && break
    done
    grep -q '^broken false' "$folder/checked"
    result $? "a browser opens the page from the disk, without an error" "$(tail -n 5 "$folder/browser_said")"
    awk -v ms="${redraw:-99}" 'BEGIN { exit !(ms > 0 && ms < 50) }'
    result $? "a dial draws it again within 50 ms: $redraw ms" "$(cat "$folder/checked")"
    said='' shown=0
    while read -r name value; do
        if [ "$name" = command ]; then
            # shellcheck disable=SC2086
            "$TRAIN" ${value#./train} --json 2>/dev/null | tr -d '\n\t ' >"$folder/json"
            continue
        fi
        case $name in
        tiers.*)
            tier=${name#tiers.}
            is=$(sed "s/.*\"name\":\"${tier%%.*}\"//; s/\(\"peak\":[0-9]*\)}.*/\1/; s/.*\"${name##*.}\":\([0-9]*\).*/\1/" "$folder/json")
            ;;
        node_host | traffic.* | moved.*) is=$(sed "s/.*\"${name##*.}\":\([0-9]*\).*/\1/" "$folder/json") ;;
        *) continue ;;
        esac
        shown=$((shown + 1))
        [ "$is" = "$value" ] || said+="$name: shown $value, planned $is; "
    done <"$folder/checked"
    [ -z "$said" ] && [ $shown -ge 30 ]
    result $? "and shows the bytes of three commands" "$shown numbers; $said"
fi

echo "1..$count"
exit $failed
