// The walk: one training step, unit by unit.
//
// This is the program's centre. GPT's order of layers is known, so ZeRO needs no hooks and no
// tracing: the walk goes down a list of visits, calls a function before and after each, and the
// stage's row in stages.c decides what that means for weights and gradients. Everything here only
// queues work on the device; the caller waits once, in zero_step_wait, for the loss and the norm.
// It may queue the next step before that, since a step needs nothing newer from the host than what
// was known one step earlier (kernels/step_state.h).
//
// Events order the four queues: docs/events.md says which queue waits for which, and what happens
// without it. Read next: hop.h and stages.c; for a step's end, results.c and reports.c.
#include "zero/engine.h"
#include "zero/report.h"

#include "model/model.h"

void zero_label_visit(struct Zero *z, const struct Visit *v) {
    struct Label *l = &z->device->label;
    l->unit = z->params->first_unit + v->unit;
    l->backward = v->backward;
    l->micro = v->micro;
}

static void before_visit(struct Zero *z, const struct Visit *v) {
    zero_label_visit(z, v);
    for (int i = 0; i < v->ngroup; i++)
        weights_fetch(z, v, v->group[i]);
    if (v->backward)
        gradient_set_target(z, v);
    z->backing.ops->before_unit(z, v);
}

// Begins to fetch the weights of the next visits after this one is queued; also those of the next
// pass, so that its first visits do not wait for this pass's last reductions.
static void prefetch_weights(struct Zero *z, const struct Visit *v) {
    const struct Visit *next = v + 1;
    for (; next <= v + z->plan.prefetch && next->unit >= 0; next++)
        for (int i = 0; i < next->ngroup; i++)
            weights_prefetch(z, next, next->group[i]);
}

// Fetches the next visits' weights first: a gather queued after the reduction would wait, as that
// does, for this unit's backward pass.
static void after_visit(struct Zero *z, const struct Visit *v) {
    prefetch_weights(z, v);
    if (v->grad_complete && !v->reduced_after_pass)
        gradient_reduce(z, v);
    for (int i = 0; i < v->ngroup; i++)
        weights_release(z, v, v->group[i]);
    z->backing.ops->after_unit(z, v);
}

static void walk_forward(struct Zero *z, const struct Pass *p, struct Acts *acts) {
    for (const struct Visit *v = p->visit; v < p->visit + p->nvisit; v++) {
        before_visit(z, v);
        unit_forward(z->model, v->unit, z->w, acts); // model/units.c
        after_visit(z, v);
    }
}

static void walk_backward(struct Zero *z, const struct Pass *p, struct Acts *acts) {
    for (const struct Visit *v = p->visit; v < p->visit + p->nvisit; v++) {
        before_visit(z, v);
        acts_restore(z->model, v->unit, z->w, acts);
        unit_backward(z->model, v->unit, z->w, z->dw, acts);
        after_visit(z, v);
    }
}

// Reduces the last pipeline stage's copy of a tied embedding (zero/pipe) only now: the first stage,
// with which it is summed, needs what this pass sends. Before that, both would wait for ever.
static void reduce_after_pass(struct Zero *z, const struct Pass *p) {
    for (const struct Visit *v = p->visit; v < p->visit + p->nvisit; v++) {
        z->device->label.unit = z->params->first_unit + v->unit;
        if (v->reduced_after_pass)
            gradient_reduce(z, v);
    }
}

void zero_step_begin(struct Zero *z, const struct StepState *settings) {
    struct StepState *sent = zero_host_copy(z)->sent;
    CHECK(z->step - z->known <= STEPS_AHEAD, "%zu steps whose results nobody took",
          (size_t)(z->step - z->known));
    z->device->label.step = z->step + 1;
    z->device->label.unit = -1;
    *sent = *settings;
    sent->loss_scale_settings = z->loss_scale_settings;
}

void zero_step_pass(struct Zero *z, const struct Pass *p, struct Acts *acts) {
    acts->mode = HEAD_TRAIN;
    acts->seed = z->seed;
    acts->loss_sum = &zero_report(z)->loss_sum;
    acts->loss_scale = &z->control->loss_scale.scale;
    acts->accumulate_loss = z->backwards_done > 0;
    acts_use(acts, p->micro);
    z->parallel->receive(z, p, acts);
    if (p->backward) {
        // The last step's reports must have left before this pass overwrites them.
        if (z->backwards_done == 0 && z->known < z->step)
            device_wait(z->device, QUEUE_COMPUTE, zero_last_copy(z)->received_all);
        walk_backward(z, p, acts);
    } else {
        walk_forward(z, p, acts);
    }
    z->parallel->send(z, p, acts);
    reduce_after_pass(z, p);
    z->backwards_done += p->backward;
}

void zero_forward(struct Zero *z, struct Acts *acts) {
    acts_use(acts, z->forward_pass->micro);
    z->parallel->receive(z, z->forward_pass, acts);
    walk_forward(z, z->forward_pass, acts);
    z->parallel->send(z, z->forward_pass, acts);
}

void zero_step_end(struct Zero *z, uint64_t word) {
    struct Device *d = z->device;
    d->label.unit = -1;
    results_queue(z, word);
    z->backing.ops->step_reported(z);
    for (int g = 0; g < z->params->ngroup; g++) {
        d->label.unit = params_update_unit(z->params, g);
        if (update_is_on_device(z, g))
            update_group(z, g);
    }
    d->label.unit = -1;
    z->backing.ops->step_queued(z);
    device_record(d, QUEUE_COMPUTE, z->reports->settings_used);
    d->label.step = 0; // what follows belongs to no step
    z->step++;
    z->backwards_done = 0;
}
