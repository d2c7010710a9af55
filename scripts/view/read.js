// Reads what `./train --trace-zero` wrote, and answers questions about it.
//
// The traces are in the page, a JSON text for each rank. readRuns makes runs of them: a run has ranks,
// a rank its operations (op by id, ops by time, queue by name), blocks with their lives, its memory
// by tier over time, and what it had sent when. Times are microseconds from the first rank's begin,
// and bytes are bytes. Nothing here draws. Read next: look.js.
"use strict";

const TAGS = ["param", "grad", "optimizer", "activation", "workspace", "comm"];
const TIERS = ["device", "cpu", "nvme"];
const QUEUES = ["compute", "comm", "in", "out", "host compute", "host in", "host out"];
const BYTES_OF = {fp32: 4, bf16: 2, fp16: 2};

// ---- reading ----

// Of a sorted list: how many elements are at or before t.
function countUntil(times, t) {
    let low = 0, high = times.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (times[middle] <= t)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

function readRuns() {
    const files = [[], []];
    for (const element of document.querySelectorAll("script.trace")) {
        const file = JSON.parse(element.textContent);
        if (file.format !== "zero.c trace 1")
            throw new Error("a file's format is " + file.format + ", not zero.c trace 1");
        files[element.dataset.run].push(file);
    }
    return files.filter(list => list.length).map(readRun);
}

function readRun(files) {
    files.sort((a, b) => a.rank - b.rank);
    const starts = files.map(f => f.start), first = Math.min(...starts);
    const long = Math.max(...files.map(f => Math.max(...f.operations.map(o => o.end))));
    // Ranks of several machines have no common clock: then each begins at 0.
    const common = (Math.max(...starts) - first) * 1e6 < long;
    const run = {info: files[0].run, step: files[0].step, pictures: [], rank: 0, common};
    run.ranks = files.map(f => readRank(f, common ? (f.start - first) * 1e6 : 0));
    run.length = Math.max(...run.ranks.map(r => r.end));
    for (const rank of run.ranks)
        finishRank(run, rank);
    if (common)
        run.ranks.forEach(rank => joinRanks(run, rank));
    return run;
}

// A collective begins on each rank, and moves bytes when the last one is there: joined says when. It is
// known if the traces of all its ranks are in the page, and all have as many of its kind.
function joinRanks(run, rank) {
    const axes = ["replica", "dp", "tp", "pp"], place = rank.file.place || {}, lists = new Map();
    const keyOf = o => [o.over, o.chain, o.name, o.group, o.queue].join();
    for (const o of rank.ops)
        if (o.moved.sent && axes.includes(o.over) && o.kind !== "unit")
            lists.set(keyOf(o), [...lists.get(keyOf(o)) || [], o]);
    for (const [key, list] of lists) {
        const {over, others} = list[0];
        const peers = run.ranks.filter(r => axes.every(axis => axis === over || (r.file.place || {})[axis] === place[axis]));
        const same = peers.map(peer => peer.ops.filter(o => o.moved.sent && o.kind !== "unit" && keyOf(o) === key));
        if (peers.length === others + 1 && same.every(ops => ops.length === list.length))
            list.forEach((o, i) => o.joined = Math.min(o.end, Math.max(...same.map(ops => ops[i].begin))));
    }
}

function readRank(file, shift) {
    const rank = {file, number: file.rank, shift, op: [], end: 0};
    for (const o of file.operations) {
        o.begin += shift;
        o.end += shift;
        o.moved = o.moved || {};
        o.over = o.over || o.moved.over;
        o.others = o.others || o.moved.others;
        rank.op[o.id] = o;
        rank.end = Math.max(rank.end, o.end);
    }
    for (const b of file.blocks)
        for (const when of ["reserved", "freed"])
            if (when in b)
                b[when] += shift;
    return rank;
}

function finishRank(run, rank) {
    const file = rank.file;
    rank.block = [];
    for (const b of file.blocks)
        rank.block[b.id] = Object.assign(b, {lives: []});
    rank.ops = rank.op.filter(o => o).sort((a, b) => a.begin - b.begin);
    rank.lives = file.lives.map(l => readLife(run, rank, l));
    rank.queueNames = [...new Set([...QUEUES, ...rank.ops.map(o => o.queue)])]
        .filter(q => rank.ops.some(o => o.queue === q));
    rank.queue = {};
    for (const q of rank.queueNames)
        rank.queue[q] = rank.ops.filter(o => o.queue === q);
    rank.memory = {};
    for (const tier of TIERS)
        rank.memory[tier] = readMemory(rank, tier);
    rank.tiers = TIERS.filter(tier => rank.memory[tier].peak > 0);
    rank.wholes = rank.block.flatMap(b => readStays(run, rank, b)).filter(s => s.whole);
    rank.keeps = file.groups.map((_, g) => rank.block.find(b => b && b.tag === "param" && b.lives.some(l => l.group === g)));
    rank.published = rank.ops.filter(o => o.chain === "publish");
    rank.computed = rank.ops.filter(o => o.group >= 0 && (o.kind === "unit" || (o.chain === "update" && /adamw/.test(o.name) && /compute/.test(o.queue))));
    rank.sent = readTraffic(rank);
}

function readLife(run, rank, l) {
    const block = rank.block[l.block];
    const life = Object.assign(l, {
        block,
        begin: l.from >= 0 ? rank.op[l.from].begin : block.reserved || 0,
        end: l.until >= 0 ? rank.op[l.until].end : block.freed || run.length,
    });
    block.lives.push(life);
    return life;
}

// The times that a group's weights stay in a block of the device. Pieces of them have lives of their
// own, as some are read longer than others; a stay is that of pieces that overlap in time.
function readStays(run, rank, block) {
    const stays = [];
    const lives = block.tier === "device" ? block.lives.filter(l => l.holds === "weights" && l.group >= 0) : [];
    lives.sort((a, b) => a.begin - b.begin);
    for (const life of lives) {
        let stay = stays[stays.length - 1];
        if (!stay || stay.group !== life.group || life.begin > stay.end)
            stays.push(stay = {block, group: life.group, begin: life.begin, end: life.end, from: life.from, until: life.until, extent: 0});
        if (life.end > stay.end)
            Object.assign(stay, {end: life.end, until: life.until});
        stay.extent = Math.max(stay.extent, life.offset + life.bytes);
        life.stay = stay;
    }
    for (const stay of stays)
        finishStay(run, rank, stay);
    return stays;
}

function finishStay(run, rank, stay) {
    stay.whole = stay.extent >= rank.file.groups[stay.group].numel * BYTES_OF[run.info.dtype];
    stay.arrived = stay.begin;
    for (const o of stay.from >= 0 ? rank.ops : [])
        if (o.chain === "fetch" && o.group === stay.group && o.begin >= stay.begin && o.end <= stay.end)
            stay.arrived = Math.max(stay.arrived, o.end);
}

// What a buffer of communication holds: weights that are gathered or on their way, or gradients.
function partOf(block, life) {
    return block.tag === "comm" ? {weights: "gathered", gradient: "bucket"}[life.holds] : undefined;
}

// Bytes of a tier by tag over time: what blocks have reserved, and what of that is in use.
function readMemory(rank, tier) {
    const changes = [];
    const change = (t, tag, bytes, used, part) => changes.push({t, tag, bytes, used, part});
    for (const b of rank.block)
        if (b && b.tier === tier) {
            change("reserved" in b ? b.reserved : -Infinity, b.tag, b.bytes, 0);
            if ("freed" in b)
                change(b.freed, b.tag, -b.bytes, 0);
            for (const l of b.lives) {
                change(l.from < 0 ? -Infinity : l.begin, b.tag, 0, l.bytes, partOf(b, l));
                if (l.until >= 0)
                    change(l.end, b.tag, 0, -l.bytes, partOf(b, l));
            }
        }
    changes.sort((a, b) => a.t - b.t || a.bytes - b.bytes);
    return sumChanges(changes);
}

function sumChanges(changes) {
    const m = {times: [], total: [], bytes: {}, used: {}, peak: 0, peakOf: {}};
    const now = {}, used = {gathered: 0, bucket: 0};
    m.used.gathered = [], m.used.bucket = [];
    for (const tag of TAGS)
        now[tag] = used[tag] = m.peakOf[tag] = 0, m.bytes[tag] = [], m.used[tag] = [];
    let total = 0;
    changes.forEach((c, i) => {
        now[c.tag] += c.bytes;
        used[c.tag] += c.used;
        if (c.part)
            used[c.part] += c.used;
        total += c.bytes;
        if (i + 1 < changes.length && changes[i + 1].t === c.t)
            return; // the same moment goes on
        m.times.push(c.t);
        m.total.push(total);
        m.peak = Math.max(m.peak, total);
        for (const tag of TAGS) {
            m.bytes[tag].push(now[tag]);
            m.used[tag].push(used[tag]);
            m.peakOf[tag] = Math.max(m.peakOf[tag], now[tag]);
        }
        for (const part of ["gathered", "bucket"])
            m.used[part].push(used[part]);
    });
    return m;
}

const WEIGHT_CHAINS = ["fetch", "publish"], GRADIENT_CHAINS = ["accumulate", "reduce"];

function trafficKind(o) {
    return WEIGHT_CHAINS.includes(o.chain) ? "weights" : GRADIENT_CHAINS.includes(o.chain) ? "gradients" : "rest";
}

// What had been sent at the end of each operation, by what it was; and moved between tiers.
function readTraffic(rank) {
    const kinds = ["weights", "gradients", "rest", "sent", "in", "out", "read", "written"];
    const t = {times: [], sum: {}, step: {}};
    for (const kind of kinds)
        t.sum[kind] = [], t.step[kind] = 0;
    for (const o of [...rank.ops].sort((a, b) => a.end - b.end)) {
        for (const kind of kinds)
            t.step[kind] += o.moved[kind] || 0;
        t.step[trafficKind(o)] += o.moved.sent || 0;
        t.times.push(o.end);
        for (const kind of kinds)
            t.sum[kind].push(t.step[kind]);
    }
    return t;
}

// ---- questions to a rank ----

function memoryAt(m, kind, tag, t) {
    const i = countUntil(m.times, t);
    return i ? m[kind][tag][i - 1] : 0;
}

function runningAt(rank, t) {
    const running = [];
    for (const q of rank.queueNames)
        for (const o of rank.queue[q]) {
            if (o.begin > t)
                break;
            if (o.end > t)
                running.push(o);
        }
    return running;
}

function groupName(rank, g) {
    return g >= 0 && rank.file.groups[g] ? plainName(rank.file.groups[g].name) : "";
}

// The group "ends" has the parameters of the embedding and of the head.
function plainName(name) {
    return name.replace(/\bends\b/, "embedding, head");
}

function unitName(rank, u) {
    return rank.file.units[u - rank.file.first_unit] || "";
}

// A unit's or a hop's name with what it is about.
function opName(rank, o) {
    if (o.kind === "unit")
        return (o.pass || "") + " of " + unitName(rank, o.unit);
    const of = groupName(rank, o.group);
    return o.name + (of ? " of " + of : "");
}

function lookOf(o) {
    if (o.kind === "unit")
        return o.pass === "backward" ? "backward" : "forward";
    return {fetch: "param", publish: "param", accumulate: "grad", reduce: "grad", update: "optimizer"}[o.chain] || "other";
}

// Groups of the model's blocks: the embedding and the head have a slot of their own.
function isBlock(rank, run, g) {
    return rank.file.units.some((_, i) => {
        const u = i + rank.file.first_unit;
        return u > 0 && u <= run.info.layers && (rank.groupOfUnit[u] ?? -1) === g;
    });
}

// The most blocks whose weights were whole, or on their way, at once; and over time: both, and those on their way.
function wholeBlocks(run, rank) {
    if (rank.wholeBlocks)
        return rank.wholeBlocks;
    rank.groupOfUnit = {};
    for (const o of rank.ops)
        if (o.kind === "unit")
            rank.groupOfUnit[o.unit] = o.group;
    const changes = [];
    for (const l of rank.wholes.filter(l => isBlock(rank, run, l.group))) {
        const arrives = l.arrived > l.begin ? 1 : 0;
        changes.push([l.from < 0 ? -Infinity : l.begin, 1, arrives], [l.until < 0 ? Infinity : l.end, -1, 0]);
        if (arrives)
            changes.push([l.arrived, 0, -1]);
    }
    changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let n = 0, arriving = 0;
    const steps = changes.map(([t, d, a]) => [t, n += d, arriving += a]);
    return rank.wholeBlocks = {steps, most: Math.max(0, ...steps.map(s => s[1]))};
}

// How many arrivals of weights had another unit's computation beside them.
function arrivalsBeside(rank) {
    const units = rank.ops.filter(o => o.kind === "unit");
    const arrivals = rank.wholes.filter(l => l.arrived > l.begin);
    const beside = arrivals.filter(l => units.some(o => o.group !== l.group && o.begin < l.arrived && o.end > l.begin));
    return {all: arrivals.length, beside: beside.length};
}

// By which collective gradients are summed, and how many of these had another unit's backward pass beside them.
function reducesBeside(rank) {
    const sums = rank.ops.filter(o => GRADIENT_CHAINS.includes(o.chain) && ["all_reduce", "reduce_scatter", "all_to_all"].includes(o.name));
    const units = rank.ops.filter(o => o.kind === "unit" && o.pass === "backward");
    const beside = sums.filter(s => units.some(o => o.group !== s.group && o.begin < s.end && o.end > s.begin));
    return {name: [...new Set(sums.map(o => o.name))].join(", "), all: sums.length, beside: beside.length};
}

// ---- ZeRO's formula (Rajbhandari et al. 2020, sections 5 and 7) ----

function formulaOf(run, rank) {
    const {stage, dtype, micro_batches: m} = run.info;
    const others = rank.ops.filter(o => o.over === "dp").map(o => o.others);
    const n = others.length ? Math.max(...others) + 1 : run.info.dp;
    const numel = groups => groups.reduce((sum, g) => sum + g.numel, 0);
    const psi = numel(rank.file.groups), trained = numel(rank.file.groups.filter(g => !g.frozen));
    const kept = rank.file.groups.reduce((sum, g) => sum + (g.packed || g.numel * BYTES_OF[dtype]), 0);
    const weight = BYTES_OF[dtype], grad = BYTES_OF[run.info.grad_dtype || dtype], state = dtype === "fp32" ? 8 : 12;
    const part = (sharded, of) => sharded ? of / n : of;
    const times = {weights: [0, 1, 1, 2 * m][stage], gradients: [2, 1, m, m][stage]};
    const sent = (count, of, size) => count * of * size * (n - 1) / n;
    return {
        n, psi, trained, weight, grad, state, times,
        param: part(stage >= 3, kept),
        grads: part(stage >= 2, trained) * grad,
        optimizer: part(stage >= 1, trained) * state,
        weights: sent(times.weights, stage === 3 ? psi : trained, weight),
        gradients: sent(times.gradients, trained, grad),
    };
}
