// The walk: one training step, unit by unit.
//
// This is the program's centre. GPT's order is known, so ZeRO needs no hooks and no tracing: the
// walk says before and after each unit what is about to happen, and the stage's row in stages.c
// decides what that means for weights and gradients. Everything here only queues work on the
// device; the host waits once, in zero_step_wait, for the loss and the norm.
//
// Events tie the four queues together. Each wait below names the record that it answers:
//   in -> compute   state_sent      the step's learning rate and bias corrections have arrived
//   compute -> comm backward_done   a group's gradient is complete (grad.c)
//   comm -> compute reduced         all gradients are reduced and their norms known (opt.c)
//   compute -> out  updated         the step's results may be copied to the host
//   out -> host     received_all    they have been; then the control block may be written again
#include "zero/zero.h"

#include "model/model.h"

void walk_forward(struct Zero *z, int first, int last, struct Acts *acts) {
    for (int u = first; u < last; u++) {
        int g = model_unit_group(z->model, u);
        z->stage->before_forward(z, u, g);
        unit_forward(z->model, u, z->w, acts);
        z->stage->after_forward(z, u, g);
    }
}

void walk_backward(struct Zero *z, int first, int last, struct Acts *acts) {
    for (int u = last - 1; u >= first; u--) {
        int g = model_unit_group(z->model, u);
        z->stage->before_backward(z, u, g);
        acts_restore(z->model, u, z->w, acts);
        unit_backward(z->model, u, z->w, z->dw, acts);
        z->stage->after_backward(z, u, g);
    }
}

void zero_step_micro(struct Zero *z, struct Acts *acts) {
    acts->mode = HEAD_TRAIN;
    acts->loss_sum = &z->control->loss_sum;
    acts->accumulate_loss = z->micro > 0;
    int last = model_units(z->model);
    walk_forward(z, 0, last, acts);
    walk_backward(z, 0, last, acts);
    z->micro++;
}

void zero_step_end(struct Zero *z, const struct StepState *settings) {
    struct Device *d = z->device;
    z->sent->state = *settings;
    device_copy(d, QUEUE_IN, &z->control->state, &z->sent->state, sizeof z->sent->state);
    device_record(d, QUEUE_IN, z->state_sent);
    device_wait(d, QUEUE_COMPUTE, z->state_sent);
    update_begin(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        z->stage->update(z, g);
        z->stage->after_update(z, g);
    }
    device_record(d, QUEUE_COMPUTE, z->updated);
    device_wait(d, QUEUE_OUT, z->updated);
    device_copy(d, QUEUE_OUT, z->received, z->control, sizeof *z->received);
    device_record(d, QUEUE_OUT, z->received_all);
    z->step++;
    z->micro = 0;
}

struct StepResult zero_step_wait(struct Zero *z) {
    device_sync_event(z->device, z->received_all);
    const struct StepControl *r = z->received;
    return (struct StepResult){r->loss_sum, r->state.grad_norm, r->state.skip != 0};
}

double zero_eval(struct Zero *z, struct Acts *acts) {
    struct Device *d = z->device;
    acts->mode = HEAD_LOSS;
    acts->loss_sum = &z->control->loss_sum;
    acts->accumulate_loss = false;
    walk_forward(z, 0, model_units(z->model), acts);
    device_record(d, QUEUE_COMPUTE, z->updated);
    device_wait(d, QUEUE_OUT, z->updated);
    device_copy(d, QUEUE_OUT, &z->received->loss_sum, &z->control->loss_sum, sizeof(double));
    device_record(d, QUEUE_OUT, z->received_all);
    device_sync_event(d, z->received_all);
    return z->received->loss_sum;
}
