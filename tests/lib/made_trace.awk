# Makes a file as `./train --trace-zero` writes one, of a step that never ran, for tests of
# scripts/view.sh: of any stage and as many operations as wanted.
#
#   awk -f tests/lib/made_trace.awk -v stage=3 -v rank=0 -v ranks=4 -v layers=12 -v micros=2
#
# It queues the hops as zero/stages.c and zero/param.c do, with times that are made up. offload=1: the
# optimizer and the parameters are in the host's memory.

function block(tier, tag, purpose, bytes) {
    blocks = blocks sprintf("%s\n  {\"id\":%d,\"tier\":\"%s\",\"tag\":\"%s\",\"purpose\":\"%s\",\"bytes\":%d}",
        nblock ? "," : "", nblock, tier, tag, purpose, bytes)
    used[tier, tag] += bytes
    size[nblock] = bytes
    return nblock++
}

# One that is there between two moments of the step alone.
function passing_block(purpose, bytes, reserved, freed) {
    block("device", "workspace", purpose, bytes)
    used["device", "workspace"] -= bytes
    sub(/}$/, sprintf(",\"reserved\":%.3f,\"freed\":%.3f}", reserved, freed), blocks)
}

function life(b, holds, g, from, until) {
    lives = lives sprintf("%s\n  {\"block\":%d,\"offset\":0,\"bytes\":%d,\"holds\":\"%s\",\"group\":%d,\"from\":%d,\"until\":%d}",
        lives == "" ? "" : ",", b, size[b], holds, g, from, until)
}

function piece(b) {
    return b < 0 ? "" : sprintf("[%d,0,%d]", b, size[b])
}

# Queues an operation behind the last one of its queue and behind operation `behind` (-1: none).
function run(kind, name, chain, u, m, pass, queue, us, moved, from, to, behind, why, where,    begin, wait) {
    us *= 0.9 + 0.2 * rand()
    begin = queue_end[queue] + 1
    wait = behind >= 0 && ended[behind] > begin ? ended[behind] - begin : 0
    begin += wait
    operations = operations sprintf("%s\n  {\"id\":%d,\"kind\":\"%s\",\"name\":\"%s\",%s\"unit\":%d,\"group\":%d,\"micro\":%d," \
        "\"pass\":%s,\"queue\":\"%s\",\"begin\":%.3f,\"end\":%.3f,\"moved\":{%s},\"reads\":[%s],\"writes\":[%s]," \
        "\"after\":[%s%s%s],\"waited\":%.3f,%s\"where\":\"%s\"}",
        nop ? "," : "", nop, kind, name, chain == "" ? "" : "\"chain\":\"" chain "\",", u, group_of(u), m,
        pass == "" ? "null" : "\"" pass "\"", queue, begin, begin + us, moved, piece(from), piece(to),
        queue in last ? last[queue] : "", queue in last && behind >= 0 ? "," : "", behind >= 0 ? behind : "",
        wait, wait ? "\"for\":\"" why "\"," : "", where)
    queue_end[queue] = ended[nop] = begin + us
    last[queue] = nop
    return nop++
}

function group_of(u) {
    return u > layers ? 0 : u
}

function whole_bytes(g) {
    return 2 * numel[g]
}

# The block of a ring that group g has: that of the ends, or those of blocks in turn.
function slot_of(ring, g) {
    return g == 0 ? ring : ring + 1 + g % (prefetch + 1)
}

function fetch(v,    u, g, s, from, op) {
    u = visit_unit[v]
    g = group_of(u)
    s = slot_of(slots, g)
    if (stage < 3 && !offload || owner[s] == g)
        return
    owner[s] = g
    op = drained[s]
    if (offload)
        begun[s] = op = run("hop", "h2d", "fetch", u, visit_micro[v], visit_pass[v], "in", 300,
            sprintf("\"in\":%d", size[param[g]]), param[g], s, op, "weights drained", "zero/offload/param.c:88")
    if (stage == 3) {
        op = run("hop", "all_gather", "fetch", u, visit_micro[v], visit_pass[v], "comm", 500,
            sprintf("\"sent\":%d,\"over\":\"dp\",\"others\":%d", (ranks - 1) * whole_bytes(g) / ranks, ranks - 1),
            offload ? s : param[g], s, op, "weights drained", "zero/param.c:118")
        if (!offload)
            begun[s] = op
    }
    arrived[g] = op
}

function visit(v,    u, g, s, op, back, op2, b) {
    u = visit_unit[v]
    g = group_of(u)
    s = slot_of(slots, g)
    back = visit_pass[v] == "backward"
    b = stage >= 2 ? slot_of(buckets, g) : grad[g]
    fetch(v)
    op = g in arrived ? arrived[g] : -1
    if (back && stage >= 2 && bucket_drained[b] > op)
        op = bucket_drained[b]
    op = run("unit", u == 0 ? "embedding" : u > layers ? "head" : "block", "", u, visit_micro[v], visit_pass[v], "compute",
        back ? 1600 : 800, sprintf("\"kernel\":%d", 6 * whole_bytes(g)), stage == 3 || offload ? s : param[g],
        back ? b : acts, op, "weights arrived", back ? "model/backward.c:61" : "model/forward.c:40")
    for (u = v + 1; u <= v + prefetch && u < visits; u++)
        fetch(u)
    if (visit_unit[v] > layers)
        passing_block("logits", 3000000 + v, ended[op] - 500, ended[op])
    if (back)
        reduce(v, g, b, op)
    if ((stage == 3 || offload) && !(v + 1 < visits && group_of(visit_unit[v + 1]) == g)) {
        life(s, "weights", g, begun[s], op)
        owner[s] = -1
        drained[s] = op
    }
}

function reduce(v, g, b, made,    op, sent) {
    if (g == 0 && visit_unit[v] != 0)
        return
    sent = (ranks - 1) * whole_bytes(g) / ranks
    if (stage == 0 && visit_micro[v] == micros - 1)
        run("hop", "all_reduce", "reduce", visit_unit[v], visit_micro[v], "backward", "comm", 900,
            sprintf("\"sent\":%d,\"over\":\"dp\",\"others\":%d", 2 * sent, ranks - 1), grad[g], grad[g], made,
            "backward done", "zero/grad.c:104")
    if (stage >= 2 || (stage == 1 && visit_micro[v] == micros - 1)) {
        op = run("hop", "reduce_scatter", "reduce", visit_unit[v], visit_micro[v], "backward", "comm", 500,
            sprintf("\"sent\":%d,\"over\":\"dp\",\"others\":%d", sent, ranks - 1), b, grad[g], made,
            "backward done", "zero/grad.c:106")
        if (stage >= 2) {
            life(b, "gradient", g, made, op)
            bucket_drained[b] = op
        }
    }
}

function update(g,    op) {
    if (offload)
        run("hop", "host_adamw", "update", g, 0, "", "host compute", 700, "\"kernel\":" size[optimizer[g]], grad[g],
            param[g], last["comm"], "results received", "zero/offload/update.c:140")
    else
        op = run("hop", "adamw", "update", g, 0, "", "compute", 200, "\"kernel\":" size[optimizer[g]], optimizer[g], param[g],
            last["comm"], "reported", "zero/opt.c:66")
    if (stage == 1 || stage == 2)
        run("hop", "all_gather", "publish", g, 0, "", "comm", 500,
            sprintf("\"sent\":%d,\"over\":\"dp\",\"others\":%d", (ranks - 1) * whole_bytes(g) / ranks, ranks - 1), param[g],
            param[g], op, "group updated", "zero/param.c:118")
}

function plan_visits(    m, u) {
    for (m = 0; m < micros; m++) {
        for (u = 0; u <= layers + 1; u++)
            plan(u, m, "forward")
        for (u = layers + 1; u >= 0; u--)
            plan(u, m, "backward")
    }
}

function plan(u, m, pass) {
    visit_unit[visits] = u
    visit_micro[visits] = m
    visit_pass[visits++] = pass
}

function ring(tag, purpose,    first, i) {
    first = block("device", tag, purpose " of embedding and head", whole_bytes(0))
    for (i = 0; i <= prefetch; i++)
        block("device", tag, purpose " of blocks", whole_bytes(1))
    for (i = first; i < nblock; i++) {
        owner[i] = drained[i] = bucket_drained[i] = -1
    }
    return first
}

function open_state(    g, tier) {
    tier = offload ? "cpu" : "device"
    for (g = 0; g <= layers; g++) {
        numel[g] = g == 0 ? 38597376 / 8 : 7087872 / 8
        params += numel[g]
        param[g] = block(tier, "param", "weights of " name(g), whole_bytes(g) / (stage >= 3 ? ranks : 1))
        grad[g] = block(tier, "grad", "gradient of " name(g), whole_bytes(g) / (stage >= 2 ? ranks : 1))
        optimizer[g] = block(tier, "optimizer", "optimizer state of " name(g), 12 * numel[g] / (stage >= 1 ? ranks : 1))
        life(param[g], "weights", g, -1, -1)
        life(grad[g], "gradient", g, -1, -1)
        life(optimizer[g], "optimizer", g, -1, -1)
        groups = groups sprintf("%s{\"name\":\"%s\",\"numel\":%d,\"padded\":%d}", g ? "," : "", name(g), numel[g], numel[g])
    }
    acts = block("device", "activation", "activations", 5000000)
    life(acts, "activations", 0, -1, -1)
    if (stage == 3 || offload)
        slots = ring("comm", "gathered weights")
    if (stage >= 2)
        buckets = ring("comm", "gradient bucket")
}

function name(g) {
    return g ? "block." (g - 1) : "embedding"
}

function account(tier,    i, n, tag, text, sum) {
    n = split("param grad optimizer activation workspace comm", tag, " ")
    for (i = 1; i <= n; i++) {
        text = text sprintf("\"%s\":%d,", tag[i], used[tier, tag[i]])
        sum += used[tier, tag[i]]
    }
    return sprintf("\"%s\":{%s\"total\":%d}", tier, text, sum)
}

BEGIN {
    prefetch = 1
    nblock = nop = visits = 0
    srand(rank + 1)
    open_state()
    plan_visits()
    for (v = 0; v < visits; v++)
        visit(v)
    for (g = 0; g <= layers; g++)
        update(g)
    for (u = 0; u <= layers + 1; u++)
        units = units sprintf("%s\"%s\"", u ? "," : "", u > layers ? "head" : name(u))
    printf "{\"format\":\"zero.c trace 1\",\n\"run\":{\"model\":\"made up\",\"layers\":%d,\"dtype\":\"bf16\",\"grad_dtype\":\"bf16\"," \
        "\"stage\":%d,\"offload\":[%s],\"ranks\":%d,\"dp\":%d,\"tp\":1,\"pp\":1,\"prefetch\":1,\"micro_batch\":4,\"micro_batches\":%d," \
        "\"seq_len\":1024,\"device\":\"cpu\",\"command\":\"./train --zero %d --data '</script>'\"},\n", layers, stage,
        offload ? "\"param\",\"optimizer\"" : "", ranks, ranks, micros, stage
    printf "\"rank\":%d,\"place\":{\"dp\":%d,\"tp\":0,\"pp\":0},\"step\":3,\"start\":123.4,\"parameters\":%d,\n", rank, rank, params
    printf "\"units\":[%s],\"first_unit\":0,\n\"groups\":[%s],\n", units, groups
    printf "\"blocks\":[%s],\n\"lives\":[%s],\n\"operations\":[%s],\n", blocks, lives, operations
    printf "\"accounts\":{%s,%s,%s}}\n", account("device"), account("cpu"), account("nvme")
}
