// What the 32 threads of a warp do together, and copies that go on by themselves.
//
// Lanes of a warp need not run in step, so every collective names those that take part. A mask that
// names a lane which is elsewhere never fills: block.cc then finds that nobody can go on. Lanes
// that have ended are not waited for, but nothing may be read from them.
#include "tests/cusim/block.h"

namespace cusim {

static void hold_if_full(Meeting *m, Warp *w, int warp) {
    unsigned needed = m->mask & w->live;
    if (!m->arrived || (m->arrived & needed) != needed)
        return;
    unsigned lanes = m->arrived;
    m->arrived = 0;
    m->count++;
    if (m->kind == Together::SYNC && needed == w->live)
        shared_warp_sync(warp);
    for (unsigned rest = lanes; rest; rest &= rest - 1) {
        Fiber *f = &block.fiber[warp * 32 + __builtin_ctz(rest)];
        if (f->state == State::IN_WARP)
            f->state = State::RUNS;
    }
}

void fiber_leaves_warp(Fiber *f) {
    Warp *w = &block.warp[f->warp];
    w->live &= ~(1u << f->lane);
    for (Meeting &m : w->meeting)
        hold_if_full(&m, w, f->warp);
}

static Meeting *find_meeting(Warp *w, unsigned mask) {
    Meeting *unused = nullptr;
    for (Meeting &m : w->meeting) {
        if (m.mask == mask)
            return &m;
        if (!m.arrived && !unused)
            unused = &m;
    }
    if (!unused)
        die("more than %d masks of one warp wait at a time", MAX_MEETINGS);
    unused->mask = mask;
    unused->count = 0;
    return unused;
}

// Joins the calling lane to the collective; returns it, and which of its two sets of values counts.
static Meeting *arrive(unsigned mask, Together kind, const char *file, int line, int *set) {
    Fiber *me = block.now;
    Warp *w = &block.warp[me->warp];
    me->file = file;
    me->line = line;
    if (!(mask >> me->lane & 1))
        die("%s:%d: lane %d is not in its own mask %08x", file, line, me->lane, mask);
    Meeting *m = find_meeting(w, mask);
    for (Meeting &other : w->meeting)
        if (&other != m && other.arrived && (other.mask & mask))
            die("%s:%d: mask %08x cuts mask %08x of %s:%d, where lanes wait", file, line, mask,
                other.mask, other.file, other.line);
    if (!m->arrived) {
        m->kind = kind;
        m->file = file;
        m->line = line;
    } else if (m->kind != kind || m->line != line) {
        die("lanes of mask %08x meet at %s:%d and at %s:%d", mask, m->file, m->line, file, line);
    }
    *set = (int)(m->count & 1);
    if (counting && mask == 0xffffffffu)
        count_meeting();
    return m;
}

static void wait_for_all(Meeting *m) {
    Fiber *me = block.now;
    m->arrived |= 1u << me->lane;
    unsigned count = m->count;
    hold_if_full(m, &block.warp[me->warp], me->warp);
    if (m->count == count) {
        me->state = State::IN_WARP;
        fiber_yield();
    }
}

const uint64_t *meet(unsigned mask, uint64_t value, Together kind, const char *file, int line,
                     unsigned *present) {
    int set;
    Meeting *m = arrive(mask, kind, file, line, &set);
    m->value[set][block.now->lane] = value;
    *present = mask & block.warp[block.now->warp].live;
    wait_for_all(m);
    return m->value[set];
}

void die_absent(int lane, const char *file, int line) {
    die("%s:%d: a shuffle reads lane %d, which takes no part", file, line, lane);
}

// ---- matrices ----

static size_t mmas;

// Lane 4 g + t brings a (row g: columns 2 t, 2 t + 1; row g + 8; the same 8 columns further) and b
// (column g: rows 2 t, 2 t + 1, 2 t + 8, 2 t + 9); see ptx.cuh.
void mma(float d[4], const float a[8], const float b[4], const char *file, int line) {
    int set, lane = block.now->lane, g = lane / 4, t = lane % 4;
    mmas++;
    Meeting *m = arrive(0xffffffffu, Together::MMA, file, line, &set);
    for (int i = 0; i < 8; i++)
        m->a[set][g + (i / 2 % 2) * 8][2 * t + i % 2 + i / 4 * 8] = a[i];
    for (int i = 0; i < 4; i++)
        m->b[set][g][2 * t + i % 2 + i / 2 * 8] = b[i];
    if (block.warp[block.now->warp].live != 0xffffffffu)
        die("%s:%d: mma by a warp of which lanes have ended or are missing", file, line);
    wait_for_all(m);
    for (int i = 0; i < 4; i++) {
        const float *row = m->a[set][g + i / 2 * 8], *column = m->b[set][2 * t + i % 2];
        float sum = d[i];
        for (int k = 0; k < 16; k++)
            sum += row[k] * column[k];
        d[i] = sum;
    }
}

void load_matrix(uint32_t r[4], const void *row, bool transposed, const char *file, int line) {
    unsigned present;
    int lane = block.now->lane, g = lane / 4, t = lane % 4;
    uintptr_t address = reinterpret_cast<uintptr_t>(row);
    if (address % 16)
        die("%s:%d: ldmatrix from an address that is no multiple of 16", file, line);
    const uint64_t *rows = meet(0xffffffffu, address, Together::MATRIX, file, line, &present);
    if (!is_shared(address))
        die("%s:%d: ldmatrix from memory that is not shared", file, line);
    if (present != 0xffffffffu)
        die("%s:%d: ldmatrix by a warp of which lanes have ended or are missing", file, line);
    if (counting && lane == 0)
        count_matrix(rows);
    for (int i = 0; i < 4; i++) {
        uint16_t pair[2];
        for (int k = 0; k < 2; k++) {
            int from = transposed ? 2 * t + k : g, element = transposed ? g : 2 * t + k;
            const uint16_t *p = reinterpret_cast<const uint16_t *>(rows[8 * i + from]) + element;
            shared_access(reinterpret_cast<uintptr_t>(p), 2, Use::READ,
                          __builtin_return_address(0));
            pair[k] = *p;
        }
        r[i] = pair[0] | (uint32_t)pair[1] << 16;
    }
}

// ---- cp.async ----

void copy_async(void *to, const void *from, bool wanted) {
    Fiber *me = block.now;
    const void *caller = __builtin_return_address(0);
    check_aligned(to, 16, caller);
    check_aligned(from, 16, caller);
    if (!is_shared(reinterpret_cast<uintptr_t>(to)))
        die("cp.async to memory that is not shared");
    shared_access(reinterpret_cast<uintptr_t>(to), 16, Use::WRITE, caller);
    raw_set(to, 0xff, 16);
    if (wanted)
        access(from, 16, Use::READ, caller);
    if (counting) {
        count_access(reinterpret_cast<uintptr_t>(to), 16, Use::WRITE, true, false, caller);
        if (wanted)
            count_access(reinterpret_cast<uintptr_t>(from), 16, Use::READ, false, false, caller);
    }
    me->copies.push_back({to, from, wanted, me->commits, caller});
}

void copy_commit() {
    block.now->commits++;
}

void copy_wait(int groups_under_way) {
    Fiber *me = block.now;
    size_t done = 0;
    while (done < me->copies.size() && me->copies[done].group < me->commits - groups_under_way) {
        const AsyncCopy &c = me->copies[done++];
        shared_access(reinterpret_cast<uintptr_t>(c.to), 16, Use::WRITE,
                      __builtin_return_address(0));
        if (c.wanted)
            __real_memcpy(c.to, c.from, 16);
        else
            raw_set(c.to, 0, 16);
    }
    me->copies.erase(me->copies.begin(), me->copies.begin() + (ptrdiff_t)done);
}

void atomic_access(const void *p, size_t bytes) {
    const void *caller = __builtin_return_address(0);
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    check_aligned(p, bytes, caller);
    if (is_shared(a))
        shared_access(a, bytes, Use::ATOMIC, caller);
    else
        access(p, bytes, Use::ATOMIC, caller);
    if (counting)
        count_access(a, bytes, Use::ATOMIC, is_shared(a), true, caller);
}

} // namespace cusim

size_t sim_mmas(void) {
    return cusim::mmas;
}
