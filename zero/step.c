// The walk: one training step, unit by unit.
//
// This is the program's centre. GPT's order is known, so ZeRO needs no hooks and no tracing: the
// walk says before and after each unit what is about to happen, and the stage's row in stages.c
// decides what that means for weights and gradients. Everything here only queues work on the
// device; the host waits once, in zero_step_wait, for the loss and the norm.
//
// Events tie the four queues together. Each wait below names the record that it answers:
//   in -> comm       state_sent     the step's settings, and this rank's word, have arrived
//   compute -> comm  backward_done  a group's gradient is complete (grad.c)
//   compute -> comm  computed       likewise the loss, where there is no backward pass
//   comm -> compute  reported       the settings, all reduced gradients and every rank's report
//   compute -> out   updated        the step's results may be copied to the host
//   out -> host      received_all   they have been; then all of it may be written again
// and around the weights, where they are gathered, those of param.c. The loss needs no wait of its
// own in a step: it is summed before unit 0's backward pass ends, and with that the last group's
// gradient is handed over.
#include "zero/zero.h"

#include "kernels/hash.h"
#include "model/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void walk_forward(struct Zero *z, int first, int last, struct Acts *acts) {
    for (int u = first; u < last; u++) {
        int g = model_unit_group(z->model, u);
        z->device->label.unit = u;
        z->stage->before_forward(z, u, g);
        unit_forward(z->model, u, z->w, acts);
        z->stage->after_forward(z, u, g);
    }
}

void walk_backward(struct Zero *z, int first, int last, struct Acts *acts) {
    for (int u = last - 1; u >= first; u--) {
        int g = model_unit_group(z->model, u);
        z->device->label.unit = u;
        z->stage->before_backward(z, u, g);
        acts_restore(z->model, u, z->w, acts);
        unit_backward(z->model, u, z->w, z->dw, acts);
        z->stage->after_backward(z, u, g);
    }
}

void zero_step_micro(struct Zero *z, struct Acts *acts) {
    acts->mode = HEAD_TRAIN;
    acts->loss_sum = &zero_report(z)->loss_sum;
    acts->accumulate_loss = z->micro > 0;
    int last = model_units(z->model);
    z->device->label.step = z->step + 1;
    z->backward_follows = true;
    walk_forward(z, 0, last, acts);
    walk_backward(z, 0, last, acts);
    z->micro++;
}

void zero_forward(struct Zero *z, struct Acts *acts) {
    z->backward_follows = false;
    walk_forward(z, 0, model_units(z->model), acts);
}

// ---- reports: what ranks tell each other, and the host ----

// The host's word for this rank's row. The row's reader before was the host itself, which waited.
static void send_word(struct Zero *z, uint64_t word) {
    struct Device *d = z->device;
    *z->sent_word = word;
    device_copy(d, QUEUE_IN, &zero_report(z)->word, z->sent_word, sizeof word);
    device_record(d, QUEUE_IN, z->state_sent);
}

static void gather_reports(struct Zero *z) {
    struct Device *d = z->device;
    device_wait(d, QUEUE_COMM, z->state_sent);
    z->dp->ops->all_gather(z->dp, z->reports, zero_report(z), z->report_bytes);
    device_record(d, QUEUE_COMM, z->reported);
}

static void receive_reports(struct Zero *z) {
    size_t bytes = (size_t)z->dp->size * z->report_bytes;
    device_copy(z->device, QUEUE_OUT, z->received, z->reports, bytes);
}

static const struct RankReport *received_report(const struct Zero *z, int rank) {
    return (const struct RankReport *)(z->received + (size_t)rank * z->report_bytes);
}

// In the order of ranks, so that every rank has the same sum.
static struct StepResult sum_reports(const struct Zero *z) {
    struct StepResult sum = {0};
    for (int r = 0; r < z->dp->size; r++) {
        sum.loss_sum += received_report(z, r)->loss_sum;
        sum.stop = sum.stop || received_report(z, r)->word;
    }
    return sum;
}

void zero_step_end(struct Zero *z, const struct StepState *settings, bool stop) {
    struct Device *d = z->device;
    d->label.unit = -1;
    *z->sent = *settings;
    device_copy(d, QUEUE_IN, z->control, z->sent, sizeof *z->sent);
    send_word(z, stop);
    gather_reports(z);
    update_begin(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        d->label.unit = g;
        z->stage->update(z, g);
        z->stage->after_update(z, g);
    }
    d->label.unit = -1;
    device_record(d, QUEUE_COMPUTE, z->updated);
    device_wait(d, QUEUE_OUT, z->updated);
    receive_reports(z);
    device_copy(d, QUEUE_OUT, z->received_control, z->control, sizeof *z->control);
    device_record(d, QUEUE_OUT, z->received_all);
    d->label.step = 0; // what follows belongs to no step
    z->step++;
    z->micro = 0;
}

struct StepResult zero_step_wait(struct Zero *z) {
    device_sync_event(z->device, z->received_all);
    struct StepResult result = sum_reports(z);
    result.grad_norm = z->received_control->grad_norm;
    result.skipped = z->received_control->skip != 0;
    return result;
}

static void wait_for_reports(struct Zero *z) {
    gather_reports(z);
    device_wait(z->device, QUEUE_OUT, z->reported);
    receive_reports(z);
    device_record(z->device, QUEUE_OUT, z->received_all);
    device_sync_event(z->device, z->received_all);
}

struct StepResult zero_eval(struct Zero *z, struct Acts *acts, bool counts, bool stop) {
    struct Device *d = z->device;
    double *loss = &zero_report(z)->loss_sum;
    acts->mode = HEAD_LOSS;
    acts->loss_sum = loss;
    acts->accumulate_loss = false;
    zero_forward(z, acts);
    if (!counts)
        device_zero(d, QUEUE_COMPUTE, loss, sizeof *loss);
    device_record(d, QUEUE_COMPUTE, z->computed);
    device_wait(d, QUEUE_COMM, z->computed);
    send_word(z, stop);
    wait_for_reports(z);
    return sum_reports(z);
}

void zero_share(struct Zero *z, uint64_t mine, uint64_t *all) {
    device_sync_queue(z->device, QUEUE_COMPUTE);
    send_word(z, mine);
    wait_for_reports(z);
    for (int r = 0; r < z->dp->size; r++)
        all[r] = received_report(z, r)->word;
}

int zero_agree(struct Zero *z, int err) {
    uint64_t *all = base_alloc_zeroed((size_t)z->dp->size * sizeof *all);
    zero_share(z, (uint64_t)-err, all);
    err = 0;
    for (int r = z->dp->size - 1; r >= 0; r--)
        err = all[r] ? -(int)all[r] : err;
    free(all);
    return err;
}

int zero_compare(struct Zero *z, const char *text, struct Error *e) {
    uint64_t *all = base_alloc_zeroed((size_t)z->dp->size * sizeof *all);
    zero_share(z, hash64(text, strlen(text), 0), all);
    int other = 0;
    while (other < z->dp->size && all[other] == all[0])
        other++;
    free(all);
    if (other == z->dp->size)
        return 0;
    if (z->dp->rank > 0)
        return -EINVAL;
    return error_set(e, -EINVAL,
                     "rank %d has another text, other kernels or other flags than rank 0: expected "
                     "the same files on all machines, and --kernels that all of them run",
                     other);
}
