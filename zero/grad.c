// Gradients: where a unit leaves them, how they are reduced over ranks, and their norm.
//
// A group's gradient is complete after the backward pass of the last unit that uses it, in the
// step's last micro-batch. From then on it is the comm queue's: it reduces the gradient and, right
// behind, sums its squares shard by shard, while compute goes on with the next unit's backward
// pass.
#include "zero/zero.h"

#include "model/grad.h"

// The whole gradient lies on the device; the first micro-batch of a step overwrites it.
void grads_resident(struct Zero *z, int u, int g) {
    params_resident(z, u, g);
    z->dw[g] = (struct Grad){z->state[g].grad.mem, z->micro > 0};
}

// Units run backward, so a group's last use is its lowest unit; group g's is unit g
// (model_unit_group).
static bool is_last_use(int u, int g) {
    return u == g;
}

// squares[g, r] = squared norm of shard r, for every shard that lies here.
static void sum_squares(struct Zero *z, int g, const void *grad, int first_shard, int nshard) {
    struct Device *d = z->device;
    enum Dtype dtype = z->plan.grad.dtype;
    size_t n = z->params->group[g].padded / (size_t)z->dp->size;
    for (int i = 0; i < nshard; i++)
        d->kernels->sum(d->queue[QUEUE_COMM],
                        &(struct Sum){
                            .n = n,
                            .dtype = dtype,
                            .x = dtype_at(grad, dtype, (size_t)i * n),
                            .square = true,
                            .out = &z->squares[g * z->dp->size + first_shard + i],
                        });
}

void grads_all_reduce_at_end(struct Zero *z, int u, int g) {
    if (!is_last_use(u, g) || z->micro + 1 < z->plan.nmicro)
        return;
    struct Device *d = z->device;
    void *grad = z->state[g].grad.mem;
    device_record(d, QUEUE_COMPUTE, z->backward_done);
    device_wait(d, QUEUE_COMM, z->backward_done);
    z->dp->ops->all_reduce(z->dp, grad, z->params->group[g].padded / (size_t)z->dp->size,
                           z->plan.grad.dtype, d->queue[QUEUE_COMM]);
    sum_squares(z, g, grad, 0, z->dp->size);
    device_record(d, QUEUE_COMM, z->reduced);
}
