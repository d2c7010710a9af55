// Shared memory of the block that runs: bounds, unwritten bytes, races between its threads.
//
// Static __shared__ variables lie in one section of the binary (include/cusim/language.h), dynamic
// shared memory in a mapping of its own whose unused rest may not be touched.
//
// Two threads may use the same 2 bytes, one of them to write, only with a __syncthreads between, or
// within a warp a __syncwarp of all its lanes. (Shuffles order no memory, nor do collectives of some
// lanes.) Each barrier begins a new epoch of the block, each __syncwarp one of the warp; a cell says
// who used it last in which epoch. That needs no luck with the order in which threads take turns.
#include "tests/cusim/block.h"

#include <sys/mman.h>

extern "C" char __start_cusim_shared[] __attribute__((weak));
extern "C" char __stop_cusim_shared[] __attribute__((weak));

namespace cusim {

enum : int16_t { NOBODY = -1, SEVERAL = -2 }; // SEVERAL: threads, of one warp or of any (NOBODY)

struct Visit {
    uint32_t epoch, warp_epoch;
    int16_t thread, warp;
    bool atomic;
    const void *caller;
};

struct SharedCell {
    Visit write, read;
    uint8_t written; // by byte, in this block
};

static const size_t DYNAMIC_SPAN = 1 << 20;
static char *dynamic;
static size_t dynamic_bytes;
static std::vector<SharedCell> static_cells, dynamic_cells;
static uint32_t epoch = 1, block_epoch = 1; // now; when the block began
static std::vector<uint32_t> warp_epoch;

static size_t static_bytes() {
    return (size_t)(__stop_cusim_shared - __start_cusim_shared);
}

char *shared_open(size_t bytes) {
    if (!dynamic) {
        void *p = mmap(nullptr, DYNAMIC_SPAN, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            die("no memory for a block's shared memory");
        dynamic = static_cast<char *>(p) + DYNAMIC_SPAN / 2;
        static_cells.resize(static_bytes() / 2 + 1);
    }
    dynamic_bytes = bytes;
    if (dynamic_cells.size() < bytes / 2 + 1)
        dynamic_cells.resize(bytes / 2 + 1);
    return dynamic;
}

void shared_poison() {
    raw_set(dynamic, 0xff, dynamic_bytes);
    raw_set(__start_cusim_shared, 0xff, static_bytes());
    block_epoch = ++epoch;
    warp_epoch.assign(block.warp.size(), 0);
}

void shared_barrier() {
    epoch++;
}

void shared_warp_sync(int warp) {
    warp_epoch[(size_t)warp]++;
}

// ---- races ----

static bool before_me(const Visit &v, const Fiber *me) {
    if (v.epoch != epoch || v.thread == me->number)
        return true;
    return v.warp == me->warp && v.warp_epoch < warp_epoch[(size_t)me->warp];
}

static void check_order(const Visit &v, const char *verb, const Fiber *me, Use use,
                        const void *caller) {
    if (before_me(v, me) || (v.atomic && use == Use::ATOMIC))
        return;
    std::string other =
        v.thread == SEVERAL ? "other threads" : "thread " + std::to_string(v.thread);
    die_at(caller,
           "race in shared memory: %s by this thread, %s by %s at %s, and no barrier between",
           use == Use::READ ? "read" : "write", verb, other.c_str(), code_place(v.caller).c_str());
}

static void note_visit(Visit *v, const Fiber *me, Use use, const void *caller) {
    bool alone = before_me(*v, me);
    int16_t warp = (int16_t)me->warp;
    *v = {epoch,
          warp_epoch[(size_t)me->warp],
          alone ? (int16_t)me->number : (int16_t)SEVERAL,
          alone || v->warp == warp ? warp : (int16_t)NOBODY,
          use == Use::ATOMIC,
          caller};
}

static void visit(SharedCell *cell, unsigned mask, Use use, const void *caller) {
    const Fiber *me = block.now;
    bool reads = use == Use::READ || use == Use::ATOMIC;
    if (cell->write.epoch < block_epoch)
        cell->written = 0;
    if (reads && (cell->written & mask) != mask)
        die_at(caller, "read of shared memory that nobody has written");
    check_order(cell->write, "write", me, use, caller);
    if (use == Use::READ)
        return note_visit(&cell->read, me, use, caller);
    check_order(cell->read, "read", me, use, caller);
    cell->write = {epoch,
                   warp_epoch[(size_t)me->warp],
                   (int16_t)me->number,
                   (int16_t)me->warp,
                   use == Use::ATOMIC,
                   caller};
    cell->written |= (uint8_t)mask;
}

bool shared_hook(uintptr_t a, size_t bytes, Use use, const void *caller) {
    uintptr_t start = reinterpret_cast<uintptr_t>(__start_cusim_shared);
    uintptr_t base = reinterpret_cast<uintptr_t>(dynamic), span = base - DYNAMIC_SPAN / 2;
    std::vector<SharedCell> *cells = &static_cells;
    if (a - start >= static_bytes()) {
        if (a - span >= DYNAMIC_SPAN)
            return false;
        if (a < base || a + bytes > base + dynamic_bytes)
            die_at(caller, "%s of %zu bytes at byte %zd of the %zu bytes of dynamic shared memory",
                   use == Use::READ ? "read" : "write", bytes, (ssize_t)(a - base), dynamic_bytes);
        cells = &dynamic_cells;
        start = base;
    }
    size_t first = (a - start) / 2, last = (a + bytes - 1 - start) / 2;
    for (size_t g = first; g <= last; g++) {
        unsigned mask = 3;
        if (g == first && (a - start) % 2)
            mask = 2;
        if (g == last && (a + bytes - start) % 2)
            mask &= 1;
        visit(&(*cells)[g], mask, use, caller);
    }
    return true;
}

} // namespace cusim
