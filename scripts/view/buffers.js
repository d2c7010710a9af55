// The picture of the moment: what is in every buffer of every rank, and what is on its way.
//
// Read next: texts.js.
"use strict";

// ---- picture: buffers now ----

const ROW = 15, NAMES = 92, BUS = 18;

// How the contents of a block look.
const HOLDS = {weights: "param", gradient: "grad", optimizer: "optimizer", activations: "activation", message: "comm"};

// Where tiers and tags are in the picture: each rank has a panel, with a row for each tag.
function panelsOf(run, plot) {
    const ranks = page.runs.flatMap(r => r.ranks);
    const tags = TAGS.filter(tag => ranks.some(r => r.tiers.some(t => r.memory[t].peakOf[tag])));
    const tiers = TIERS.filter(t => run.ranks.some(r => r.tiers.includes(t)));
    const height = 17 + tags.length * ROW + 8, left = NAMES + BUS + 8;
    const width = (plot.full - left - 6) / tiers.length;
    const boxes = tiers.map((tier, i) => ({tier, x: left + i * width, width: width - 8}));
    return {tags, boxes, height};
}

function buffersHeight(run) {
    return panelsOf(run, {full: 600}).height * run.ranks.length + 4;
}

// The widest row of a tag, of both runs, so that widths can be compared.
function widestOf(tag) {
    return page.widest[tag] ||= Math.max(1, ...page.runs.flatMap(run => run.ranks.flatMap(rank =>
        TIERS.map(tier => rank.memory[tier].peakOf[tag]))));
}

function paintBuffers(c, run, plot) {
    const panels = panelsOf(run, plot), t = timeAt(run);
    paintBus(c, run, panels, t);
    run.ranks.forEach((rank, r) => {
        const y = 2 + r * panels.height;
        c.font = (r === run.rank ? "bold " : "") + FONT;
        text(c, "rank " + rank.number, 6, y + 11);
        c.font = FONT;
        panels.tags.forEach((tag, i) => text(c, TAG_WORDS[tag], NAMES - 6, y + 17 + i * ROW + 10, QUIET, "right"));
        const place = {};
        for (const box of panels.boxes)
            paintBox(c, rank, panels, box, y, t, place);
        let running = runningAt(rank, t);
        if (r === run.rank && run.chosen && !running.includes(run.chosen))
            running = [...running, run.chosen];
        for (const o of running)
            paintOp(c, o, place, t);
        for (const o of running)
            paintTravel(c, o, place, t, r === run.rank);
    });
}

// What joins the ranks. It is dark while they send.
function paintBus(c, run, panels, t) {
    const sends = run.ranks.some(rank => runningAt(rank, t).some(o => o.moved.sent));
    const height = panels.height * run.ranks.length - 6;
    c.fillStyle = sends ? INK : "#e6e9ec";
    c.fillRect(NAMES, 2, BUS - 4, height);
    if (run.ranks.length < 2)
        return;
    c.save();
    c.translate(NAMES + 11, 2 + height / 2);
    c.rotate(-Math.PI / 2);
    text(c, sends ? "ranks send" : "between ranks", 0, 0, sends ? "#fff" : QUIET, "center");
    c.restore();
}

function paintBox(c, rank, panels, box, y, t, place) {
    const title = TIER_WORDS[box.tier], m = rank.memory[box.tier];
    const [used, all] = ["used", "bytes"].map(kind => bytesText(TAGS.reduce((n, tag) => n + memoryAt(m, kind, tag, t), 0)));
    const words = [title + ": " + used + " of " + all + " in use", title + ": " + used + " of " + all, title];
    text(c, words.find(w => c.measureText(w).width < box.width) || title, box.x, y + 11);
    c.strokeStyle = "#8a929c";
    c.lineWidth = 1;
    c.strokeRect(box.x - 2.5, y + 14.5, box.width + 4, panels.tags.length * ROW + 3);
    box.right = box.x + box.width;
    panels.tags.forEach((tag, i) => {
        let x = box.x;
        for (const b of rank.block) {
            if (!b || b.tier !== box.tier || b.tag !== tag || b.reserved > t || b.freed <= t)
                continue;
            const width = b.bytes / widestOf(tag) * box.width;
            place[b.id] = {x, y: y + 17 + i * ROW, width, block: b, right: box.right};
            paintBlock(c, rank, b, place[b.id], t);
            x += width;
        }
    });
}

// Weights and optimizer state stay in their block until the next update, beyond their last use in the step.
function keptIn(b) {
    return b.tag === "param" || b.tag === "optimizer" ? b.lives[0] : null;
}

function paintBlock(c, rank, b, at, t) {
    let name = "", look = "";
    const kept = keptIn(b);
    if (kept) { // it is in the bytes, though nothing may use it for now
        c.fillStyle = fill(b.tag, true);
        c.fillRect(at.x, at.y, at.width, ROW - 3);
        name = groupName(rank, kept.group);
    }
    for (const l of b.lives)
        if (l.begin <= t && l.end > t) {
            const of = l.stay && l.stay.arrived > t ? "arriving" : partOf(b, l) || HOLDS[l.holds] || b.tag;
            c.fillStyle = fill(of);
            c.fillRect(at.x + l.offset / b.bytes * at.width, at.y, Math.max(0.6, l.bytes / b.bytes * at.width), ROW - 3);
            if (l.bytes < b.bytes / 2 || of === "activation")
                continue; // too little of the block to name it after
            look = of;
            name = groupName(rank, l.group) || l.holds;
        }
    if (at.width > 2) {
        c.strokeStyle = "#8a929c";
        c.lineWidth = 1;
        c.strokeRect(Math.round(at.x) + 0.5, at.y - 0.5, Math.round(at.width) - 1, ROW - 2);
    }
    for (const words of [name, name.replace("block.", "")])
        if (words && at.width > textWidth(c, words) + 4)
            return textOn(c, words, at.x + at.width / 2, at.y + 9.5, look);
}

function pieceOf(place, [id, offset, bytes]) {
    const at = place[id];
    if (!at)
        return at;
    const width = Math.max(3, bytes / at.block.bytes * at.width);
    return {x: Math.min(at.x + offset / at.block.bytes * at.width, at.right - width), y: at.y, width,
            tier: at.block.tier, id};
}

// How much of an operation is behind: nothing while it waits for another rank.
function doneOf(o, t) {
    const from = o.joined || o.begin;
    return Math.min(1, Math.max(0, (t - from) / Math.max(o.end - from, 1e-3)));
}

// Frames what an operation reads, and moves an edge through what it writes.
function paintOp(c, o, place, t) {
    const done = doneOf(o, t);
    c.strokeStyle = c.fillStyle = INK;
    for (const read of o.reads || []) {
        const p = pieceOf(place, read);
        c.lineWidth = 2;
        if (p)
            c.strokeRect(p.x + 1, p.y - 0.5, Math.max(1, p.width - 2), ROW - 2);
    }
    for (const written of o.writes || []) {
        const p = pieceOf(place, written);
        if (!p)
            continue;
        c.globalAlpha = 0.3;
        c.fillRect(p.x, p.y, p.width * done, ROW - 3);
        c.globalAlpha = 1;
        c.fillRect(p.x + Math.max(0, p.width * done - 3), p.y - 2, 3, ROW + 1);
    }
}

// Dots on their way from what is read to what is written, if these are in two places. A way runs
// between the rows.
function paintTravel(c, o, place, t, named) {
    const reads = (o.reads || []).map(p => pieceOf(place, p)).filter(p => p && p.width);
    const writes = (o.writes || []).map(p => pieceOf(place, p)).filter(p => p && p.width);
    const done = t < o.joined ? -1 : doneOf(o, t), {sent} = o.moved, bus = NAMES + BUS - 4;
    const largest = list => list.sort((a, b) => b.width - a.width).slice(0, 1);
    const bytes = sent || o.moved.in || o.moved.out || o.moved.read || o.moved.written;
    if (!bytes || o.kind === "unit")
        return; // what a unit sends inside of its computation has no way here
    const label = named ? bytesText(bytes) : "";
    const middle = p => [p.x + p.width / 2, p.y + ROW / 2 - 1.5], above = p => [p.x + p.width / 2, p.y - 2];
    if (sent) {
        for (const p of largest(reads))
            paintWay(c, [middle(p), above(p), [bus, p.y - 2]], done * 2, done < 0.5 ? label : "");
        for (const p of largest(writes))
            paintWay(c, [[bus, p.y - 2], above(p), middle(p)], done * 2 - 1, done < 0.5 ? "" : label);
        return;
    }
    for (const from of largest(reads))
        for (const to of largest(writes))
            if (from.tier !== to.tier)
                paintWay(c, [middle(from), above(from), [to.x + to.width / 2, from.y - 2], middle(to)], done, label);
}

// A line with an arrow at its end, and a dot where `done` of it is behind.
function paintWay(c, points, done, label) {
    const [x1, y1] = points[points.length - 1], [x0, y0] = points[points.length - 2];
    const angle = Math.atan2(y1 - y0, x1 - x0);
    c.strokeStyle = c.fillStyle = INK;
    c.lineWidth = 1.2;
    c.beginPath();
    points.forEach(p => c.lineTo(...p));
    c.stroke();
    c.beginPath();
    c.moveTo(x1, y1);
    for (const turn of [2.7, -2.7])
        c.lineTo(x1 + 7 * Math.cos(angle + turn), y1 + 7 * Math.sin(angle + turn));
    c.fill();
    if (done < 0 || done > 1)
        return;
    const [x, y] = pointOn(points, done);
    c.beginPath();
    c.arc(x, y, 5, 0, 7);
    c.fill();
    if (label)
        textOn(c, label, Math.max(x, NAMES + 24), y - 7);
}

function pointOn(points, done) {
    const lengths = points.slice(1).map((p, i) => Math.hypot(p[0] - points[i][0], p[1] - points[i][1]));
    let left = done * lengths.reduce((sum, n) => sum + n, 0), i = 0;
    while (i < lengths.length - 1 && left > lengths[i])
        left -= lengths[i++];
    const part = lengths[i] ? left / lengths[i] : 0, [x0, y0] = points[i], [x1, y1] = points[i + 1];
    return [x0 + (x1 - x0) * part, y0 + (y1 - y0) * part];
}
