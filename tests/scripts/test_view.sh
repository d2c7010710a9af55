#!/bin/bash
# scripts/view.sh: what it refuses, and its page in a browser without a screen. A probe, behind the
# page's own scripts, presses keys and writes what the page shows; jq computes the same from the
# traces. Speaks TAP for scripts/dev/run_tests.sh.
set -u
. "${BASH_SOURCE%/*}/../lib/tap.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# made NAME SETTING...: those of 4 ranks, in $dir, as NAME.json, NAME.json.1 and on
made() {
    local name=$1 rank end settings=()
    shift
    for setting in "$@"; do settings+=(-v "$setting"); done
    for rank in 0 1 2 3; do
        [ $rank = 0 ] && end= || end=.$rank
        awk -f tests/lib/made_trace.awk -v rank=$rank -v ranks=4 "${settings[@]}" >"$dir/$name.json$end"
    done
}

refused() { # refused TEXT ARGUMENT...: status 2 and one line with TEXT, and no page
    local text=$1 said status
    shift
    said=$(scripts/view.sh -o "$dir/none.html" "$@" 2>&1)
    status=$?
    [ $status = 2 ] && [[ $said == "view.sh: "*"$text"* ]] && [ "$(wc -l <<<"$said")" = 1 ] && [ ! -e "$dir/none.html" ]
    result $? "refused: $text" "$said"
}

made zero0 stage=0 layers=4 micros=2
made zero3 stage=3 layers=4 micros=2
made offload stage=3 layers=4 micros=2 offload=1

refused "usage"
refused "$dir/nothing is not a file" "$dir/nothing"
refused "is not of --trace-zero" tests/lib/tap.sh
refused "of a rank that another file has" "$dir"/zero3.json "$dir"/zero0.json
made zero3_before stage=3 layers=4 micros=2 ranks=8
refused "zero3.json is of a run of 4 ranks, the others of 8" "$dir"/zero3_before.json "$dir"/zero3.json
refused "no file after --beside" "$dir"/zero3.json --beside
refused "unknown option -x" -x

said=$(cd "$dir" && "$OLDPWD/scripts/view.sh" zero3.json* 2>&1)
[ "$said" = zero3.html ] && [ -s "$dir/zero3.html" ] && ! grep -Eq '(src|href)="|https?://|@import|url\(' "$dir/zero3.html"
result $? "a page is one file, which refers to no other" "$said"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ] || ! command -v jq >/dev/null; then
    echo "ok $((count += 1)) # SKIP the page: no browser that needs no screen, or no jq (chromium, jq)"
    echo "1..$count"
    exit $failed
fi

# show PAGE PROBE: what the probe, JavaScript, wrote with say().
show() {
    {
        cat "$1"
        echo "<pre id=said></pre><script>
            const lines = [], \$ = q => document.querySelector(q);
            const say = (name, value) => lines.push(name + ' ' + value);
            const key = k => document.body.dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true, cancelable: true}));
            const bytes = (row, column) => \$('[data-row=' + row + ']').cells[column].dataset.bytes;
            try { $2 } catch (e) { say('error', e) }
            say('trouble', \$('#trouble').hidden ? 'none' : \$('#trouble').textContent);
            \$('#said').textContent = '\\n' + lines.join('\\n') + '\\n';
        </script>"
    } >"$dir/probed.html"
    HOME=$dir timeout 120 "$browser" --headless --no-sandbox --disable-gpu --window-size=1400,900 --dump-dom \
        "file://$dir/probed.html" 2>/dev/null | sed -n '/<pre id="said">/,/<\/pre>/p' | sed '1d;$d'
}

# The traces of rank 0 of a run, as jq sees them.
peak='[.blocks[] | select(.tier == $tier) | {t: (.reserved // -1), b: .bytes}, (select(.freed) | {t: .freed, b: -.bytes})]
    | sort_by(.t, .b) | reduce .[] as $c ([0, 0]; [.[0] + $c.b, ([.[1], .[0] + $c.b] | max)]) | .[1]'
sent='[.operations[] | select(.end <= $t) | .moved[$kind] // 0] | add'

expect() { # expect NAME VALUE: a line of the probe's
    local is
    is=$(sed -n "s/^$1 //p" <<<"$shown")
    [ "$is" = "$2" ]
    result $? "$run: $1" "$1 is ${is:-not there}, not $2; all: $shown"
}

# Runs of ./train, if it writes such traces: of 2 ranks, the last one with all state on disk.
train=$(realpath "${TRAIN:-./train}") runs=(zero0 zero3 offload)
trained() { # trained NAME FLAG...
    (cd "$dir" && timeout 120 "$train" --device cpu --dtype bf16 --data random --vocab 61 --layers 4 --channels 64 --heads 2 \
        --seq-len 64 --batch 2 --threads 1 --ranks 2 --steps 3 --no-tensorboard --out "out_$1" --trace-zero "$@") >"$dir/said" 2>&1
    result $? "./train --trace-zero $*" "$(cat "$dir/said")"
}
if "$train" --help 2>/dev/null | grep -q trace-zero; then
    trained trained0.json --zero 0
    trained trained3.json --zero 3 --global-batch 8
    trained trained_disk.json --zero 3 --offload-param nvme --offload-optimizer nvme --offload-activations nvme --nvme-path .
    runs+=(trained0 trained3 trained_disk)
else
    echo "ok $((count += 1)) # SKIP pages of runs: $train has no --trace-zero"
fi
for run in "${runs[@]}"; do
    scripts/view.sh -o "$dir/$run.html" "$dir/$run".json* >/dev/null
    shown=$(show "$dir/$run.html" "
        for (const tier of ['device', 'cpu', 'nvme'])
            if (\$('[data-row=' + tier + ']'))
                say('peak_' + tier, bytes(tier, 3));
        say('sent_step', bytes('sent', 2));
        key('End');
        say('sent_all', bytes('sent', 1));
        key('Home');
        for (let i = 0; i < 40; i++) key('ArrowRight');
        const event = page.events[page.event];
        say('time', event.o[event.ends ? 'end' : 'begin'] - page.runs[0].ranks[0].shift + 0.0003);
        say('sent_until', bytes('sent', 1));
        say('param', bytes('param', 1));
        say('agrees', \$('.numbers').textContent.includes('The blocks add up'));
    ")
    expect trouble none
    file=$dir/$run.json
    for tier in $(jq -r '[.blocks[].tier] | unique[]' "$file"); do
        expect "peak_$tier" "$(jq --arg tier "$tier" "$peak" "$file")"
    done
    expect sent_step "$(jq --argjson t 1e99 --arg kind sent "$sent" "$file")"
    expect sent_all "$(jq --argjson t 1e99 --arg kind sent "$sent" "$file")"
    time=$(sed -n 's/^time //p' <<<"$shown")
    expect sent_until "$(jq --argjson t "${time:-0}" --arg kind sent "$sent" "$file")"
    expect param "$(jq '[.blocks[] | select(.tag == "param") | .bytes] | add' "$file")"
    expect agrees true
done

run=zero3
shown=$(show "$dir/zero3.html" "
    const slider = \$('#slider'), at = () => Number(slider.value);
    say('begins_at', at());
    key('ArrowRight');
    say('chosen', \$('.chosen h3').textContent);
    say('code', \$('.chosen code').textContent);
    const first = at();
    for (let i = 0; i < 10; i++) key('ArrowRight');
    say('moves', at() > first);
    const tenth = at();
    key('PageDown');
    key('PageUp');
    say('there_and_back', at() === tenth);
    key('ArrowLeft');
    key('ArrowLeft');
    say('back', at() < tenth);
    key('End');
    say('end', at());
    key('Home');
    say('home', at());
    key('ArrowDown');
    say('rank', \$('.weights select').value);
    key('+');
    say('zoom', \$('#zoom').textContent);
    key(' ');
    say('plays', \$('#play').textContent);
    key(' ');
    say('pauses', \$('#play').textContent);
    slider.value = 50000;
    slider.dispatchEvent(new Event('input'));
    say('dragged', page.at);
    say('command', \$('.command code').textContent);
    say('most', document.querySelector('.sees').querySelectorAll('b')[1].textContent);
    const c = \$('.weights canvas'), dark = c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 === 3 && v).length;
    say('drawn', dark > 10000);
")
expect trouble none
expect begins_at 0
expect chosen "all_gather of embedding runs"
expect code zero/param.c:118
for name in moves there_and_back back drawn; do expect $name true; done
expect end 100000
expect home 0
expect rank 1
expect zoom ×2
expect plays pause
expect pauses play
expect dragged 0.5
expect command "./train --zero 3 --data '&lt;/script&gt;'" # as a page's text is written
expect most "2 blocks"

scripts/view.sh -o "$dir/beside.html" "$dir"/zero0.json* --beside "$dir"/zero3.json* >/dev/null
run=beside
shown=$(show "$dir/beside.html" "
    say('runs', document.querySelectorAll('article').length);
    key('ArrowRight'); key('ArrowRight'); key('ArrowRight');
    const x = page.runs.map((r, i) => Math.round(1e6 * timeAt(r) / r.length));
    say('one_fraction', Math.abs(x[0] - x[1]) < 2);
")
expect trouble none
expect runs 2
expect one_fraction true

# 10,000 operations. A redraw is a move of the slider, or with a zoom all of the pictures anew. Other
# programs make some of them late, so what a quarter of them keep to counts, and the best of three tries.
made many stage=3 layers=40 micros=12
operations=$(cat "$dir"/many.json* | jq -s '[.[].operations | length] | add')
[ "$operations" -ge 10000 ]
result $? "there are 10,000 operations" "$operations"
scripts/view.sh -o "$dir/many.html" "$dir"/many.json* >/dev/null
for try in 1 2 3; do
    shown=$(show "$dir/many.html" "
        const drawn = () => page.runs[0].pictures.forEach(p => p.c.getImageData(0, 0, 1, 1));
        const quarter = work => {
            const times = [];
            for (let i = 0; i < 41; i++) {
                const begin = performance.now();
                work(i);
                drawn();
                times.push(performance.now() - begin);
            }
            return times.sort((a, b) => a - b)[10].toFixed(1);
        };
        say('step', quarter(i => moveTo(i / 41)));
        say('anew', quarter(i => i % 2 ? key('-') : key('+')));
    ")
    step=$(sed -n 's/^step //p' <<<"$shown") anew=$(sed -n 's/^anew //p' <<<"$shown")
    awk -v a="${step:-99}" -v b="${anew:-99}" 'BEGIN { exit !(a < 16 && b < 50) }' && break
done
awk -v a="${step:-99}" 'BEGIN { exit !(a < 16) }'
result $? "10,000 operations are redrawn in less than 16 ms: $step ms" "$shown"
awk -v a="${anew:-99}" 'BEGIN { exit !(a < 50) }'
result $? "and zoomed, with all that is still, in less than 50 ms: $anew ms" "$shown"

echo "1..$count"
exit $failed
