// The walk: one training step, unit by unit.
//
// This is the program's centre. GPT's order is known, so ZeRO needs no hooks and no tracing: the
// walk says before and after each unit what is about to happen, and the stage's row in stages.c
// decides what that means for weights and gradients. Everything here only queues work on the
// device; the caller waits once, in zero_step_wait, for the loss and the norm (and on a GPU, whose
// queues cannot, for offloaded state that the CPU is still at work on: mark.h).
//
// Events tie the four queues together. Each wait below names the record that it answers:
//   in -> compute    settings_sent  the step's settings have arrived; the backward pass begins with
//                                   one of them, the loss scale
//   in -> comm       word_sent      this rank's word has arrived
//   compute -> comm  backward_done  a group's gradient is complete (grad.c)
//   compute -> comm  computed       likewise the loss, where there is no backward pass
//   comm -> compute  reported       all reduced gradients and every rank's report
//   compute -> out   clipped        the step's results may be copied to the host
//   out -> host      received_all   they have been; then reports may be written again
//   compute -> in    updated        and the settings, too
// and around the weights, where they are fetched or gathered, those of param.c; around offloaded
// state those of grad.c, opt.c, host.c and keep.c. The loss needs no wait of its
// own in a step: it is summed before unit 0's backward pass ends, and with that the last group's
// gradient is handed over.
#include "zero/zero.h"

#include "model/model.h"

void walk_forward(struct Zero *z, int first, int last, struct Acts *acts) {
    for (int u = first; u < last; u++) {
        zero_before_forward(z, u);
        unit_forward(z->model, u, z->w, acts);
        zero_after_forward(z, u);
    }
}

void walk_backward(struct Zero *z, int first, int last, struct Acts *acts) {
    for (int u = last - 1; u >= first; u--) {
        zero_before_backward(z, u);
        acts_restore(z->model, u, z->w, acts);
        unit_backward(z->model, u, z->w, z->dw, acts);
        zero_after_backward(z, u);
    }
}

void zero_step_begin(struct Zero *z, const struct StepState *settings) {
    struct Device *d = z->device;
    d->label.step = z->step + 1;
    d->label.unit = -1;
    *z->sent = *settings;
    z->sent->loss_scale = z->loss_scale.scale;
    device_wait(d, QUEUE_IN, z->updated);
    device_copy(d, QUEUE_IN, z->control, z->sent, sizeof *z->sent);
    device_record(d, QUEUE_IN, z->settings_sent);
}

void zero_step_micro(struct Zero *z, struct Acts *acts) {
    acts->mode = HEAD_TRAIN;
    acts->loss_sum = &zero_report(z)->loss_sum;
    acts->loss_scale = &z->control->loss_scale;
    acts->accumulate_loss = z->micro > 0;
    int last = model_units(z->model);
    z->backward_follows = true;
    walk_forward(z, 0, last, acts);
    if (z->micro == 0)
        device_wait(z->device, QUEUE_COMPUTE, z->settings_sent);
    walk_backward(z, 0, last, acts);
    z->micro++;
}

void zero_forward(struct Zero *z, struct Acts *acts) {
    z->backward_follows = false;
    walk_forward(z, 0, model_units(z->model), acts);
}

void zero_step_end(struct Zero *z, bool stop) {
    struct Device *d = z->device;
    d->label.unit = -1;
    reports_send_word(z, stop);
    reports_gather(z);
    update_begin(z);
    device_wait(d, QUEUE_OUT, z->clipped);
    host_wait_done(z);
    reports_receive(z);
    device_copy(d, QUEUE_OUT, z->received_control, z->control, sizeof *z->control);
    device_record(d, QUEUE_OUT, z->received_all);
    host_told(z);
    host_install_late(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        d->label.unit = g;
        z->stage->update(z, g);
    }
    d->label.unit = -1;
    host_advance(z, 0);
    device_record(d, QUEUE_COMPUTE, z->updated);
    d->label.step = 0; // what follows belongs to no step
    z->step++;
    z->micro = 0;
}

struct StepResult zero_step_wait(struct Zero *z) {
    device_sync_event(z->device, z->received_all);
    struct StepResult result = reports_sum(z);
    result.grad_norm = z->received_control->grad_norm;
    result.skipped = z->received_control->skip != 0;
    z->updates += !result.skipped;
    bool least = z->loss_scale.scale == z->loss_scale_settings.least;
    z->hopeless = result.skipped ? z->hopeless + least : 0;
    if (z->plan.param.dtype == F16)
        result.loss_scale = z->loss_scale;
    loss_scale_update(&z->loss_scale, &z->loss_scale_settings, result.skipped);
    return result;
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
    reports_send_word(z, stop);
    reports_wait(z);
    return reports_sum(z);
}
