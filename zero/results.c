// Sends a step's settings from the host to the device, and its results back.
//
// Results of steps and of validation stay on the device until the host waits for them. The loss
// needs no wait of its own in a step: it is summed before unit 0's backward pass ends, and only
// then is the last group's gradient handed over. Read next: reports.c.
#include "zero/report.h"

#include "model/model.h"

#include <stddef.h>

// Sends the settings ahead of the word: the kernels of the step's end wait for that.
static void send_settings(struct Zero *z) {
    struct Device *d = z->device;
    device_wait(d, QUEUE_IN, z->reports->settings_used);
    if (z->known < z->step)
        device_wait(d, QUEUE_IN, zero_last_copy(z)->received_all);
    device_copy(d, QUEUE_IN, z->control, zero_host_copy(z)->sent,
                offsetof(struct StepState, updates));
}

void results_queue(struct Zero *z, uint64_t word) {
    struct Device *d = z->device;
    struct HostCopy *copy = zero_host_copy(z);
    send_settings(z);
    // The comm queue has the loss with the last gradient, if this rank has one.
    if (!params_trains(z->params)) {
        device_record(d, QUEUE_COMPUTE, z->reports->loss_summed);
        device_wait(d, QUEUE_COMM, z->reports->loss_summed);
    }
    reports_send_word(z, word);
    reports_gather(z);
    reports_clip(z);
    device_wait(d, QUEUE_OUT, z->reports->clipped);
    reports_receive(z);
    device_copy(d, QUEUE_OUT, copy->received_control, z->control, sizeof *z->control);
    device_record(d, QUEUE_OUT, copy->received_all);
}

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
    const struct HostCopy *copy = &z->reports->host_copy[z->known % HOST_COPIES];
    const struct StepState *control = copy->received_control;
    device_sync_event(z->device, copy->received_all);
    struct StepResult result = reports_sum(z, copy);
    result.step = ++z->known;
    result.lr = control->lr;
    result.grad_norm = control->grad_norm;
    result.skipped = control->skip != 0;
    bool scale_is_least = z->loss_scale.scale == z->loss_scale_settings.least;
    z->skipped_at_least = result.skipped ? z->skipped_at_least + scale_is_least : 0;
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
    device_record(d, QUEUE_COMPUTE, z->reports->loss_summed);
    device_wait(d, QUEUE_COMM, z->reports->loss_summed);
    reports_send_word(z, word);
    reports_wait(z);
    return reports_sum(z, zero_host_copy(z));
}
