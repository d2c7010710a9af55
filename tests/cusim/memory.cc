// Memory of the simulated GPUs and pinned memory of the host, and what is known of every byte.
//
// All of it lies in one reserved range of addresses: a span for each GPU, one for pinned memory. So
// a compiled access is recognised by one comparison, and what is known of it lies at an address
// that follows from its own. Addresses are never used twice: a pointer to freed memory points at
// nothing, for ever. Pages that nobody touched cost nothing.
//
// For every 4 bytes (a granule) there are
//   a state byte  4 bits "may be accessed", 4 bits "was written", by byte
//   a cell        the segment that wrote it last, and those that read it since
// Two segments that use different bytes of one granule count as using the same: tensors begin at
// multiples of 64 bytes, so only two shards that cut a granule could be told wrongly.
#include "tests/cusim/internal.h"

#include <map>
#include <stdio.h>
#include <sys/mman.h>

namespace cusim {

static const size_t SPAN = (size_t)64 << 30; // addresses for each GPU, and for pinned memory
static const size_t GUARD = 512;             // at least so much lies between two allocations
static const uint32_t MANY = 0x80000000u;    // in a cell: the index of a set of readers
const size_t gpu_bytes = (size_t)4 << 30;

struct Cell {
    uint32_t writer, reader;
};

uintptr_t arena_begin, arena_end;
static uint8_t *state;
static Cell *cells;
static size_t next_offset[MAX_GPUS + 1], used_bytes[MAX_GPUS + 1];
static std::map<uintptr_t, Allocation> allocations;
static std::vector<std::vector<uint32_t>> reader_sets;
static std::vector<uint32_t> free_sets;

static void *reserve(size_t bytes) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "cusim: cannot reserve %zu GiB of addresses (see ulimit -v)\n",
                bytes >> 30);
        abort();
    }
    return p;
}

static void open_arena() {
    size_t bytes = SPAN * (MAX_GPUS + 1);
    arena_begin = reinterpret_cast<uintptr_t>(reserve(bytes));
    state = static_cast<uint8_t *>(reserve(bytes / 4));
    cells = static_cast<Cell *>(reserve(bytes / 4 * sizeof(Cell)));
    arena_end = arena_begin + bytes;
}

static uintptr_t address_of(const void *p) {
    return reinterpret_cast<uintptr_t>(p);
}
static bool watched(uintptr_t a) {
    return a - arena_begin < arena_end - arena_begin;
}
static int span_of(uintptr_t a) {
    return (int)((a - arena_begin) / SPAN);
}
bool is_device_memory(const void *p) {
    return watched(address_of(p)) && span_of(address_of(p)) < MAX_GPUS;
}
bool is_pinned_memory(const void *p) {
    return watched(address_of(p)) && span_of(address_of(p)) == MAX_GPUS;
}
int gpu_of_memory(const void *p) {
    return is_device_memory(p) ? span_of(address_of(p)) : -1;
}

// The allocation that the address is in, or the last one before it.
static const Allocation *find(uintptr_t a) {
    auto next = allocations.upper_bound(a);
    return next == allocations.begin() ? nullptr : &std::prev(next)->second;
}

std::string describe(uintptr_t a) {
    const Allocation *m = find(a);
    if (!m)
        return "an address before all memory";
    char text[200];
    snprintf(text, sizeof text, "byte %zu of allocation %d (%zu bytes of %s%s%s)", a - m->start,
             m->number, m->bytes, m->gpu < 0 ? "pinned memory" : "GPU ",
             m->gpu < 0 ? "" : std::to_string(m->gpu).c_str(), m->freed ? ", freed" : "");
    return text;
}

// ---- accesses ----

[[noreturn]] static void fault(uintptr_t a, size_t bytes, Use use, uint8_t s, const void *caller) {
    const Allocation *m = find(a);
    const char *verb = use == Use::WRITE ? "write" : "read";
    std::string where = describe(a);
    if (m && m->freed && a < m->start + m->bytes)
        die_at(caller, "%s of %zu bytes of freed memory: %s", verb, bytes, where.c_str());
    if (s >> 4 & s)
        die_at(caller, "%s of %zu bytes that nobody has written: %s", verb, bytes, where.c_str());
    die_at(caller, "%s of %zu bytes out of bounds: %s", verb, bytes, where.c_str());
}

static void check_place(Segment *s, uintptr_t a, size_t bytes, const void *caller) {
    int span = span_of(a);
    if (span == MAX_GPUS && s->kernel) // a GPU would do it, over the bus
        die_at(caller, "a kernel on GPU %d touches the host's memory: %s", s->gpu,
               describe(a).c_str());
    if (span == MAX_GPUS || span == s->gpu)
        return;
    if (s->gpu < 0)
        die_at(caller, "the host touches %zu bytes of a GPU's memory: %s", bytes,
               describe(a).c_str());
    if (s->kernel)
        die_at(caller, "a kernel on GPU %d touches memory of GPU %d: %s", s->gpu, span,
               describe(a).c_str());
}

// Whether a segment comes before what `s` does now. A range has mostly one answer.
static bool before(uint32_t number, const Segment &s) {
    static uint32_t known, known_by;
    static const Segment *known_to;
    if (number == known && s.number == known_by && &s == known_to)
        return true;
    if (!segment_before(number, s))
        return false;
    known = number;
    known_by = s.number;
    known_to = &s;
    return true;
}

static void add_reader(Cell *c, uint32_t me, const Segment &s) {
    if (!c->reader || (!(c->reader & MANY) && before(c->reader, s))) {
        c->reader = me;
        return;
    }
    if (!(c->reader & MANY)) {
        if (free_sets.empty()) {
            free_sets.push_back((uint32_t)reader_sets.size());
            reader_sets.emplace_back();
        }
        uint32_t set = free_sets.back();
        free_sets.pop_back();
        reader_sets[set].assign(1, c->reader);
        c->reader = set | MANY;
    }
    std::vector<uint32_t> &readers = reader_sets[c->reader & ~MANY];
    if (readers.back() == me)
        return;
    size_t kept = 0;
    for (uint32_t r : readers)
        if (!before(r, s))
            readers[kept++] = r;
    readers.resize(kept);
    readers.push_back(me);
}

static void note_write(Cell *c, uint32_t me, Segment *s, uintptr_t a, const void *caller) {
    if (c->reader & MANY) {
        uint32_t set = c->reader & ~MANY;
        for (uint32_t r : reader_sets[set])
            if (!before(r, *s))
                race(r, false, s, true, a, caller);
        free_sets.push_back(set);
    } else if (c->reader && c->reader != me && !before(c->reader, *s)) {
        race(c->reader, false, s, true, a, caller);
    }
    *c = {me, 0};
}

static void note(Segment *s, uintptr_t a, size_t bytes, Use use, const void *caller) {
    if (!bytes)
        return;
    uint32_t me = segment_number(s);
    bool writes = use == Use::WRITE || use == Use::ATOMIC;
    size_t first = (a - arena_begin) / 4, last = (a + bytes - 1 - arena_begin) / 4;
    for (size_t g = first; g <= last; g++) {
        unsigned mask = 0xf;
        if (g == first)
            mask &= 0xfu << a % 4;
        if (g == last)
            mask &= 0xfu >> (3 - (a + bytes - 1) % 4);
        uint8_t need = (uint8_t)(mask << 4 | (use == Use::READ || use == Use::ATOMIC ? mask : 0));
        if (need & ~state[g])
            fault(g == first ? a : arena_begin + g * 4, bytes, use,
                  (uint8_t)((mask << 4 & ~state[g]) ? 0 : 0x11), caller);
        Cell *c = &cells[g];
        if (c->writer != me && c->writer && !before(c->writer, *s))
            race(c->writer, true, s, writes, arena_begin + g * 4, caller);
        if (writes) {
            note_write(c, me, s, arena_begin + g * 4, caller);
            state[g] |= (uint8_t)mask;
        } else if (c->reader != me) {
            add_reader(c, me, *s);
        }
    }
}

void access_as(Segment *s, const void *p, size_t bytes, Use use, const void *caller) {
    uintptr_t a = address_of(p);
    if (!watched(a))
        return;
    check_place(s, a, bytes, caller);
    note(s, a, bytes, use, caller);
}

void access(const void *p, size_t bytes, Use use, const void *caller) {
    if (watched(address_of(p)))
        access_as(running(), p, bytes, use, caller);
}

// ---- allocation ----

void *memory_alloc(int gpu, size_t bytes) {
    if (!arena_begin)
        open_arena();
    int span = gpu < 0 ? MAX_GPUS : gpu;
    if (used_bytes[span] + bytes > gpu_bytes)
        return nullptr;
    size_t whole = (bytes + GUARD + 511) / 512 * 512;
    if (!next_offset[span])
        next_offset[span] = 4096;
    if (next_offset[span] + whole > SPAN)
        die("all %zu GiB of addresses are used up", SPAN >> 30);
    uintptr_t start = arena_begin + SPAN * (size_t)span + next_offset[span];
    next_offset[span] += whole;
    used_bytes[span] += bytes;
    raw_set(reinterpret_cast<void *>(start), 0xff, bytes);
    uint8_t *s = state + (start - arena_begin) / 4;
    for (size_t i = 0; i < (bytes + 3) / 4; i++)
        s[i] = (uint8_t)((i * 4 + 4 <= bytes ? 0xf : (1u << bytes % 4) - 1) << 4);
    allocations[start] = {start, bytes, gpu, (int)allocations.size(), false};
    return reinterpret_cast<void *>(start);
}

// Gives whole pages of a range back to the system; they read as zeros after that.
static void forget(void *start, size_t bytes) {
    uintptr_t a = address_of(start), first = (a + 4095) & ~4095ul, last = (a + bytes) & ~4095ul;
    if (first < last)
        madvise(reinterpret_cast<void *>(first), last - first, MADV_DONTNEED);
}

void memory_free(void *p, bool pinned) {
    auto i = allocations.find(address_of(p));
    if (i == allocations.end() || i->second.freed || (i->second.gpu < 0) != pinned)
        die("%s of %p, which %s", pinned ? "cudaFreeHost" : "cudaFree", p,
            i == allocations.end() ? "nobody allocated"
            : i->second.freed      ? "was freed before"
                                   : "is memory of the other kind");
    Allocation &m = i->second;
    // Nothing may be under way that uses it: freeing counts as a write.
    note(running(), m.start, m.bytes, Use::WRITE, nullptr);
    m.freed = true;
    used_bytes[m.gpu < 0 ? MAX_GPUS : m.gpu] -= m.bytes;
    size_t granule = (m.start - arena_begin) / 4, n = (m.bytes + 3) / 4;
    raw_set(state + granule, 0, n);
    raw_set(p, 0xff, m.bytes);
    forget(p, m.bytes);
    forget(cells + granule, n * sizeof(Cell));
    forget(state + granule, n);
}

size_t memory_free_bytes(int gpu) {
    return gpu_bytes - used_bytes[gpu];
}

// ---- moving bytes ----

void raw_set(void *to, int value, size_t bytes) {
    __real_memset(to, value, bytes);
}

static size_t granule_of(uintptr_t a) {
    return (a - arena_begin) / 4;
}

// Whether all of a range was written; what nobody watches counts so.
static bool all_written(uintptr_t a, size_t bytes) {
    if (!bytes || !watched(a))
        return true;
    for (size_t g = granule_of(a); g <= granule_of(a + bytes - 1); g++)
        if ((state[g] & 0xf) != 0xf)
            return false;
    return true;
}

static void set_written(uintptr_t a, bool written) {
    uint8_t bit = (uint8_t)(1u << a % 4), *s = &state[granule_of(a)];
    *s = (uint8_t)(written ? *s | bit : *s & ~bit);
}

void raw_copy(void *to, const void *from, size_t bytes) {
    __real_memmove(to, from, bytes);
    uintptr_t t = address_of(to), f = address_of(from);
    if (!watched(t) || all_written(f, bytes))
        return;
    for (size_t i = 0; i < bytes; i++)
        set_written(t + i, state[granule_of(f + i)] >> (f + i) % 4 & 1);
}

void poison(void *p, size_t bytes) {
    access(p, bytes, Use::WRITE);
    raw_set(p, 0xff, bytes);
    for (size_t i = 0; i < bytes && watched(address_of(p)); i++)
        set_written(address_of(p) + i, false);
}

} // namespace cusim
