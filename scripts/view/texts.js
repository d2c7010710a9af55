// What the page says in words: titles, keys, the chosen operation, and the tables of numbers.
//
// Read next: page.js.
"use strict";

// ---- texts ----

function element(name, words, className) {
    const e = document.createElement(name);
    e.textContent = words;
    if (className)
        e.className = className;
    return e;
}

function writeTitle(run) {
    const {info} = run, lost = run.ranks.reduce((sum, rank) => sum + (rank.file.lost || 0), 0);
    const offload = info.offload && info.offload.length ? ", with " + info.offload.map(w => TAG_WORDS[w] || w).join(", ") + " offloaded" : "";
    const grid = [info.tp > 1 ? "tp " + info.tp : "", info.pp > 1 ? "pp " + info.pp : ""].filter(w => w).join(", ");
    run.article.querySelector("h2").textContent = "ZeRO stage " + info.stage + offload + ": " + info.model + " in " +
        info.dtype + ", " + countText(info.ranks, "rank") + (grid ? " (" + grid + ")" : "") + ", " +
        countText(info.micro_batches, "micro-batch").replace("batchs", "batches");
    run.article.querySelector(".command").replaceChildren("step " + run.step + " of ", element("code", info.command || "./train"),
        run.common ? "" : " (the ranks' clocks differ: each begins at 0)", lost ? ". The files lack " + countText(lost, "operation") + "." : "");
}

// What a newcomer should see in the main picture, with the numbers of this run.
function writeSees(run) {
    const rank = run.ranks[run.rank], p = run.article.querySelector(".sees"), {all, beside} = arrivalsBeside(rank);
    const {most} = wholeBlocks(run, rank);
    const words = [run.info.stage < 3 || all ? keepsWords(run.info.stage, all) : "", sumsWords(run, rank), offloadWords(run, rank)];
    if (!all)
        return p.replaceChildren(words.filter(w => w).join(" "));
    const ways = run.info.stage >= 3 ? "all_gather brings a unit's weights from all ranks' shards" : "A unit's weights are copied to the device";
    p.replaceChildren(ways + " just before it computes, and they are given up after. Measured: ",
        element("b", beside + " of " + all), " arrivals ran while another unit computed, and at most ",
        element("b", countText(most, "block")), " were whole or arriving at once. Formula: prefetch + 1 = ",
        element("b", String(run.info.prefetch + 1)), ". " + words.filter(w => w).join(" "));
}

// What every rank keeps, at a stage; with arrivals, weights are not whole.
function keepsWords(stage, arrivals) {
    const shard = ["", "its shard of the optimizer's state. The buffer of its gradients stays whole.",
                   "its shard of the gradients and of the optimizer's state."][stage];
    if (arrivals)
        return stage === 0 || stage === 3 ? "" : "Of the rest every rank keeps " + shard;
    return stage === 0 ? "Every rank keeps all weights, all gradients and the whole optimizer state." :
        "Every rank keeps all weights whole, but only " + shard;
}

// How gradients are summed, by which collective, and what becomes of new weights.
function sumsWords(run, rank) {
    const {stage} = run.info, sums = reducesBeside(rank);
    if (!sums.all)
        return "";
    const whose = sums.name === "all_reduce" ? " sums a block's gradients over the ranks" :
        " sums a block's gradients over the ranks, to each rank its shard,";
    const when = " as soon as its backward pass is done; " + sums.beside + " of " + sums.all + " ran while another block ran backward.";
    const last = run.info.micro_batches > 1 && stage < 2 ? " In the last micro-batch " : " ";
    const then = rank.published.some(o => o.name === "all_gather") ?
        " Then each rank updates its shard of the weights, and all_gather sends the new weights to all ranks." :
        stage === 0 ? " Then every rank updates all weights." : " Each rank updates its own shard.";
    return last.trimStart() + sums.name + whose + when + then;
}

// Where things lie, if not all on the device; and that an update is of the step before's gradients.
function offloadWords(run, rank) {
    if (!(run.info.offload || []).length)
        return "";
    const blocks = rank.block.filter(b => b), names = {device: "the device", cpu: "the host", nvme: "the disk"};
    const placeOf = tag => names[TIERS.findLast(tier => blocks.some(b => b.tag === tag && b.tier === tier))];
    const places = [["optimizer state", "optimizer"], ["weights' shards", "param"], ["gradients' shards", "grad"]]
        .filter(([, tag]) => placeOf(tag)).map(([words, tag]) => words + " on " + placeOf(tag));
    if (run.info.stage < 3)
        places.forEach((words, i) => places[i] = words.replace(/s' shards/, "s"));
    const away = placeOf("activation");
    places.push("activations on " + (away === "the device" || !away ? "the device" : away + ", those in computation on the device"));
    const backward = rank.ops.find(o => o.kind === "unit" && o.pass === "backward");
    const first = rank.ops.find(o => o.chain === "update");
    const before = first && backward && first.begin < backward.begin;
    return "Kept: " + places.join(", ") + "." + (before ?
        " The step begins with the update from the gradients of the step before, block by block beside the forward pass." : "");
}

function keyOf(run, name, entries) {
    const key = run.article.querySelector("." + name + " .key");
    key.replaceChildren(...entries.map(([look, words, pale]) => {
        const span = document.createElement("span"), image = document.createElement("img");
        const canvas = document.createElement("canvas");
        canvas.width = 44;
        canvas.height = 24;
        const c = canvas.getContext("2d");
        c.scale(2, 2);
        c.fillStyle = fill(look, pale);
        c.fillRect(0, 0, 22, 12);
        image.src = canvas.toDataURL();
        image.alt = "";
        span.append(image, words);
        return span;
    }));
}

function writeKeys(run) {
    const {ranks} = run, gathers = ranks.some(r => r.wholes.some(s => s.block.tag === "comm"));
    const holds = part => ranks.some(r => r.tiers.some(t => r.memory[t].used[part].some(n => n)));
    const tags = TAGS.filter(tag => ranks.some(r => r.tiers.some(t => r.memory[t].peakOf[tag])));
    keyOf(run, "weights", [
        ranks.some(r => r.wholes.some(s => s.block.tag !== "comm")) ? ["param", "whole"] : null,
        gathers ? ["gathered", "whole, in a buffer"] : null,
        ranks.some(r => r.wholes.some(s => s.arrived > s.begin)) ? ["arriving", "arriving"] : null,
        ranks.some(r => r.published.length) ? ["renewed", "new weights arrive"] : null,
        ["forward", "F: unit computes forward"], ["backward", "B: backward"], ["optimizer", "U: update"]].filter(e => e));
    const key = run.article.querySelector(".weights .key");
    if (gathers)
        key.append("thin line: this rank's shard, kept all the time (dashed: on the host, dotted: on the disk). ");
    if (ranks[0].file.groups.some(g => g.name === "ends"))
        key.append("“embedding, head” (the group ends): the weights outside of the blocks, used by the first and by the last unit.");
    keyOf(run, "memory", [...tags.map(tag => [tag, TAG_WORDS[tag] + (tag === "comm" ? ": other" : "")]),
        ...[["gathered", "communication: gathered weights"], ["bucket", "communication: gradient buckets"]].filter(([part]) => holds(part))]);
    const joins = ranks.some(r => r.ops.some(o => o.joined > o.begin));
    keyOf(run, "lanes", [["forward", "forward"], ["backward", "backward"], ["param", "weights move"], ["grad", "gradients move"],
                         ["optimizer", "update"], ["other", "other"],
                         ...joins ? [["grad", "pale: waits for another rank's part", true]] : []]);
}

// What an operation reads or writes: what the block holds then, and which block it is.
function blockWords(rank, o, [id, offset]) {
    const b = rank.block[id];
    const life = b.lives.find(l => l.from >= 0 && l.begin <= o.begin && l.end >= o.end && l.offset <= offset && l.offset + l.bytes > offset);
    const holds = life ? life.holds + (groupName(rank, life.group) ? " of " + groupName(rank, life.group) : "") + " in “" + plainName(b.purpose) + "”" : plainName(b.purpose);
    return holds + " (" + TIER_WORDS[b.tier] + ", ";
}

// The same of all pieces; those with the same words are one.
function blocksWords(rank, o, pieces = []) {
    const bytesOf = new Map();
    for (const p of pieces) {
        const words = blockWords(rank, o, p);
        bytesOf.set(words, (bytesOf.get(words) || 0) + p[2]);
    }
    const most = [...bytesOf].sort((a, b) => b[1] - a[1]), more = most.length - 2;
    return most.slice(0, 2).map(([words, bytes]) => words + bytesText(bytes) + ")").join(", ") +
        (more > 0 ? " and " + more + " more" : "") || "no buffer that is traced";
}

function waitedWords(rank, o) {
    const after = (o.after || []).map(id => rank.op[id]).filter(b => b && b.queue !== o.queue).map(b => opName(rank, b));
    const last = after.length ? "after " + after.join(", ") : "";
    if (!(o.waited > 0))
        return "nothing" + (last ? "; it came " + last : "");
    return timeText(o.waited) + (o.waited > o.begin + 1 ? ", some of it in the step before" : "") + (o.for ? " for “" + o.for + "”" : "") + (last ? ", " + last : "");
}

function writeChosen(run) {
    const box = run.article.querySelector(".chosen"), rank = run.ranks[run.rank], o = run.chosen, t = timeAt(run);
    if (!o)
        return box.replaceChildren(element("h3", "The step begins"), element("p", "Press → for the first event of rank " + rank.number + "."));
    const state = t < o.end ? "runs" : "has ended";
    const moved = Object.keys(MOVED_WORDS).filter(k => o.moved[k]).map(k => bytesText(o.moved[k]) + " " +
        (k === "sent" && o.over ? "sent to " + countText(o.others, "other rank") + ", " + (AXIS_WORDS[o.over] || o.over) : MOVED_WORDS[k]));
    const rows = [
        ["queue", o.queue + " of rank " + rank.number + (o.micro >= 0 && o.pass ? ", micro-batch " + (o.micro + 1) + ", " + o.pass : "")],
        ["time", timeText(o.end - o.begin) + ", from " + timeText(o.begin) + " to " + timeText(o.end) +
            (o.joined > o.begin ? "; until " + timeText(o.joined) + " it waited for another rank" : "")],
        ["bytes", moved.join(", ") || "none"],
        ["reads", blocksWords(rank, o, o.reads)],
        ["writes", blocksWords(rank, o, o.writes)],
        ["waited for", waitedWords(rank, o)],
    ];
    const list = document.createElement("dl");
    for (const [name, words] of rows)
        list.append(element("dt", name), element("dd", words));
    const where = element("dd", "");
    where.append(element("code", o.where || ""));
    list.append(element("dt", "code"), where);
    const means = o.kind === "hop" && MEANS[o.name] ? ": " + MEANS[o.name] : "";
    const title = element("h3", opName(rank, o) + " " + state);
    box.replaceChildren(title, element("p", (o.chain ? "hop of chain " + o.chain : o.kind === "unit" ? "a unit's computation" : "") + means), list);
}

// A table's cell keeps its exact number for whoever reads the page by program.
function cell(row, className) {
    const td = element("td", "", className);
    row.append(td);
    return n => {
        td.textContent = n === null ? "–" : bytesText(Math.round(n));
        td.dataset.bytes = n === null ? "" : Math.round(n);
    };
}

// Columns of the moment are not printed, and the formula's looks unlike what is measured.
function classOf(head) {
    return /formula/.test(head) ? "formula" : / now$|^now$/.test(head) ? "moment" : "";
}

function table(caption, heads) {
    const t = document.createElement("table"), head = document.createElement("tr"), body = document.createElement("tbody");
    heads.forEach(h => head.append(element("th", h, classOf(h))));
    const thead = document.createElement("thead");
    thead.append(head);
    t.append(element("caption", caption), thead, body);
    return {table: t, body, heads};
}

// Adds a row; returns its cells' setters.
function tableRow(t, name, id, className) {
    const row = element("tr", "", className);
    row.dataset.row = id;
    row.append(element("th", name));
    t.body.append(row);
    return t.heads.slice(1).map(head => cell(row, classOf(head)));
}

function openNumbers(run) {
    const memory = table("Memory of the rank, all tiers together", ["", "now", "in use now", "peak", "ZeRO's formula"]);
    const places = table("Memory by tier", ["", "now", "in use now", "peak"]);
    const sent = table("Sent to other ranks", ["", "until now", "in the step", "ZeRO's formula"]);
    const moved = table("Moved between tiers", ["", "until now", "in the step"]);
    const n = run.numbers = {tags: {}, tiers: {}, sent: {}, moved: {}, note: element("p", ""), agrees: element("p", "")};
    for (const tag of TAGS) {
        n.tags[tag] = tableRow(memory, TAG_WORDS[tag], tag);
        if (tag === "optimizer")
            n.tags.states = tableRow(memory, "model states", "states", "sum");
    }
    n.tags.total = tableRow(memory, "all", "total", "sum");
    for (const tier of TIERS.filter(t => run.ranks.some(r => r.tiers.includes(t))))
        n.tiers[tier] = tableRow(places, TIER_WORDS[tier], tier);
    for (const kind of ["weights", "gradients", "rest"])
        n.sent[kind] = tableRow(sent, kind === "rest" ? "other" : kind, kind);
    n.sent.sent = tableRow(sent, "all", "sent", "sum");
    for (const kind of ["in", "out", "read", "written"])
        n.moved[kind] = tableRow(moved, MOVED_WORDS[kind], kind);
    run.article.querySelector(".numbers").append(memory.table, sent.table, n.note, places.table,
        run.ranks.some(r => ["in", "out", "read", "written"].some(k => r.sent.step[k])) ? moved.table : "", n.agrees);
}

function setMemory(run, rank, t, formula) {
    const n = run.numbers, sum = [0, 0, 0], states = formula.param + formula.grads + formula.optimizer;
    const ofFormula = {param: formula.param, grad: formula.grads, optimizer: formula.optimizer};
    for (const tag of TAGS) {
        const values = ["bytes", "used"].map(kind => rank.tiers.reduce((s, tier) => s + memoryAt(rank.memory[tier], kind, tag, t), 0));
        values.push(rank.tiers.reduce((s, tier) => s + rank.memory[tier].peakOf[tag], 0));
        [...values, ofFormula[tag] ?? null].forEach((v, i) => n.tags[tag][i](v));
        values.forEach((v, i) => sum[i] += v);
        if (tag === "optimizer")
            [...sum, states].forEach((v, i) => n.tags.states[i](v));
    }
    [...sum, null].forEach((v, i) => n.tags.total[i](v));
    for (const tier of Object.keys(n.tiers)) {
        const m = rank.memory[tier], all = kind => TAGS.reduce((s, tag) => s + memoryAt(m, kind, tag, t), 0);
        [all("bytes"), all("used"), m.peak].forEach((v, i) => n.tiers[tier][i](v));
    }
}

function setTraffic(run, rank, t, formula) {
    const n = run.numbers, i = countUntil(rank.sent.times, t);
    const until = kind => i ? rank.sent.sum[kind][i - 1] : 0;
    const ofFormula = {weights: formula.weights, gradients: formula.gradients, rest: null, sent: formula.weights + formula.gradients};
    for (const kind of Object.keys(n.sent))
        [until(kind), rank.sent.step[kind], ofFormula[kind]].forEach((v, k) => n.sent[kind][k](v));
    for (const kind of Object.keys(n.moved))
        [until(kind), rank.sent.step[kind]].forEach((v, k) => n.moved[kind][k](v));
}

// What the formula is, with this run's numbers.
function writeFormula(run, rank, f) {
    const {stage} = run.info, part = sharded => sharded ? "/" + f.n : "";
    const psi = (f.psi / 1e6).toFixed(f.psi < 1e7 ? 3 : 1) + " million";
    const terms = [f.times.weights ? f.times.weights + "Ψ × " + f.weight + " of weights" : "", f.times.gradients + "Ψ × " + f.grad + " of gradients"];
    run.numbers.note.textContent = "Italic: what the formula says. All else is measured. Ψ = " + psi + " parameters on this rank" +
        " (whole). Bytes kept: " + f.weight + "Ψ" + part(stage >= 3) + " parameters, " + f.grad + "Ψ" + part(stage >= 2) +
        " gradients, " + f.state + "Ψ" + part(stage >= 1) + " optimizer: the model states. Bytes sent: (" + terms.filter(w => w).join(" + ") + ") × " +
        (f.n - 1) + "/" + f.n + ". Buffers of computation and communication are not in the formula. " +
        (f.trained < f.psi ? "Only " + (f.trained / f.psi * 100).toFixed(0) + "% of Ψ are trained, and count for gradients, optimizer and what is sent of them; " +
            "of frozen units below those no backward pass reads weights. " : "") +
        "In use now: kept all the time, or still read in this step before it is written anew.";
    const off = TIERS.filter(tier => rank.file.accounts[tier] &&
        rank.file.accounts[tier].total !== TAGS.reduce((s, tag) => s + memoryAt(rank.memory[tier], "bytes", tag, Infinity), 0));
    run.numbers.agrees.textContent = off.length ?
        "The blocks do not add up to the account of: " + off.map(t => TIER_WORDS[t]).join(", ") + "." :
        "The blocks add up to the tiers' own accounts, to the byte.";
}

function writeMoment() {
    const run = page.runs[0], t = page.at * run.length;
    const words = timeText(t) + " of " + timeText(run.length) + ", event " + (page.event + 1) + " of " + page.events.length;
    document.getElementById("moment").textContent = words;
    document.getElementById("zoom").textContent = "×" + page.zoom;
    const slider = document.getElementById("slider");
    slider.value = Math.round(page.at * 1e5);
    slider.setAttribute("aria-valuetext", words);
}
