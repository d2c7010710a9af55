// Reports: what ranks send each other, and the host, at the end of a step.
//
// A report is one row per rank of a table on the device: the rank's loss, the squared norms of its
// shards, and a word from its host. All rows are gathered on the comm queue at the end of a step or
// of a batch of validation, so that every rank has the same loss, norm and requests (results.c).
// Between steps the word alone carries what hosts must agree on.
#include "zero/report.h"

#include <stdlib.h>

// Each row has cache lines of its own, as other ranks may read it.
int reports_open(struct Zero *z, struct Tier *tier, struct Error *e) {
    struct Device *d = z->device;
    struct Reports *r = z->reports = base_alloc_zeroed(sizeof *r);
    size_t ranks = (size_t)z->all->size, control = round_up(sizeof *z->control, 64);
    size_t squares = (size_t)z->params->all_groups * sizeof(double);
    r->word_sent = device_open_event(d, "word sent");
    r->loss_summed = device_open_event(d, "loss summed");
    r->gathered = device_open_event(d, "reported");
    r->clipped = device_open_event(d, "clipped");
    r->settings_used = device_open_event(d, "settings used");
    for (int i = 0; i < HOST_COPIES; i++)
        r->host_copy[i].received_all = device_open_event(d, "received all");
    r->row_bytes = round_up(sizeof(struct RankReport) + squares, 64);
    int err = tier_alloc(tier, TAG_WORKSPACE, "the step's constants",
                         control + ranks * r->row_bytes, &r->block, e);
    z->control = r->block.mem;
    r->rows = (char *)z->control + control;
    if (err || tier_is_dry(tier))
        return err;
    r->shared = base_alloc_zeroed(ranks * sizeof *r->shared);
    for (int i = 0; i < HOST_COPIES; i++) {
        struct HostCopy *copy = &r->host_copy[i];
        copy->sent = device_alloc_host(d, sizeof *copy->sent);
        copy->sent_word = device_alloc_host(d, sizeof *copy->sent_word);
        copy->received_control = device_alloc_host(d, sizeof *copy->received_control);
        copy->received = device_alloc_host(d, ranks * r->row_bytes);
    }
    // Rows are sent whole, also the fields that are written later, or never.
    device_zero(d, QUEUE_COMPUTE, z->control, r->block.bytes);
    zero_send_counts(z);
    return 0;
}

void reports_close(struct Zero *z) {
    struct Reports *r = z->reports;
    if (!r)
        return;
    struct Event *events[] = {r->word_sent, r->loss_summed, r->gathered, r->clipped,
                              r->settings_used};
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        device_close_event(z->device, events[i]);
    for (int i = 0; i < HOST_COPIES; i++) {
        struct HostCopy *copy = &r->host_copy[i];
        void *host[] = {copy->sent, copy->sent_word, copy->received_control, copy->received};
        device_close_event(z->device, copy->received_all);
        for (size_t k = 0; k < sizeof host / sizeof host[0]; k++)
            device_free_host(z->device, host[k]);
    }
    tier_free(&r->block);
    free(r->shared);
    free(r);
}

// Copies the host's word to this rank's row. The row's last contents have left: the host has waited
// for that or, in a step, the in queue has (results.c).
void reports_send_word(struct Zero *z, uint64_t word) {
    struct Device *d = z->device;
    struct HostCopy *copy = zero_host_copy(z);
    *copy->sent_word = word;
    device_copy(d, QUEUE_IN, &zero_report(z)->word, copy->sent_word, sizeof word);
    device_record(d, QUEUE_IN, z->reports->word_sent);
}

void reports_gather(struct Zero *z) {
    struct Device *d = z->device;
    device_wait(d, QUEUE_COMM, z->reports->word_sent);
    z->all->ops->all_gather(z->all, z->reports->rows, zero_report(z), z->reports->row_bytes);
    device_record(d, QUEUE_COMM, z->reports->gathered);
}

// Sums the squares of a complete shard. Elements that several ranks keep count on one of them.
static void run_grad_norm(struct Zero *z, const struct HopArgs *a) {
    struct Device *d = z->device;
    struct Span span[MAX_PARAM];
    enum Dtype dtype = z->plan.grad.dtype;
    double *out = zero_squares(z, a->group);
    size_t n = zero_shard_numel(z, a->group), begin = n * (size_t)z->shard_group->rank;
    int spans = params_counted(z->params, a->group, begin, begin + n, span);
    if (!spans)
        device_zero(d, QUEUE_COMM, out, sizeof *out);
    for (int i = 0; i < spans; i++)
        d->kernels->sum(d->queue[QUEUE_COMM],
                        &(struct Sum){
                            .n = span[i].end - span[i].begin,
                            .dtype = dtype,
                            .x = dtype_at(a->mem[BUFFER_SHARD], dtype, span[i].begin - begin),
                            .square = true,
                            .accumulate = i > 0,
                            .out = out,
                        });
}

const struct Hop hop_grad_norm = {"grad_norm", POINT_NORM,           WHEN_LAST,    QUEUE_COMM,
                                  USES_SHARD,  .run = run_grad_norm, .where = HERE};

// Computes the norm of the whole gradient from the squares of one shard group's shards on all TP
// ranks, in rank order, each group's from the pipeline stage that has it; only the first replica
// counts, as the others have the same.
void reports_clip(struct Zero *z) {
    struct Device *d = z->device;
    device_wait(d, QUEUE_COMPUTE, z->reports->gathered);
    const struct RankReport *first = (const struct RankReport *)z->reports->rows;
    d->kernels->step_clip(
        d->queue[QUEUE_COMPUTE],
        &(struct StepClip){
            .ranks = (size_t)(z->shard_group->size * z->parallel->grid.size[AXIS_TP]),
            .n = (size_t)z->params->all_groups,
            .stages = (size_t)z->parallel->stages,
            .stride = z->reports->row_bytes / sizeof first->squares[0],
            .squares = first->squares,
            .state = z->control,
        });
    device_record(d, QUEUE_COMPUTE, z->reports->clipped);
}

void reports_receive(struct Zero *z) {
    size_t bytes = (size_t)z->all->size * z->reports->row_bytes;
    device_copy(z->device, QUEUE_OUT, zero_host_copy(z)->received, z->reports->rows, bytes);
}

static const struct RankReport *received_report(const struct Zero *z, const struct HostCopy *copy,
                                                int rank) {
    return (const struct RankReport *)(copy->received + (size_t)rank * z->reports->row_bytes);
}

// Sums in rank order, so that every rank has the same sum. All TP ranks have the loss of the same
// tokens: only the first one's counts.
struct StepResult reports_sum(const struct Zero *z, const struct HostCopy *copy) {
    struct StepResult sum = {0};
    for (int r = 0; r < z->all->size; r++) {
        if (grid_coord(&z->parallel->grid, r, AXIS_TP) == 0)
            sum.loss_sum += received_report(z, copy, r)->loss_sum;
        sum.words |= received_report(z, copy, r)->word;
    }
    return sum;
}

void reports_wait(struct Zero *z) {
    struct Event *received_all = zero_host_copy(z)->received_all;
    CHECK(z->known == z->step, "a step is under way");
    reports_gather(z);
    device_wait(z->device, QUEUE_OUT, z->reports->gathered);
    reports_receive(z);
    device_record(z->device, QUEUE_OUT, received_all);
    device_sync_event(z->device, received_all);
}

// ---- between steps: what hosts agree upon ----

const uint64_t *zero_share(struct Zero *z, uint64_t mine) {
    device_sync_queue(z->device, QUEUE_COMPUTE); // which writes in the rows, too
    reports_send_word(z, mine);
    reports_wait(z);
    for (int r = 0; r < z->all->size; r++)
        z->reports->shared[r] = received_report(z, zero_host_copy(z), r)->word;
    return z->reports->shared;
}

int zero_agree(struct Zero *z, int err) {
    const uint64_t *all = zero_share(z, (uint64_t)-err);
    int first = 0;
    while (first + 1 < z->all->size && !all[first])
        first++;
    return -(int)all[first];
}
