// Words, looks and the strokes of which the pictures are made.
//
// A picture's functions draw into a context c, for a run, within a plot: the place where its time is.
// Read next: time.js and buffers.js, the pictures.
"use strict";

addEventListener("error", e => {
    const trouble = document.getElementById("trouble");
    trouble.hidden = false;
    trouble.textContent += "This page cannot show its traces: " + e.message + " ";
});

// The runs, and what is shown of them: the moment, and the part of the step from `from`.
const page = {runs: [], events: [], event: -1, at: 0, zoom: 1, from: 0, playing: 0, printing: false, scale: 1, fills: {}, widest: {}};

// ---- words and looks ----

const TAG_WORDS = {param: "parameters", grad: "gradients", optimizer: "optimizer",
                   activation: "activations", workspace: "workspace", comm: "communication"};
const TIER_WORDS = {device: "device", cpu: "host", nvme: "disk"};
const AXIS_WORDS = {dp: "data-parallel", tp: "tensor-parallel", pp: "in the pipeline", replica: "of other replicas"};
const MOVED_WORDS = {sent: "sent to other ranks", in: "to the device", out: "from the device",
                     read: "from disk", written: "to disk", kernel: "read and written by computation"};

// What each hop does, by its name.
const MEANS = {
    all_gather: "each rank sends its shard to the others, so that all have the whole",
    reduce_scatter: "ranks add up their gradients, and each keeps its shard of the sum",
    all_reduce: "ranks add up their gradients, and each has the whole sum",
    all_to_all: "ranks exchange the parts of their gradients",
    grad_norm: "sums the squares of the gradient, for its norm",
    adamw: "the optimizer makes new weights of the gradient",
    host_adamw: "the optimizer makes new weights, on the host's CPU",
    h2d: "copies from the host's memory to the device",
    d2h: "copies from the device to the host's memory",
};

// A look is a colour and a pattern, so that either suffices. Pieces of a kind of state look like it.
const LOOKS = {
    param: ["#1f5fa8", "solid"], grad: ["#c96f0c", "slash"], optimizer: ["#2d8a4e", "lines"],
    activation: ["#8a3f9e", "dots"], workspace: ["#7c858f", "cross"], comm: ["#b8432f", "back"],
    gathered: ["#84b4e4", "solid"], bucket: ["#eba95c", "slash"], renewed: ["#1f5fa8", "cross"],
    arriving: ["#1f5fa8", "stripes"], forward: ["#39424e", "solid"], backward: ["#39424e", "slash"],
    other: ["#a9b0b8", "solid"], waits: ["#5a6472", "points"],
};
const INK = "#1c2430", QUIET = "#5a6472", LINE = "#dfe3e7", MARK = "#b3261e";
const LEFT = 116, RIGHT = 10; // of a picture: where time begins and ends
const FONT = "11px system-ui, 'DejaVu Sans', sans-serif";

// The lines of a pattern, in a tile of 8 x 8 units.
function strokePattern(c, pattern) {
    const lines = {slash: [[-2, 2, 2, -2], [0, 8, 8, 0], [6, 10, 10, 6]],
                   back: [[-2, 6, 2, 10], [0, 0, 8, 8], [6, -2, 10, 2]],
                   lines: [[0, 2, 8, 2], [0, 6, 8, 6]], cross: [[0, 4, 8, 4], [4, 0, 4, 8]]};
    lines.stripes = lines.slash;
    for (const [x0, y0, x1, y1] of lines[pattern] || []) {
        c.beginPath();
        c.moveTo(x0, y0);
        c.lineTo(x1, y1);
        c.stroke();
    }
    for (const x of pattern === "points" ? [0, 4] : [])
        c.fillRect(x, 0, 2, 8);
    if (pattern === "dots")
        for (const [x, y] of [[2, 2], [6, 6]])
            c.fillRect(x - 1, y - 1, 2, 2);
}

function makeTile(look, pale) {
    const [color, pattern] = LOOKS[look];
    const light = pale || pattern === "stripes" || pattern === "points";
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(8 * page.scale);
    const c = tile.getContext("2d");
    c.scale(tile.width / 8, tile.width / 8);
    c.fillStyle = "#fff";
    c.fillRect(0, 0, 8, 8);
    c.globalAlpha = light ? 0.14 : 1;
    c.fillStyle = color;
    if (pattern !== "points")
        c.fillRect(0, 0, 8, 8);
    c.globalAlpha = pale ? 0.35 : light ? 1 : 0.7;
    c.fillStyle = c.strokeStyle = light ? color : "#fff";
    c.lineWidth = light && !pale ? 2 : 1;
    strokePattern(c, pattern);
    return tile;
}

// What to fill with. A tile has as many pixels as the screen shows of it, which draws fast.
function fill(look, pale) {
    const key = look + (pale ? " pale " : " ") + page.scale;
    if (!page.fills[key]) {
        const tile = makeTile(look, pale);
        page.fills[key] = document.createElement("canvas").getContext("2d").createPattern(tile, "repeat");
        page.fills[key].setTransform(new DOMMatrix([8 / tile.width, 0, 0, 8 / tile.width, 0, 0]));
    }
    return page.fills[key];
}

// ---- numbers as text ----

function bytesText(n) {
    for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
        if (n >= size)
            return (n / size).toFixed(n >= 100 * size ? 0 : n >= 10 * size ? 1 : 2) + " " + unit;
    return n + " B";
}

function timeText(us) {
    return us >= 1e6 ? (us / 1e6).toFixed(2) + " s" : us >= 1e3 ? (us / 1e3).toFixed(2) + " ms" : us.toFixed(1) + " µs";
}

function countText(n, word) {
    return n + " " + word + (n === 1 ? "" : "s");
}

// ---- drawing ----

function xOf(run, plot, t) {
    return LEFT + (t / run.length - page.from) * page.zoom * plot.width;
}

function timeAt(run) {
    return page.at * run.length + 0.0005;
}

function text(c, words, x, y, color = INK, align = "left") {
    c.fillStyle = color;
    c.textAlign = align;
    c.fillText(words, x, y);
}

// A word on a pattern, with a halo: white on a look's colour, or dark on a light ground.
function textOn(c, words, x, y, look) {
    const light = !look || ["arriving", "gathered", "bucket", "other"].includes(look);
    c.strokeStyle = light ? "rgba(255,255,255,0.9)" : LOOKS[look][0];
    c.lineWidth = 3;
    c.lineJoin = "round";
    c.textAlign = "center";
    c.strokeText(words, x, y);
    text(c, words, x, y, light ? INK : "#fff", "center");
}

const widths = {};
function textWidth(c, words) {
    return widths[words] ||= c.measureText(words).width;
}

// Cuts [begin, end] of time to what the picture shows, in whole pixels; null: nothing of it.
function spanOf(run, plot, begin, end) {
    const x0 = Math.max(LEFT, xOf(run, plot, begin)), x1 = Math.min(LEFT + plot.width, xOf(run, plot, end));
    return x1 < x0 ? null : [Math.round(x0), Math.max(Math.round(x1) - Math.round(x0), 1)];
}

function bar(c, run, plot, begin, end, y, h, look) {
    const span = spanOf(run, plot, begin, end);
    if (!span)
        return null;
    fillSpan(c, span, y, h, look);
    return span;
}

// Fills with a look, or a colour; what is too narrow for a pattern has its colour alone.
function fillSpan(c, span, y, h, look) {
    c.fillStyle = look.startsWith("#") ? look : span[1] < 3 ? LOOKS[look][0] : fill(look);
    c.fillRect(span[0], y, span[1], h);
}

// Round steps of time below a picture.
function paintAxis(c, run, plot, y) {
    const shown = run.length / page.zoom;
    const least = shown * 60 / plot.width, ten = 10 ** Math.floor(Math.log10(least));
    const step = ten * [1, 2, 5, 10].find(n => n * ten >= least);
    for (let t = Math.ceil(page.from * run.length / step) * step; t <= page.from * run.length + shown; t += step) {
        const x = xOf(run, plot, t);
        c.fillStyle = LINE;
        c.fillRect(x, 0, 1, y);
        if (x < LEFT + plot.width - 24)
            text(c, t ? timeText(t).replace(/\.?0+ /, " ") : "0", x, y + 11, QUIET, t ? "center" : "left");
    }
}
