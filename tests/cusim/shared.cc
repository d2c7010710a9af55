// Shared memory of the block that runs: bounds, unwritten bytes, races between its threads.
//
// Static __shared__ variables lie in one section of the binary (include/cusim/language.h), dynamic
// shared memory in a mapping of its own whose unused rest may not be touched.
//
// Two threads may use the same bytes, one of them to write, only with a __syncthreads between, or
// within a warp a __syncwarp of all its lanes. (Shuffles order no memory, nor do collectives of
// some lanes.) Each barrier begins a new epoch of the block, each __syncwarp one of the warp; a
// cell says who used its two bytes last in which epoch. That needs no luck with the order in which
// threads take turns.
//
// Most of the simulator's time goes by here, so cells are small; and since what is found does not
// depend on the order of threads, only the forward order looks for races and unwritten bytes. The
// others show, by their results, what the epochs cannot: that a kernel's result depends on an
// order.
#include "tests/cusim/block.h"

#include <sys/mman.h>

extern "C" char __start_cusim_shared[] __attribute__((weak));
extern "C" char __stop_cusim_shared[] __attribute__((weak));

namespace cusim {

enum : uint8_t {
    WRITTEN = 3,      // by byte
    ATOMIC_WRITE = 4, // the last write was one
    MANY_LANES = 8,   // more threads of the reader's warp have read it in this epoch
    MANY_WARPS = 16,  // so have threads of other warps
};

// Who and when: the epoch of the block, and the thread's number in the lowest 10 bits.
typedef uint32_t Stamp;

struct SharedCell {
    Stamp writer, reader;
    uint16_t writer_warp_epoch, reader_warp_epoch;
    uint8_t flags;
};

static const size_t DYNAMIC_SPAN = 1 << 20;
static const uint32_t LAST_EPOCH = (1 << 22) - 1, SPARE_EPOCHS = 1 << 20;
uintptr_t shared_begin, shared_end, dynamic_begin, dynamic_end;
static char *dynamic;
static size_t dynamic_bytes;

struct Cells {
    std::vector<SharedCell> cell;
    std::vector<const void *> write_caller;
};
static Cells static_cells, dynamic_cells;
static uint32_t epoch = 1, block_epoch = 1; // now; when the block began
static uint16_t warp_epoch[32];

static size_t static_bytes() {
    return (size_t)(__stop_cusim_shared - __start_cusim_shared);
}

static void make_cells(Cells *c, size_t bytes) {
    if (c->cell.size() > bytes / 2)
        return;
    c->cell.resize(bytes / 2 + 1);
    c->write_caller.resize(bytes / 2 + 1);
}

char *shared_open(size_t bytes) {
    if (!dynamic) {
        void *p = mmap(nullptr, DYNAMIC_SPAN, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            die("no memory for a block's shared memory");
        dynamic = static_cast<char *>(p) + DYNAMIC_SPAN / 2;
        make_cells(&static_cells, static_bytes());
        shared_begin = reinterpret_cast<uintptr_t>(__start_cusim_shared);
        shared_end = shared_begin + static_bytes();
        dynamic_begin = reinterpret_cast<uintptr_t>(p);
        dynamic_end = dynamic_begin + DYNAMIC_SPAN;
    }
    dynamic_bytes = bytes;
    make_cells(&dynamic_cells, bytes);
    return dynamic;
}

void shared_poison() {
    raw_set(dynamic, 0xff, dynamic_bytes);
    raw_set(__start_cusim_shared, 0xff, static_bytes());
    shared_barrier();
    if (epoch > LAST_EPOCH - SPARE_EPOCHS) {
        static_cells.cell.assign(static_cells.cell.size(), SharedCell());
        dynamic_cells.cell.assign(dynamic_cells.cell.size(), SharedCell());
        epoch = 1;
    }
    block_epoch = epoch;
}

void shared_barrier() {
    if (++epoch == LAST_EPOCH)
        die("a block of more than %u barriers", SPARE_EPOCHS);
    for (uint16_t &w : warp_epoch)
        w = 0;
}

void shared_warp_sync(int warp) {
    if (++warp_epoch[warp] == 0)
        die("more than 65535 __syncwarp without a __syncthreads");
}

// ---- races ----

[[noreturn]] static void die_of_race(Use use, Stamp other, bool many, const char *verb,
                                     const void *there, const void *caller) {
    std::string who = many ? "other threads" : "thread " + std::to_string(other % 1024);
    std::string where = there ? " at " + code_place(there) : "";
    die_at(caller, "race in shared memory: %s by this thread, %s by %s%s, and no barrier between",
           use == Use::READ ? "read" : "write", verb, who.c_str(), where.c_str());
}

// Whether what has this stamp, in the block's present epoch, comes before what lane `me` does now.
static inline bool ordered(Stamp stamp, uint16_t its_warp_epoch, bool alone, Stamp me) {
    if (stamp == me && alone)
        return true;
    unsigned warp = me % 1024 / 32;
    return stamp % 1024 / 32 == warp && its_warp_epoch < warp_epoch[warp];
}

static inline void check_writer(const SharedCell &c, Stamp me, Use use, const void *const *there,
                                const void *caller) {
    if (c.writer >> 10 != epoch || ordered(c.writer, c.writer_warp_epoch, true, me))
        return;
    if (use == Use::ATOMIC && c.flags & ATOMIC_WRITE)
        return;
    die_of_race(use, c.writer, false, "write", *there, caller);
}

static inline void check_readers(const SharedCell &c, Stamp me, const void *caller) {
    bool alone = !(c.flags & (MANY_LANES | MANY_WARPS));
    if (c.reader >> 10 != epoch)
        return;
    if (c.flags & MANY_WARPS || !ordered(c.reader, c.reader_warp_epoch, alone, me))
        die_of_race(Use::WRITE, c.reader, !alone, "read", nullptr, caller);
}

static inline void note_read(SharedCell *c, Stamp me) {
    unsigned warp = me % 1024 / 32;
    if (c->reader == me && c->reader_warp_epoch == warp_epoch[warp])
        return;
    if (c->reader >> 10 == epoch && c->flags & MANY_WARPS)
        return;
    if (c->reader >> 10 != epoch ||
        (!(c->flags & MANY_WARPS) && ordered(c->reader, c->reader_warp_epoch, false, me)))
        c->flags &= (uint8_t) ~(MANY_LANES | MANY_WARPS);
    else
        c->flags |= c->reader % 1024 / 32 == warp ? MANY_LANES : MANY_WARPS;
    c->reader = me;
    c->reader_warp_epoch = warp_epoch[warp];
}

static void visit(Cells *cells, size_t at, uint8_t mask, Stamp me, Use use, const void *caller) {
    SharedCell *c = &cells->cell[at];
    if (c->writer >> 10 < block_epoch)
        c->flags &= (uint8_t)~WRITTEN;
    if (use != Use::WRITE && (c->flags & mask) != mask)
        die_at(caller, "read of shared memory that nobody has written");
    check_writer(*c, me, use, &cells->write_caller[at], caller);
    if (use == Use::READ)
        return note_read(c, me);
    check_readers(*c, me, caller);
    c->writer = me;
    c->writer_warp_epoch = warp_epoch[me % 1024 / 32];
    c->flags =
        (uint8_t)((c->flags & ~ATOMIC_WRITE) | mask | (use == Use::ATOMIC ? ATOMIC_WRITE : 0));
    cells->write_caller[at] = caller;
}

// What nearly all reads are: of whole cells, written before the last barrier, and read since by
// this thread alone or already by many. Returns the first cell that is not so simple.
static inline size_t read_simple(const SharedCell *c, size_t first, size_t end, Stamp me) {
    for (size_t g = first; g < end; g++) {
        uint32_t written = c[g].writer >> 10;
        bool known = c[g].reader >> 10 == epoch && c[g].flags & MANY_WARPS;
        if (written >= epoch || written < block_epoch || (c[g].flags & WRITTEN) != WRITTEN ||
            !(known || c[g].reader == me))
            return g;
    }
    return end;
}

static void visit_all(Cells *cells, size_t offset, size_t bytes, Use use, const void *caller) {
    if (thread_order != SIM_FORWARD)
        return;
    Stamp me = epoch << 10 | (Stamp)block.now->number;
    size_t first = offset / 2, last = (offset + bytes - 1) / 2;
    bool whole = (offset | bytes) % 2 == 0;
    if (whole && use == Use::READ && warp_epoch[me % 1024 / 32] == 0)
        first = read_simple(cells->cell.data(), first, last + 1, me);
    for (size_t g = first; g <= last; g++) {
        uint8_t mask = WRITTEN;
        if (g == first && offset % 2)
            mask = 2;
        if (g == last && (offset + bytes) % 2)
            mask &= 1;
        visit(cells, g, mask, me, use, caller);
    }
}

void shared_access(uintptr_t a, size_t bytes, Use use, const void *caller) {
    if (a - shared_begin < shared_end - shared_begin)
        return visit_all(&static_cells, a - shared_begin, bytes, use, caller);
    uintptr_t base = reinterpret_cast<uintptr_t>(dynamic);
    if (a < base || a + bytes > base + dynamic_bytes)
        die_at(caller, "%s of %zu bytes at byte %zd of the %zu bytes of dynamic shared memory",
               use == Use::READ ? "read" : "write", bytes, (ssize_t)(a - base), dynamic_bytes);
    visit_all(&dynamic_cells, a - base, bytes, use, caller);
}

} // namespace cusim
