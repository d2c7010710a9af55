// What all backends of collectives share: names, counting, comparing, failing.
#include "zero/comm.h"

#include <stdarg.h>
#include <stdio.h>

const char *const collective_names[NCOLLECTIVE] = {"all_gather", "reduce_scatter", "all_reduce",
                                                   "broadcast", "barrier"};

struct CommCall comm_call(struct Comm *c, enum Collective kind, enum Dtype dtype, size_t bytes) {
    uint64_t others = (uint64_t)c->size - 1;
    c->bytes[kind] += others * bytes * (kind == COMM_ALL_REDUCE ? 2 : 1);
    c->device->label.what = collective_name(kind);
    c->device->label.bytes = others * bytes;
    return (struct CommCall){c->calls++, kind, dtype, bytes};
}

void comm_queued(struct Comm *c) {
    c->device->label.what = NULL;
    c->device->label.bytes = 0;
}

bool comm_calls_agree(const struct CommCall calls[], int size, char *text, size_t text_bytes) {
    const struct CommCall *first = &calls[0];
    for (int r = 1; r < size; r++) {
        const struct CommCall *c = &calls[r];
        if (c->sequence == first->sequence && c->collective == first->collective &&
            c->dtype == first->dtype && c->bytes == first->bytes)
            continue;
        snprintf(text, text_bytes,
                 "ranks are out of step: rank 0 is at collective %llu, %s of %llu bytes (%s); rank "
                 "%d at %llu, %s of %llu bytes (%s)",
                 (unsigned long long)first->sequence, collective_name(first->collective),
                 (unsigned long long)first->bytes, dtype_name(first->dtype), r,
                 (unsigned long long)c->sequence, collective_name(c->collective),
                 (unsigned long long)c->bytes, dtype_name(c->dtype));
        return false;
    }
    return true;
}

_Noreturn void comm_fail(struct Comm *c, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "train: rank %d: %s\n", c->rank, text);
    fflush(NULL);
    c->ops->abort(c);
    __builtin_unreachable();
}
