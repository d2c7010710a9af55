// The page itself: its moment, what moves it, and the pictures that follow.
//
// page.at is the moment, from 0 to 1. Whatever moves it calls show(), which draws the pictures and
// writes the texts of that moment. A picture's still part is drawn again only when the page is
// resized, zoomed or of another rank.
"use strict";

// ---- pictures ----

const PICTURES = [
    {name: "weights", height: weightsHeight, still: paintWeights, now: paintWeightsNow, timed: true},
    {name: "memory", height: memoryHeight, still: paintMemory, now: null, timed: true},
    {name: "lanes", height: lanesHeight, still: paintLanes, now: paintLanesNow, timed: true},
    {name: "buffers", height: buffersHeight, still: null, now: paintBuffers, timed: false},
];

function openPictures(run) {
    for (const kind of PICTURES) {
        const canvas = run.article.querySelector("." + kind.name + " canvas");
        const p = {kind, canvas, c: canvas.getContext("2d"), still: document.createElement("canvas"), drawn: ""};
        run.pictures.push(p);
        if (kind.timed)
            openPointer(run, p);
    }
}

function sizePicture(run, p) {
    const {scale} = page;
    p.width = Math.max(280, p.canvas.parentNode.clientWidth - 2);
    p.height = p.kind.height(run);
    p.canvas.style.height = p.height + 2 + "px";
    for (const canvas of [p.canvas, p.still]) {
        canvas.width = Math.round(p.width * scale);
        canvas.height = Math.round(p.height * scale);
    }
    p.drawn = "";
}

function prepare(c, p) {
    c.setTransform(page.scale, 0, 0, page.scale, 0, 0);
    c.font = FONT;
    c.textBaseline = "alphabetic";
    return {width: p.width - LEFT - RIGHT, full: p.width, height: p.height};
}

function drawPicture(run, p) {
    const key = page.zoom + " " + page.from + " " + run.rank;
    if (p.kind.still && p.drawn !== key) {
        const c = p.still.getContext("2d");
        const plot = prepare(c, p);
        c.clearRect(0, 0, p.width, p.height);
        p.kind.still(c, run, plot);
        p.drawn = key;
    }
    const plot = prepare(p.c, p);
    p.c.clearRect(0, 0, p.width, p.height);
    if (p.kind.still)
        p.c.drawImage(p.still, 0, 0, p.width, p.height);
    if (p.kind.now)
        p.kind.now(p.c, run, plot);
    if (p.kind.timed && !page.printing) {
        p.c.fillStyle = "#000";
        p.c.fillRect(xOf(run, plot, page.at * run.length) - 0.75, 0, 1.5, p.height - 15);
    }
}

function sizeAll() {
    page.scale = page.printing ? 3 : devicePixelRatio || 1;
    for (const run of page.runs)
        for (const p of run.pictures)
            sizePicture(run, p);
    show();
}

// ---- the moment ----

// What the arrow keys step through: the begin and the end of each operation of the chosen ranks.
function listEvents() {
    page.events = [];
    for (const run of page.runs)
        for (const o of run.ranks[run.rank].ops)
            for (const t of [o.begin, o.end])
                page.events.push({at: Math.max(t, 0) / run.length, run, o, ends: t === o.end});
    page.events.sort((a, b) => a.at - b.at || b.ends - a.ends);
    page.times = page.events.map(e => e.at);
}

// The operation of the event that a key or a press chose; else one that runs, the last to begin.
function chooseOps() {
    for (const run of page.runs) {
        let i = page.event;
        while (i >= 0 && page.events[i].run !== run)
            i--;
        run.chosen = i >= 0 ? page.events[i].o : null;
        const running = runningAt(run.ranks[run.rank], timeAt(run));
        if (!page.stepped && running.length && !running.includes(run.chosen))
            run.chosen = running.reduce((last, o) => o.begin > last.begin ? o : last);
    }
}

function keepInWindow() {
    const span = 1 / page.zoom;
    if (page.zoom > 1 && (page.at < page.from + 0.05 * span || page.at > page.from + 0.95 * span))
        page.from = page.at - 0.3 * span;
    page.from = Math.min(1 - span, Math.max(0, page.from));
}

function show() {
    chooseOps();
    keepInWindow();
    writeMoment();
    for (const run of page.runs) {
        const rank = run.ranks[run.rank], t = timeAt(run);
        for (const p of run.pictures)
            drawPicture(run, p);
        writeChosen(run);
        setMemory(run, rank, t, run.formula);
        setTraffic(run, rank, t, run.formula);
    }
}

function moveTo(at, event = -1) {
    page.at = Math.min(1, Math.max(0, at));
    page.stepped = event >= 0;
    page.event = page.stepped ? event : countUntil(page.times, page.at + 1e-12) - 1;
    show();
}

function stepBy(n) {
    const event = Math.min(page.events.length - 1, page.event + n);
    if (event < 0)
        return moveTo(0);
    moveTo(page.events[event].at, event);
}

function zoomBy(factor) {
    const before = page.zoom;
    page.zoom = Math.min(1024, Math.max(1, page.zoom * factor));
    page.from = page.at - (page.at - page.from) * before / page.zoom;
    show();
}

function chooseRank(run, r) {
    run.rank = (r + run.ranks.length) % run.ranks.length;
    const rank = run.ranks[run.rank];
    run.article.querySelector(".weights select").value = run.rank;
    run.article.querySelector(".memory .name").textContent = "rank " + rank.number;
    run.formula = formulaOf(run, rank);
    writeSees(run);
    writeFormula(run, rank, run.formula);
    if (!page.times)
        return;
    listEvents();
    page.event = countUntil(page.times, page.at + 1e-12) - 1;
    sizeAll();
}

function play() {
    const seconds = 30; // for the part of the step that is shown
    let last = performance.now();
    const frame = now => {
        if (!page.playing)
            return;
        moveTo(page.at + (now - last) / 1e3 / seconds / page.zoom);
        last = now;
        if (page.at >= 1)
            return pause();
        page.playing = requestAnimationFrame(frame);
    };
    if (page.at >= 1)
        page.at = 0;
    document.getElementById("play").textContent = "pause";
    page.playing = requestAnimationFrame(frame);
}

function pause() {
    cancelAnimationFrame(page.playing);
    page.playing = 0;
    document.getElementById("play").textContent = "play";
}

// ---- keys, buttons and pointers ----

const COMMANDS = {
    ArrowLeft: () => stepBy(-1),
    ArrowRight: () => stepBy(1),
    PageUp: () => stepBy(-10),
    PageDown: () => stepBy(10),
    Home: () => moveTo(0),
    End: () => moveTo(1, page.events.length - 1),
    ArrowUp: () => page.runs.forEach(run => chooseRank(run, run.rank - 1)),
    ArrowDown: () => page.runs.forEach(run => chooseRank(run, run.rank + 1)),
    "+": () => zoomBy(2),
    "=": () => zoomBy(2),
    "-": () => zoomBy(0.5),
    " ": () => page.playing ? pause() : play(),
};

function openKeys() {
    addEventListener("keydown", e => {
        const command = COMMANDS[e.key], at = e.target.tagName;
        if (!command || e.ctrlKey || e.metaKey || e.altKey || at === "SELECT" || (at === "BUTTON" && e.key === " "))
            return;
        e.preventDefault();
        if (e.key !== " " && page.playing)
            pause();
        command();
    });
    const buttons = {home: "Home", back: "ArrowLeft", play: " ", next: "ArrowRight", end: "End", out: "-", in: "+"};
    for (const [id, key] of Object.entries(buttons))
        document.getElementById(id).addEventListener("click", COMMANDS[key]);
    document.getElementById("slider").addEventListener("input", e => moveTo(e.target.value / 1e5));
}

// A press or a drag in a picture moves the slider; in a lane it also chooses the operation.
function openPointer(run, p) {
    const point = e => {
        const box = p.canvas.getBoundingClientRect();
        const x = e.clientX - box.left - 1, y = e.clientY - box.top - 1;
        return {y, at: page.from + (x - LEFT) / (p.width - LEFT - RIGHT) / page.zoom};
    };
    p.canvas.addEventListener("pointerdown", e => {
        pause();
        p.canvas.setPointerCapture(e.pointerId);
        const {at, y} = point(e);
        if (p.kind.name !== "lanes" || !pickOp(run, at, y))
            moveTo(at);
    });
    p.canvas.addEventListener("pointermove", e => e.buttons && moveTo(point(e).at));
}

function pickOp(run, at, y) {
    const lane = lanesOf(run).find(l => y >= l.y && y < l.y + LANE);
    if (!lane)
        return false;
    if (lane.r !== run.rank)
        chooseRank(run, lane.r);
    const t = at * run.length, slack = run.length / page.zoom / 400;
    const o = lane.rank.queue[lane.queue].find(x => x.begin - slack <= t && x.end + slack >= t);
    if (o)
        moveTo(Math.max(o.begin, 0) / run.length, page.events.findIndex(e => e.o === o && !e.ends));
    return !!o;
}

function openPaper() {
    const change = printing => () => {
        Object.assign(page, printing ? {printing, zoom: 1, from: 0} : {printing});
        sizeAll();
    };
    addEventListener("beforeprint", change(true));
    addEventListener("afterprint", change(false));
}

// The page's address may say where it opens: page.html#at=0.4&zoom=4&rank=1.
function openAddress() {
    const said = new URLSearchParams(location.hash.slice(1)), number = name => Number(said.get(name) || 0);
    page.runs.forEach(run => chooseRank(run, number("rank")));
    page.zoom = Math.max(1, number("zoom"));
    page.from = number("at") - 0.3 / page.zoom;
    moveTo(number("at"));
}

function openRun(run) {
    const main = document.querySelector("main");
    main.append(document.getElementById("run").content.cloneNode(true));
    run.article = main.lastElementChild;
    const select = run.article.querySelector("select");
    run.ranks.forEach((rank, r) => select.append(new Option("rank " + rank.number, r)));
    select.addEventListener("change", () => chooseRank(run, Number(select.value)));
    writeTitle(run);
    writeKeys(run);
    openNumbers(run);
    openPictures(run);
}

function open() {
    page.runs = readRuns();
    document.querySelector("main").classList.toggle("beside", page.runs.length > 1);
    for (const run of page.runs)
        openRun(run);
    page.runs.forEach(run => chooseRank(run, 0));
    listEvents();
    openKeys();
    openPaper();
    openAddress();
    sizeAll();
    addEventListener("resize", sizeAll);
    addEventListener("hashchange", openAddress);
}

open();
