// A training step of a dry rank: see rehearse.h. Next: bound.c.
#include "zero/plan/rehearse.h"

#include "zero/offload/offload.h"

#include <string.h>

// ---- what was counted so far ----

struct Totals {
    struct Traffic sent[RANK_COMMS];
    struct Moved moved[NTAG];
};

struct Play {
    struct Rank *rank;
    struct Counting device, host;
    struct Totals before;
    struct KernelCount kernels; // since then
    enum SendPhase part;        // of the step
    RehearseOne *each;
    void *context;
    struct Rehearsal *out;
};

static void read_totals(const struct Play *p, struct Totals *t) {
    const struct Comm *comms[RANK_COMMS];
    const struct Offload *o = offload_of(&p->rank->zero);
    memset(t, 0, sizeof *t);
    rank_comms(p->rank, comms);
    for (int i = 0; i < RANK_COMMS; i++)
        if (comms[i])
            t->sent[i] = comms[i]->sent;
    if (o)
        memcpy(t->moved, o->mover.moved, sizeof t->moved);
}

// ---- to what it belongs ----

// Returns the phase in which a hop sends; a gradient that is reduced once goes beside the last
// backward pass.
static enum SendPhase phase_of(const struct Zero *z, enum ChainKind kind, const struct Hop *h) {
    bool once = h->when == WHEN_LAST || (h->when == WHEN_REDUCED && !z->plan.grad.shard_group);
    if (kind == FETCH)
        return z->device->label.backward ? SEND_BACKWARD : SEND_FORWARD;
    if (kind == UPDATE || kind == PUBLISH)
        return SEND_UPDATE;
    return once ? SEND_LAST : SEND_BACKWARD;
}

// Adds what was moved. Activations leave beside the forward passes and come back beside the others,
// whenever that is queued. What else is moved by no hop (NULL) is moved by the host's update.
static void add_moved(struct Moves *to, enum Tag tag, const struct Moved *m, const struct Hop *hop,
                      enum SendPhase when) {
    if (tag == TAG_ACTIVATION) {
        moved_add(&to->forward, (struct Moved){.out = m->out, .written = m->written});
        moved_add(&to->backward, (struct Moved){.in = m->in, .read = m->read});
    } else if (!hop || when == SEND_UPDATE) {
        moved_add(&to->update, *m);
    } else {
        moved_add(when == SEND_FORWARD ? &to->forward : &to->backward, *m);
    }
}

static void add_sent(struct Play *p, const struct Comm *c, enum Collective kind, uint64_t sent,
                     struct Rehearsed *one) {
    bool backward = p->part != SEND_FORWARD;
    uint64_t others = (uint64_t)(c->size - 1) * (kind == COMM_ALL_REDUCE ? 2 : 1);
    p->out->traffic.bytes[kind] += sent;
    if (c == p->rank->tp.comm)
        p->out->sums[backward] += (double)sent;
    else if (kind != COMM_SWAP)
        p->out->sent[one->when] += (double)sent;
    one->over = c;
    one->collective = kind;
    one->bytes = sent / others;
}

static void add_all_sent(struct Play *p, const struct Totals *now, struct Rehearsed *one) {
    const struct Comm *comms[RANK_COMMS];
    rank_comms(p->rank, comms);
    for (int i = 0; i < RANK_COMMS; i++) {
        p->out->traffic.inter_node += now->sent[i].inter_node - p->before.sent[i].inter_node;
        for (int kind = 0; kind < NCOLLECTIVE; kind++) {
            uint64_t sent = now->sent[i].bytes[kind] - p->before.sent[i].bytes[kind];
            if (sent)
                add_sent(p, comms[i], (enum Collective)kind, sent, one);
        }
    }
}

static void add_all_moved(struct Play *p, const struct Totals *now, struct Rehearsed *one) {
    for (int tag = 0; tag < NTAG; tag++) {
        struct Moved m = moved_since(now->moved[tag], p->before.moved[tag]);
        add_moved(&p->out->moves, (enum Tag)tag, &m, one->hop, one->when);
        moved_add(&one->moved, m);
    }
}

// Adds all that was sent and moved since the last call; `one` says what that was for.
static void add_since_last(struct Play *p, struct Rehearsed *one) {
    struct Totals now;
    read_totals(p, &now);
    if (memcmp(&now, &p->before, sizeof now) != 0) {
        add_all_sent(p, &now, one);
        add_all_moved(p, &now, one);
        p->before = now;
    }
    if (!p->each)
        return;
    for (int k = 0; k < NKERNEL; k++)
        one->kernel_bytes += p->kernels.bytes[k];
    p->kernels = (struct KernelCount){.sent = 0};
    p->each(p->context, one);
}

// Reports what was done since the last report, for no hop: called before a hop and at a pass's end.
static void report_other_work(void *play) {
    struct Play *p = play;
    struct Rehearsed one = {.when = p->part};
    add_since_last(p, &one);
}

static void hop_ended(void *play, const struct Zero *z, enum ChainKind kind, const struct Hop *h,
                      const struct HopArgs *a) {
    struct Rehearsed one = {.kind = kind, .hop = h, .args = a, .when = phase_of(z, kind, h)};
    add_since_last(play, &one);
}

// ---- the step ----

// Rehearses a rank that does not train: a token of each sequence, or else the loss of a batch.
static void rehearse_forward(struct Play *p) {
    struct Acts *acts = &p->rank->acts;
    const struct KvCache *cache = &p->rank->model.cache;
    size_t b = acts->b, t = acts->t;
    p->part = SEND_FORWARD;
    acts->mode = acts->generated_rows ? HEAD_LOGITS : HEAD_LOSS;
    acts->cache = acts->generated_rows ? cache : NULL;
    if (acts->generated_rows) {
        acts->b = acts->logits_count = acts->generated_rows;
        acts->t = 1;
    }
    zero_forward(&p->rank->zero, acts);
    report_other_work(p);
    acts->b = b;
    acts->t = t;
    acts->cache = NULL;
}

// Rehearses one step. Its results are known at once, and say nothing.
static void rehearse_step(struct Play *p) {
    struct Zero *z = &p->rank->zero;
    struct Acts *acts = &p->rank->acts;
    struct StepState settings = {.lr = 0};
    if (z->plan.inference) {
        rehearse_forward(p);
        return;
    }
    zero_step_begin(z, &settings);
    for (size_t i = 0; i < z->npass; i++) {
        p->part = z->pass[i].backward ? SEND_BACKWARD : SEND_FORWARD;
        zero_step_pass(z, &z->pass[i], acts);
        report_other_work(p);
    }
    p->part = SEND_LAST;
    zero_step_end(z, 0);
    report_other_work(p);
    z->known = z->step;
}

// The host's end of a step's copies, which the step writes.
struct HostEnd {
    struct StepState sent, received;
    uint64_t word;
};

static void use_host_ends(struct Zero *z, struct HostEnd *end) {
    for (int i = 0; i < HOST_COPIES; i++) {
        z->reports->host_copy[i].sent = end ? &end[i].sent : NULL;
        z->reports->host_copy[i].received_control = end ? &end[i].received : NULL;
        z->reports->host_copy[i].sent_word = end ? &end[i].word : NULL;
    }
}

void rehearse(struct Rank *dry, RehearseOne *each, void *context, struct Rehearsal *out) {
    struct Zero *z = &dry->zero;
    struct Rehearsal first;
    struct HostEnd end[HOST_COPIES] = {0};
    struct Play p = {.rank = dry, .out = &first};
    struct HopWatch watch = {report_other_work, hop_ended, &p};
    count_begin(&p.device, dry->device, &p.kernels);
    if (dry->host)
        count_begin(&p.host, dry->host, &p.kernels);
    z->step = z->known = offload_is_delayed(z) ? offload_of(z)->options.delay_after : 0;
    z->watch = &watch;
    use_host_ends(z, end);
    read_totals(&p, &p.before);
    memset(&first, 0, sizeof first);
    for (int before = 0; before <= offload_is_delayed(z); before++)
        rehearse_step(&p);
    *out = (struct Rehearsal){.sums = {0}};
    p.out = out;
    p.each = each;
    p.context = context;
    p.kernels = (struct KernelCount){.sent = 0};
    rehearse_step(&p);
    out->kernels = p.kernels;
    z->watch = NULL;
    use_host_ends(z, NULL);
    z->step = z->known = 0;
    if (dry->host)
        count_end(&p.host);
    count_end(&p.device);
}
