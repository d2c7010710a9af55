#!/bin/bash
# The page of scripts/view.sh in a browser without a screen: a probe, behind the page's own scripts,
# presses keys and writes what the page shows; jq computes the same from the traces. Skipped without
# a browser and jq. Speaks TAP for scripts/dev/run_tests.sh.
set -u
export LC_ALL=C.UTF-8 # with a comma for a point, neither JSON nor a time can be compared
. "${BASH_SOURCE%/*}/../lib/own_folder.sh"
. tests/lib/made_traces.sh
. tests/lib/browser.sh
if ! find_browser || ! command -v jq >/dev/null; then
    echo "1..0 # SKIP the page: no browser that opens a file without a screen, or no jq (chromium, jq)"
    exit 0
fi

made zero0 stage=0 layers=4 micros=2
made zero3 stage=3 layers=4 micros=2
made offload stage=3 layers=4 micros=2 offload=1

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
    } >"$folder/probed.html"
    dump_page "$folder/probed.html" | sed -n '/<pre id="said">/,/<\/pre>/p' | sed '1d;$d'
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
runs=(zero0 zero3 offload)
trained() { # trained NAME FLAG...
    (cd "$folder" && timeout 120 "$train" --device cpu --dtype bf16 --data random --vocab 61 --layers 4 --channels 64 --heads 2 \
        --seq-len 64 --batch 2 --threads 1 --ranks 2 --steps 3 --no-tensorboard --out "out_$1" --trace-zero "$@") >"$folder/said" 2>&1
    result $? "./train --trace-zero $*" "$(cat "$folder/said")"
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
    scripts/view.sh -o "$folder/$run.html" "$folder/$run".json* >/dev/null
    shown=$(show "$folder/$run.html" "
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
    file=$folder/$run.json
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
shown=$(show "$folder/zero3.html" "
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

scripts/view.sh -o "$folder/beside.html" "$folder"/zero0.json* --beside "$folder"/zero3.json* >/dev/null
run=beside
shown=$(show "$folder/beside.html" "
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
operations=$(cat "$folder"/many.json* | jq -s '[.[].operations | length] | add')
[ "$operations" -ge 10000 ]
result $? "there are 10,000 operations" "$operations"
scripts/view.sh -o "$folder/many.html" "$folder"/many.json* >/dev/null
for try in 1 2 3; do
    shown=$(show "$folder/many.html" "
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
