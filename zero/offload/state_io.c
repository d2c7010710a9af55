// Reads and writes state between steps, in any tier: initial values, and copies for the host.
//
// It does so in chunks, so that no memory grows with the model. Called by zero/state.c through
// struct BackingOps; the queues that use the state are idle.
#include "zero/master/master.h"
#include "zero/offload/offload.h"

void state_io_copy(struct Zero *z, const struct Block *b, size_t offset, void *mem, size_t bytes,
                   bool to_block) {
    move_now(&offload_of(z)->mover, b, offset, mem, bytes, to_block);
}

void state_io_init(struct Zero *z, int g) {
    if (!host_updates(z, g)) {
        zero_init_group(z, g);
        return;
    }
    for (enum State what = STATE_MASTER; what < NSTATE; what++) // masters before v
        master_fill(z, g, what, 0, what != STATE_MASTER);
}

// Parameters, and new weights not yet installed, := master weights; late: only the latter.
void state_io_store(struct Zero *z, int g, bool late) {
    struct Offload *o = offload_of(z);
    struct Block *param = zero_own_block(z, g), *new_weights = &o->group[g].new_weights;
    CHECK(!late || o->options.delayed, "a delayed update where none is");
    if (!zero_has_master(z, g))
        return;
    if (!host_updates(z, g) && lies_on(&z->plan.param, TIER_DEVICE)) {
        zero_store_group(z, g, false);
        return;
    }
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    enum Dtype dtype = z->plan.param.dtype;
    size_t numel = zero_owned_numel(z, g), size = dtype_size(dtype);
    size_t at = weights_own_offset(z, g) * size;
    for (size_t i = 0; i < numel; i += STATE_CHUNK) {
        size_t n = size_min(STATE_CHUNK, numel - i);
        zero_read_state(z, g, STATE_MASTER, i, n, chunk);
        for (size_t j = 0; j < n && dtype != F32; j++)
            dtype_store(chunk, dtype, j, chunk[j]);
        if (!late)
            move_now(&o->mover, param, at + i * size, chunk, n * size, true);
        if (new_weights->tier)
            move_now(&o->mover, new_weights, i * size, chunk, n * size, true);
    }
    device_free_host(z->device, chunk);
}

// Runs only when all groups are stored, since what follows uses the disk, too, which takes one
// reader and one writer at a time.
void state_io_after_store(struct Zero *z, int g, bool late) {
    host_set_pending(z, g, late);
    if (lies_on(&z->plan.param, TIER_DEVICE)) // elsewhere they are in place already
        mark_record(&z->state[g].updated, z->device, QUEUE_COMPUTE);
    weights_publish(z, g);
}

bool state_io_is_late(const struct Zero *z) {
    return offload_of(z)->update.late;
}
