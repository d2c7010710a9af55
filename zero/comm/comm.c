// What all backends of collectives share: names, counting, comparing, failing.
#include "zero/comm/comm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *const collective_names[NCOLLECTIVE] = {"all_gather", "reduce_scatter", "all_reduce",
                                                   "broadcast", "barrier"};

struct CommCall comm_call(struct Comm *c, enum Collective kind, enum Dtype dtype, size_t bytes) {
    uint64_t others = (uint64_t)c->size - 1;
    c->bytes[kind] += others * bytes * (kind == COMM_ALL_REDUCE ? 2 : 1);
    c->device->label.what = collective_name(kind);
    c->device->label.group = axis_name(c->axis);
    c->device->label.bytes = others * bytes;
    return (struct CommCall){c->calls++, kind, dtype, bytes};
}

void comm_queued(struct Comm *c) {
    c->device->label.what = c->device->label.group = NULL;
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

// ---- which ranks are missing ----

struct Names {
    char *text;
    size_t bytes, length;
};

// " R"; what there is no room for is left out.
static void add_name(struct Names *n, int rank) {
    if (n->length + 8 < n->bytes)
        n->length += (size_t)snprintf(n->text + n->length, n->bytes - n->length, " %d", rank);
}

int comm_attend(struct Comm *c, uint64_t begun, char *text, size_t text_bytes) {
    bool *gone = base_alloc_zeroed((size_t)c->size * sizeof *gone);
    struct Names names = {text, text_bytes, 0};
    int count = c->ops->attend(c, begun, gone);
    for (int r = 0; r < c->size; r++)
        if (gone[r])
            add_name(&names, r);
    free(gone);
    return count;
}

void comm_roll_call(struct Comm *c, uint64_t mine, uint64_t needed, char *text, size_t text_bytes) {
    uint64_t *begun = base_alloc_zeroed((size_t)c->size * sizeof *begun);
    char absent[160] = "", behind[160] = "";
    struct Names no_sign = {absent, sizeof absent, 0}, not_come = {behind, sizeof behind, 0};
    c->ops->roll_call(c, mine, begun);
    for (int r = 0; r < c->size; r++)
        if (begun[r] == COMM_NO_SIGN)
            add_name(&no_sign, r);
        else if (begun[r] < needed)
            add_name(&not_come, r);
    snprintf(text, text_bytes, "%s%s%s%s%s", absent[0] ? "; no sign of rank" : "", absent,
             behind[0] ? "; it has not been begun by rank" : "", behind,
             absent[0] || behind[0] ? "" : "; all ranks are in it");
    free(begun);
}

// ---- failing ----

_Noreturn void comm_abort(struct Comm *c) {
    struct Comm *end = c->outer ? c->outer : c;
    end->ops->abort(end);
    __builtin_unreachable();
}

_Noreturn void comm_fail(struct Comm *c, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    base_last_line("train: rank %d: %s\n", c->rank, text);
    comm_abort(c);
}
