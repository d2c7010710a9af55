// Runs a rank's steps and validation, and counts their operations, which divided by the machine's
// measured speed give time (zero/plan/). See rank.h.
#include "zero/rank/rank.h"

#include "model/work.h"
#include "zero/offload/offload.h"

#include <errno.h>
#include <string.h>

static void use_batch(struct Rank *r, const int32_t *batch) {
    size_t tokens = r->feed.tokens, arrays = (size_t)r->feed.arrays;
    bool packed = r->feed.packed;
    r->acts.tokens = batch;
    r->acts.targets = batch + FEED_TARGETS * tokens;
    r->acts.starts = packed ? batch + FEED_STARTS * tokens : NULL;
    r->acts.first = packed ? batch + (arrays - 1) * tokens : NULL;
}

void rank_next_batch(struct Rank *r) {
    use_batch(r, feed_next(&r->feed));
}

uint64_t rank_first_sample(const struct Rank *r, uint64_t step, size_t micro) {
    size_t b = r->acts.b_max, together = b * rank_data_ranks(r);
    return (step * r->zero.plan.nmicro + micro) * together + b * rank_data_rank(r);
}

void rank_comms(const struct Rank *r, const struct Comm *groups[RANK_COMMS]) {
    const struct Comm *all[RANK_COMMS] = {r->all,
                                          r->shard_group == r->all ? NULL : r->shard_group,
                                          r->parallel.replicas,
                                          r->hpz_group,
                                          r->tp.comm,
                                          r->wire.intra_node,
                                          r->wire.inter_node,
                                          r->pipe.prev,
                                          r->pipe.next,
                                          r->pipe.tied};
    memcpy(groups, all, sizeof all);
}

struct Traffic rank_traffic(const struct Rank *r) {
    const struct Comm *groups[RANK_COMMS];
    struct Traffic t = {{0}, 0};
    rank_comms(r, groups);
    for (size_t i = 0; i < RANK_COMMS; i++) {
        for (int c = 0; c < NCOLLECTIVE && groups[i]; c++)
            t.bytes[c] += groups[i]->sent.bytes[c];
        t.inter_node += groups[i] ? groups[i]->sent.inter_node : 0;
    }
    return t;
}

// Records what a step sent. With a second partition a step after a validation sends less, since
// that has gathered the weights that the step begins with: it is left out.
static void note_sent(struct Rank *r, const struct Traffic *before) {
    bool follows = memcmp(before, &r->sent_end, sizeof *before) == 0;
    r->sent_end = rank_traffic(r);
    if (r->hpz_group && !follows)
        return;
    for (int c = 0; c < NCOLLECTIVE; c++)
        r->step_traffic.bytes[c] = r->sent_end.bytes[c] - before->bytes[c];
    r->step_traffic.inter_node = r->sent_end.inter_node - before->inter_node;
    r->traffic_known = true;
}

// Counts the targets of `samples` samples from `first` on, of all ranks.
static int count_targets(const struct Rank *r, const struct BatchSource *from, uint64_t first,
                         uint64_t samples, uint64_t *counted, struct Error *e) {
    *counted = samples * r->acts.t_max;
    return from->count ? from->count(from->data, first, samples, counted, e) : 0;
}

int rank_count_step(const struct Rank *r, const struct BatchSource *from, uint64_t step,
                    uint64_t *counted, struct Error *e) {
    uint64_t samples = r->acts.b_max * rank_data_ranks(r) * r->zero.plan.nmicro;
    return count_targets(r, from, step * samples, samples, counted, e);
}

static double mean_of(double sum, uint64_t counted) {
    return counted ? sum / (double)counted : 0;
}

double rank_mean_loss(const struct Rank *r, const struct StepResult *result) {
    return mean_of(result->loss_sum, r->counted[(result->step - 1) % HOST_COPIES]);
}

int rank_queue_step(struct Rank *r, const struct BatchSource *from,
                    const struct StepState *settings, struct Error *e) {
    size_t b = r->acts.b;
    const struct Pass *pass = r->zero.pass, *end = pass + r->zero.npass;
    uint64_t step = r->zero.step, *counted = &r->counted[step % HOST_COPIES];
    struct Traffic before = rank_traffic(r);
    struct Moved moved = offload_moved(&r->zero);
    bool follows = r->queued && memcmp(&moved, &r->moved_end, sizeof moved) == 0;
    int err = rank_count_step(r, from, step, counted, e);
    if (!err)
        zero_step_begin(&r->zero, settings);
    if (!err)
        err = feed_read(&r->feed, from, rank_first_sample(r, step, 0), b, e);
    for (; pass < end && !err; pass++) {
        use_batch(r, pass->backward ? feed_oldest(&r->feed) : feed_next(&r->feed));
        r->acts.dloss = (float)mean_of(1, *counted);
        r->acts.first_row = rank_first_sample(r, step, pass->micro) * r->acts.t;
        zero_step_pass(&r->zero, pass, &r->acts);
        if (pass->backward)
            feed_done(&r->feed);
        if (pass + 1 < end && !pass[1].backward)
            err = feed_read(&r->feed, from, rank_first_sample(r, step, pass[1].micro), b, e);
    }
    if (err)
        return err;
    zero_step_end(&r->zero, request_word(r->requests, r->own_word));
    note_sent(r, &before);
    r->queued = true;
    r->moved_end = offload_moved(&r->zero);
    r->moved_known |= follows;
    if (follows)
        r->step_moved = moved_since(r->moved_end, moved);
    return 0;
}

// Sends a batch of zeros in place of one that cannot be read, since the others wait for this rank.
static void send_zeros(struct Rank *r) {
    size_t arrays = (size_t)r->feed.arrays;
    memset(feed_host(&r->feed), 0, arrays * r->feed.tokens * sizeof(int32_t));
    feed_send(&r->feed);
}

// Runs whole micro-batches on every rank, and the rest one sequence at a time; ranks without a
// sequence left take part, since the others may need their shards.
int rank_validate(struct Rank *r, const struct BatchSource *from, uint64_t samples, float *loss,
                  struct Error *e) {
    struct Acts *acts = &r->acts;
    size_t ranks = rank_data_ranks(r);
    double sum = 0;
    uint64_t counted;
    int err = 0, read_err = count_targets(r, from, 0, samples, &counted, e);
    for (uint64_t i = 0; i < samples && !err; i += acts->b * ranks) {
        acts->b = samples - i >= acts->b_max * ranks ? acts->b_max : 1;
        uint64_t mine = i + acts->b * rank_data_rank(r);
        bool counts = mine < samples;
        if (!read_err)
            read_err = feed_read(&r->feed, from, counts ? mine : 0, acts->b, e);
        if (read_err)
            send_zeros(r);
        rank_next_batch(r);
        uint64_t word = read_err ? REQUEST_STOP : request_to_stop(r->requests);
        struct StepResult batch = zero_eval(&r->zero, acts, counts && !read_err, word);
        feed_done(&r->feed);
        sum += batch.loss_sum;
        err = batch.words & REQUEST_STOP ? -EINTR : 0;
    }
    acts->b = acts->b_max;
    *loss = (float)mean_of(sum, counted);
    return read_err ? read_err : err;
}

// ---- work ----

// Every weight is multiplied with each token once, except an embedding that the head does not
// share, whose rows are only looked up; and twice more in the backward pass, but for what is
// frozen. Counts the whole model, whatever part of it this rank has.
double rank_flops_per_token(const struct Rank *r) {
    const struct ModelConfig *c = &r->params.config;
    double looked_up = c->untied ? (double)(c->vocab * c->channels) : 0;
    double all = 6.0 * ((double)r->params.real - looked_up) +
                 6.0 * (double)c->layers * model_attention_work(c);
    for (int u = 0; u < r->params.all_units; u++) {
        enum UnitKind kind = u == 0                         ? UNIT_EMBEDDING
                             : u + 1 == r->params.all_units ? UNIT_HEAD
                                                            : UNIT_BLOCK;
        enum UnitBackward backward = model_unit_backward(c, u);
        all -= model_unit_work(c, kind, RECOMPUTE_NONE, BACKWARD_ALL).backward -
               model_unit_work(c, kind, RECOMPUTE_NONE, backward).backward;
    }
    return all;
}

struct StepFlops rank_step_flops(const struct Rank *r, const struct RankSettings *s) {
    const struct ModelConfig *c = &r->model.config;
    double tokens = (double)(s->batch * c->seq_len * s->nmicro);
    struct StepFlops flops = {0};
    for (int u = 0; u < r->params.nunit; u++) {
        enum UnitBackward backward = model_unit_backward(&s->model, r->params.first_unit + u);
        struct UnitWork w = model_unit_work(c, r->params.unit[u].kind, s->recompute, backward);
        flops.forward += tokens * w.forward;
        flops.backward += tokens * w.backward;
    }
    return flops;
}

struct StepUpdates rank_step_updates(const struct Rank *r) {
    struct StepUpdates n = {0, 0};
    for (int g = 0; g < r->params.ngroup; g++)
        if (zero_trains(&r->zero, g))
            *(host_updates(&r->zero, g) ? &n.host : &n.device) += zero_owned_numel(&r->zero, g);
    return n;
}
