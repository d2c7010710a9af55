// The parts that all backends of collectives share: names, counting, comparing, failing.
#include "zero/comm/comm.h"

#include <stdarg.h>
#include <string.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *const collective_names[NCOLLECTIVE] = {
    "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "swap", "barrier", "broadcast"};

void comm_set_nodes(struct Comm *c, int ranks) {
    int mine = comm_job_rank(c, c->rank) / ranks;
    c->inter_node_ranks = 0;
    for (int r = 0; r < c->size; r++)
        c->inter_node_ranks += comm_job_rank(c, r) / ranks != mine;
}

struct CommCall comm_call(struct Comm *c, enum Collective kind, enum Dtype dtype, size_t bytes) {
    uint64_t others = (uint64_t)c->size - 1;
    uint64_t times = kind == COMM_ALL_REDUCE ? 2 : 1; // it scatters and gathers
    c->sent.bytes[kind] += times * others * bytes;
    c->sent.inter_node += times * (uint64_t)c->inter_node_ranks * bytes;
    c->device->label.what = collective_name(kind);
    c->device->label.group = axis_name(c->axis);
    c->device->label.bytes = others * bytes;
    return (struct CommCall){c->calls++, kind, dtype, bytes};
}

struct CommCall comm_call_swap(struct Comm *c, size_t bytes, bool sends) {
    struct Traffic before = c->sent;
    struct CommCall call = comm_call(c, COMM_SWAP, F32, bytes);
    c->sent = sends ? c->sent : before;
    return call;
}

// Sets the queue of c, and its line in the job's grid: axis, first rank and stride. Returns c.
static struct Comm *set_line(struct Comm *c, const struct CommSplit *split) {
    c->queue = split->queue;
    c->axis = split->line.axis;
    c->origin = split->line.origin;
    c->stride = split->line.stride;
    return c;
}

struct Comm *comm_split_line(struct Comm *all, const struct CommSplit *split, bool dry) {
    const struct GridLine *line = &split->line;
    return set_line(dry ? comm_open_dry(all->device, line->coord, line->size)
                        : all->ops->split(all, split),
                    split);
}

struct Comm *comm_split_even(struct Comm *all, const struct CommSplit *split, bool dry) {
    bool alone = split->line.size == 1 && !dry;
    return alone ? set_line(comm_open_self(all->device), split) : comm_split_line(all, split, dry);
}

struct Comm *comm_split(struct Comm *all, const struct Grid *grid, enum Axis axis, bool dry) {
    struct CommSplit split = {grid_line(grid, all->rank, axis), all->queue, NULL};
    return comm_split_even(all, &split, dry);
}

void comm_queued(struct Comm *c) {
    c->device->label.what = c->device->label.group = NULL;
    c->device->label.bytes = 0;
}

bool comm_calls_agree(const struct Comm *c, const struct CommCall calls[], char *text,
                      size_t text_bytes) {
    const struct CommCall *first = &calls[0];
    for (int r = 1; r < c->size; r++) {
        const struct CommCall *call = &calls[r];
        if (call->sequence == first->sequence && call->collective == first->collective &&
            call->dtype == first->dtype && call->bytes == first->bytes)
            continue;
        snprintf(
            text, text_bytes,
            "ranks are out of step: rank %d is at collective %llu, %s of %llu bytes (%s); rank "
            "%d at %llu, %s of %llu bytes (%s); give all machines the same program and flags",
            comm_job_rank(c, 0), (unsigned long long)first->sequence,
            collective_name(first->collective), (unsigned long long)first->bytes,
            dtype_name(first->dtype), comm_job_rank(c, r), (unsigned long long)call->sequence,
            collective_name(call->collective), (unsigned long long)call->bytes,
            dtype_name(call->dtype));
        return false;
    }
    return true;
}

// ---- which ranks are missing ----

char *comm_name_ranks(const struct Comm *c, const bool *marked) {
    char *names = base_format("%s", "");
    for (int r = 0; r < c->size && strlen(names) < 150; r++)
        if (marked[r])
            base_append(&names, " %d", comm_job_rank(c, r));
    return names;
}

char *comm_heartbeat(struct Comm *c, uint64_t begun) {
    bool *gone = base_alloc_zeroed((size_t)c->size * sizeof *gone);
    char *names = c->ops->heartbeat(c, begun, gone) ? comm_name_ranks(c, gone) : NULL;
    free(gone);
    return names;
}

char *comm_collect_progress(struct Comm *c, uint64_t mine, uint64_t needed) {
    size_t size = (size_t)c->size;
    uint64_t *begun = base_alloc_zeroed(size * sizeof *begun);
    bool *is_silent = base_alloc_zeroed(size), *is_behind = base_alloc_zeroed(size);
    c->ops->collect_progress(c, mine, begun);
    for (size_t r = 0; r < size; r++) {
        is_silent[r] = begun[r] == COMM_NO_SIGN;
        is_behind[r] = begun[r] < needed;
    }
    const char *silent = comm_name_ranks(c, is_silent), *behind = comm_name_ranks(c, is_behind);
    return base_format("%s%s%s%s%s", *silent ? "; no sign of rank" : "", silent,
                       *behind ? "; it has not been begun by rank" : "", behind,
                       *silent || *behind ? "" : "; all ranks are in it");
}

// ---- failing ----

const char comm_lost_advice[] = "its own output says why, or dmesg if it was killed; --resume auto "
                                "continues from the newest checkpoint";

void comm_exit(struct Comm *c) {
    (void)c;
    _exit(2);
}

_Noreturn void comm_abort(struct Comm *c) {
    struct Comm *end = c->outer ? c->outer : c;
    end->ops->abort(end);
    __builtin_unreachable();
}

_Noreturn void comm_fail(struct Comm *c, enum ErrorId id, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    base_last_line("train: rank %d: %s [%s]\n", comm_job_rank(c, c->rank), text, error_name(id));
    comm_abort(c);
}

// ---- between hosts ----

static struct Comm *host_comm(const struct Comm *c) {
    return c->hosts ? c->hosts : (struct Comm *)c;
}

bool comm_can_broadcast_host(const struct Comm *c) {
    return host_comm(c)->ops->broadcast_host != NULL;
}

bool comm_broadcast_host(struct Comm *c, void *mem, size_t bytes, int root) {
    if (comm_can_broadcast_host(c))
        host_comm(c)->ops->broadcast_host(host_comm(c), mem, bytes, root);
    return comm_can_broadcast_host(c);
}

// Ranks of one process read each other's shards, between two times at which all are ready.
void comm_gather_host(struct Comm *c, void *whole, const void *own, size_t bytes) {
    struct Comm *hosts = host_comm(c);
    uint64_t *all = base_alloc((size_t)c->size * sizeof *all);
    memcpy((char *)whole + bytes * (size_t)c->rank, own, bytes);
    if (c->size > 1 && !comm_can_broadcast_host(c))
        hosts->ops->share(hosts, (uint64_t)(uintptr_t)own, all);
    for (int r = 0; r < c->size && c->size > 1; r++) {
        char *to = (char *)whole + bytes * (size_t)r;
        if (!comm_broadcast_host(c, to, bytes, r) && r != c->rank)
            memcpy(to, (const void *)(uintptr_t)all[r], bytes);
    }
    if (c->size > 1 && !comm_can_broadcast_host(c))
        hosts->ops->share(hosts, 0, all);
    free(all);
}
