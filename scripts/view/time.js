// The pictures over time: whose weights are whole, memory, and what every queue does.
//
// Each has a height, a still part, and a part that belongs to the moment (`Now`). Read next: buffers.js.
"use strict";

// ---- picture: whose weights are whole ----

function weightRows(run) {
    const rank = run.ranks[run.rank], n = rank.file.groups.length;
    const h = Math.max(5, Math.min(16, Math.floor(224 / n)));
    return {rank, n, h, top: 2, bottom: 2 + n * h, countTop: 2 + n * h + 8, countHeight: 42};
}

function weightsHeight(run) {
    const rows = weightRows(run);
    return rows.countTop + rows.countHeight + 18;
}

function paintWeights(c, run, plot) {
    const rows = weightRows(run);
    paintAxis(c, run, plot, plot.height - 15);
    for (let g = 0; g < rows.n; g++)
        paintWeightRow(c, run, plot, rows, g);
    paintUnits(c, run, plot, rows);
    paintCount(c, run, plot, rows);
}

function paintWeightRow(c, run, plot, rows, g) {
    const y = rows.top + g * rows.h, h = rows.h - 2, rank = rows.rank;
    if (rows.h >= 9 || g % 4 === 0)
        text(c, groupName(rank, g), LEFT - 6, y + rows.h / 2 + 4, INK, "right");
    c.fillStyle = LINE;
    c.fillRect(LEFT, y + rows.h - 1, plot.width, 1);
    const kept = rank.keeps[g];
    if (kept) {
        c.setLineDash({device: [], cpu: [6, 3], nvme: [2, 3]}[kept.tier]);
        c.strokeStyle = "#8fb0d6";
        c.lineWidth = 2;
        c.beginPath();
        c.moveTo(LEFT, y + h - 0.5);
        c.lineTo(LEFT + plot.width, y + h - 0.5);
        c.stroke();
        c.setLineDash([]);
    }
    for (const l of rank.wholes)
        if (l.group === g) {
            bar(c, run, plot, l.begin, l.arrived, y, h, "arriving");
            bar(c, run, plot, l.arrived, l.end, y, h, l.block.tag === "comm" ? "gathered" : "param");
        }
    for (const o of rank.published)
        if (o.group === g)
            bar(c, run, plot, o.begin, o.end, y, h, "renewed");
}

// Computation in the rows: F and B of units, U of updates.
function paintUnits(c, run, plot, rows) {
    const letterSize = Math.max(7, Math.min(11, rows.h - 4));
    c.font = "bold " + letterSize + "px system-ui, 'DejaVu Sans', sans-serif";
    const written = {}; // until where the letters of a row go
    for (const o of rows.rank.computed) {
        const letter = {forward: "F", backward: "B"}[o.kind === "unit" && o.pass] || "U";
        const y = rows.top + o.group * rows.h + 1, h = rows.h - 4;
        const look = lookOf(o), span = bar(c, run, plot, o.begin, o.end, y, h, look);
        if (!span || h < 7)
            continue;
        const inside = span[1] > letterSize, at = inside ? span[0] + span[1] / 2 : span[0] - letterSize / 2 - 1;
        if (!inside && at - letterSize < Math.max(LEFT, written[o.group] || 0))
            continue; // a narrow bar's letter is before it, where there is room
        textOn(c, letter, at, y + h / 2 + letterSize * 0.36, inside ? look : "");
        written[o.group] = Math.max(span[0] + span[1], at + letterSize / 2);
    }
    c.font = FONT;
}

// Below the rows: how many blocks are whole or arriving at once, and how many may be.
function paintCount(c, run, plot, rows) {
    const {steps, most} = wholeBlocks(run, rows.rank), limit = run.info.prefetch + 1;
    const inSlots = steps.some(s => s[0] > 0 && s[0] < Infinity), top = Math.max(most, inSlots ? limit : 1, 1);
    const base = rows.countTop + rows.countHeight, unit = (rows.countHeight - 6) / top;
    ["blocks whole or", "arriving, without", "embedding, head"].forEach((words, i) =>
        text(c, words, LEFT - 18, rows.countTop + 13 + i * 13, INK, "right"));
    const each = unit < 12 ? top : 1, kept = rows.rank.wholes.some(s => s.block.tag === "comm") ? "gathered" : "param";
    for (let n = 0; n <= top; n += each)
        text(c, n, LEFT - 5, base - n * unit + (n ? 4 : 0), QUIET, "right");
    steps.forEach(([t, n, arriving], i) => {
        const begin = Math.max(t, 0), end = Math.min(i + 1 < steps.length ? steps[i + 1][0] : Infinity, run.length);
        if (n > arriving)
            bar(c, run, plot, begin, end, base - (n - arriving) * unit, (n - arriving) * unit, kept);
        if (arriving)
            bar(c, run, plot, begin, end, base - n * unit, arriving * unit, "arriving");
    });
    c.fillStyle = INK;
    c.fillRect(LEFT, base, plot.width, 1);
    if (!inSlots)
        return textOn(c, most + " of " + most + ", all the time", LEFT + 60, base - 14, "param");
    c.strokeStyle = MARK;
    c.lineWidth = 1.5;
    c.setLineDash([5, 3]);
    c.strokeRect(LEFT, base - limit * unit, plot.width, 0);
    c.setLineDash([]);
    textOn(c, "prefetch + 1 = " + limit, LEFT + plot.width - 50, base - limit * unit + 12);
}

function paintWeightsNow(c, run, plot) {
    const rows = weightRows(run), o = run.chosen;
    if (o && o.group >= 0 && !page.printing) {
        c.strokeStyle = INK;
        c.lineWidth = 1;
        c.strokeRect(0.5, rows.top + o.group * rows.h - 0.5, LEFT + plot.width, rows.h);
    }
}

// ---- picture: memory over time ----

function chartsOf(run) {
    let y = 2;
    return run.ranks[run.rank].tiers.map(tier => {
        const height = tier === "device" ? 118 : 84, chart = {tier, y, height: height - 12};
        y += height;
        return chart;
    });
}

function memoryHeight(run) {
    return chartsOf(run).reduce((y, chart) => y + chart.height + 12, 2) + 16;
}

// The state to show in each column of pixels: that with most bytes reserved.
function columnsOf(run, plot, m) {
    const columns = [], n = Math.ceil(plot.width);
    for (let x = 0; x <= n; x++) {
        const t0 = (page.from + x / plot.width / page.zoom) * run.length;
        const t1 = (page.from + (x + 1) / plot.width / page.zoom) * run.length;
        let best = Math.max(0, countUntil(m.times, t0) - 1);
        for (let i = best + 1; i < m.times.length && m.times[i] < t1; i++)
            if (m.total[i] > m.total[best])
                best = i;
        columns.push(best);
    }
    return columns;
}

function paintMemory(c, run, plot) {
    const rank = run.ranks[run.rank];
    paintAxis(c, run, plot, plot.height - 15);
    for (const chart of chartsOf(run))
        paintChart(c, run, plot, chart, rank.memory[chart.tier]);
}

function paintChart(c, run, plot, chart, m) {
    const most = Math.max(...page.runs.map(r => Math.max(...r.ranks.map(k => k.memory[chart.tier].peak))));
    const columns = columnsOf(run, plot, m), base = chart.y + chart.height;
    const below = columns.map(() => 0), unit = chart.height / most;
    for (const tag of TAGS) {
        if (!m.peakOf[tag])
            continue;
        const used = columns.map((i, x) => below[x] + m.used[tag][i]);
        const all = columns.map((i, x) => below[x] + m.bytes[tag][i]);
        paintArea(c, below, used, base, unit, fill(tag));
        if (tag === "comm") {
            const gathered = columns.map((i, x) => below[x] + m.used.gathered[i]);
            paintArea(c, below, gathered, base, unit, fill("gathered"));
            paintArea(c, gathered, columns.map((i, x) => gathered[x] + m.used.bucket[i]), base, unit, fill("bucket"));
        }
        paintArea(c, used, all, base, unit, fill(tag, true));
        const middle = (below[30] + all[30]) / 2 * unit;
        if ((all[30] - below[30]) * unit > 12)
            textOn(c, TAG_WORDS[tag], LEFT + 46, base - middle + 4, 2 * used[30] > below[30] + all[30] ? tag : "");
        all.forEach((v, x) => below[x] = v);
    }
    c.fillStyle = INK;
    c.fillRect(LEFT, base, plot.width, 1);
    c.font = "bold " + FONT;
    text(c, TIER_WORDS[chart.tier], LEFT - 6, chart.y + 12, INK, "right");
    c.font = FONT;
    text(c, "peak " + bytesText(m.peak), LEFT - 6, chart.y + 26, INK, "right");
    c.strokeStyle = QUIET;
    c.lineWidth = 1;
    c.setLineDash([2, 2]);
    c.strokeRect(LEFT - 4, Math.round(base - m.peak * unit) + 0.5, plot.width + 4, 0);
    c.setLineDash([]);
}

function paintArea(c, from, to, base, unit, style) {
    c.beginPath();
    for (let x = 0; x < to.length; x++) {
        c.lineTo(LEFT + x, base - to[x] * unit);
        c.lineTo(LEFT + x + 1, base - to[x] * unit);
    }
    for (let x = from.length - 1; x >= 0; x--) {
        c.lineTo(LEFT + x + 1, base - from[x] * unit);
        c.lineTo(LEFT + x, base - from[x] * unit);
    }
    c.fillStyle = style;
    c.fill();
}

// ---- picture: ranks as lanes, their queues inside ----

const LANE = 15;

function lanesOf(run) {
    const lanes = [];
    let y = 4;
    run.ranks.forEach((rank, r) => {
        rank.queueNames.forEach((queue, i) => {
            lanes.push({rank, r, queue, y, first: i === 0});
            y += LANE;
        });
        y += 6;
    });
    return lanes;
}

function lanesHeight(run) {
    return run.ranks.reduce((y, rank) => y + rank.queueNames.length * LANE + 6, 4) + 14;
}

function paintLanes(c, run, plot) {
    paintAxis(c, run, plot, plot.height - 15);
    for (const lane of lanesOf(run)) {
        if (lane.first) {
            c.font = "bold " + FONT;
            text(c, "rank " + lane.rank.number, 6, lane.y + 11);
            c.font = FONT;
        }
        text(c, lane.queue.replace("host compute", "host comp."), LEFT - 6, lane.y + 11, INK, "right");
        paintLane(c, run, plot, lane);
    }
}

// Operations that fall into one pixel are drawn once.
function paintLane(c, run, plot, lane) {
    let drawn = -1;
    for (const o of lane.rank.queue[lane.queue]) {
        if (o.waited > 0)
            paintWait(c, run, plot, o, lane.y);
        const span = spanOf(run, plot, o.begin, o.end);
        if (!span || span[0] + span[1] <= drawn)
            continue;
        drawn = span[0] + span[1];
        const gap = span[1] > 3 ? 1 : 0;
        fillSpan(c, [span[0], span[1] - gap], lane.y, LANE - 3, lookOf(o));
        paintJoining(c, run, plot, o, span, lane.y);
        labelOp(c, lane.rank, o, span, lane.y);
    }
}

// The part of a collective that waits for the last rank is pale.
function paintJoining(c, run, plot, o, span, y) {
    const waits = o.joined > o.begin ? spanOf(run, plot, o.begin, o.joined) : null;
    if (!waits || span[1] < 3 || waits[1] < 2)
        return;
    c.fillStyle = fill(lookOf(o), true);
    c.fillRect(span[0], y, Math.min(waits[1], span[1] - 1), LANE - 3);
    c.strokeStyle = LOOKS[lookOf(o)][0];
    c.lineWidth = 1;
    c.strokeRect(span[0] + 0.5, y + 0.5, Math.min(waits[1], span[1] - 1) - 1, LANE - 4);
}

function labelOp(c, rank, o, span, y) {
    if (span[1] < 20)
        return;
    const full = opName(rank, o), short = o.kind === "unit" ? unitName(rank, o.unit).replace("block.", "") : groupName(rank, o.group).replace("block.", "");
    const words = [full, short].find(w => textWidth(c, w) < span[1] - 6);
    if (words)
        textOn(c, words, span[0] + span[1] / 2, y + 10, o.joined > (o.begin + o.end) / 2 ? "" : lookOf(o));
}

function paintWait(c, run, plot, o, y) {
    const span = spanOf(run, plot, o.begin - o.waited, o.begin);
    if (!span || span[1] < 2)
        return;
    c.fillStyle = fill("waits");
    c.fillRect(span[0], y + 5, span[1], 2);
}

// The chosen operation, and lines from those that it came after.
function paintLanesNow(c, run, plot) {
    const o = run.chosen;
    if (!o || page.printing)
        return;
    const lanes = lanesOf(run).filter(l => l.r === run.rank), laneOf = x => lanes.find(l => l.queue === x.queue);
    const span = spanOf(run, plot, o.begin, o.end), lane = laneOf(o);
    c.strokeStyle = c.fillStyle = INK;
    c.lineWidth = 1;
    for (const id of o.after || []) {
        const before = run.ranks[run.rank].op[id];
        if (!before || laneOf(before) === lane)
            continue;
        const [x0, x1] = [before.end, o.begin].map(t => Math.max(LEFT, xOf(run, plot, t)));
        c.beginPath();
        c.moveTo(x0, laneOf(before).y + 6);
        c.lineTo(x1, lane.y + 6);
        c.stroke();
        c.fillRect(x0 - 2.5, laneOf(before).y + 3.5, 5, 5);
    }
    if (span) {
        c.lineWidth = 2;
        c.strokeRect(span[0], lane.y - 1, Math.max(span[1], 3), LANE - 1);
    }
}
