// The results of steps and of validation: they are on the device until the host waits for them.
//
// The loss needs no wait of its own in a step: it is summed before unit 0's backward pass ends, and
// with that the last group's gradient is handed over. Read next: reports.c.
#include "zero/report.h"

#include "model/model.h"

#include <stddef.h>

void zero_send_counts(struct Zero *z) {
    const size_t begin = offsetof(struct StepState, updates);
    const size_t end = offsetof(struct StepState, correction);
    struct StepState *sent = zero_host_copy(z)->sent;
    sent->updates = z->updates;
    sent->loss_scale = z->loss_scale;
    device_sync_queue(z->device, QUEUE_COMPUTE);
    device_copy(z->device, QUEUE_IN, &z->control->updates, &sent->updates, end - begin);
    device_sync_queue(z->device, QUEUE_IN);
}

struct StepResult zero_step_wait(struct Zero *z) {
    CHECK(z->known < z->step, "no step was queued");
    const struct HostCopy *copy = &z->host_copy[z->known % HOST_COPIES];
    const struct StepState *control = copy->received_control;
    device_sync_event(z->device, copy->received_all);
    struct StepResult result = reports_sum(z, copy);
    result.step = ++z->known;
    result.lr = control->lr;
    result.grad_norm = control->grad_norm;
    result.skipped = control->skip != 0;
    bool least = z->loss_scale.scale == z->loss_scale_settings.least;
    z->skipped_at_least = result.skipped ? z->skipped_at_least + least : 0;
    if (z->plan.param.dtype == F16)
        result.loss_scale = z->loss_scale;
    z->loss_scale = control->loss_scale;
    z->updates = control->updates;
    return result;
}

struct StepResult zero_eval(struct Zero *z, struct Acts *acts, bool counts, uint64_t word) {
    struct Device *d = z->device;
    double *loss = &zero_report(z)->loss_sum;
    acts->mode = HEAD_LOSS;
    acts->loss_sum = loss;
    acts->accumulate_loss = false;
    zero_forward(z, acts);
    if (!counts)
        device_zero(d, QUEUE_COMPUTE, loss, sizeof *loss);
    device_record(d, QUEUE_COMPUTE, z->loss_summed);
    device_wait(d, QUEUE_COMM, z->loss_summed);
    reports_send_word(z, word);
    reports_wait(z);
    return reports_sum(z, zero_host_copy(z));
}
