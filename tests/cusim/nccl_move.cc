// What NCCL's collectives do to the ranks' buffers: see nccl_launch.h. Called by nccl.cc.
#include "kernels/dtype.h"
#include "tests/cusim/nccl_launch.h"

namespace cusim {

using All = std::vector<Launch *>;

static float load(const char *p, size_t i, ncclDataType_t type) {
    return dtype_load(p, type == ncclFloat32 ? F32 : type == ncclBfloat16 ? BF16 : F16, i);
}
static void store(char *p, size_t i, ncclDataType_t type, float x) {
    dtype_store(p, type == ncclFloat32 ? F32 : type == ncclBfloat16 ? BF16 : F16, i, x);
}

void launch_read(Launch *l, const char *p, size_t bytes, Use use) {
    if (!l->elsewhere)
        access_as(&l->segment, p, bytes, use);
}

// `to` gets bytes of `from`.
static void move(Launch *from, const char *source, Launch *to, char *target, size_t bytes) {
    if (source == target || !bytes || to->elsewhere)
        return;
    launch_read(from, source, bytes, Use::CARRY);
    access_as(&to->segment, target, bytes, Use::WRITE);
    raw_copy(target, source, bytes);
    acquire(&to->segment, from->before);
}

// The sum of all ranks' elements from offset `at`, round the ring to rank `to`.
static std::vector<char> ring_sum(const All &all, size_t call, size_t at, size_t count, int to) {
    ncclDataType_t type = all[0]->calls[call].type;
    size_t size = type_bytes(type), ranks = all.size();
    std::vector<char> sum(count * size);
    for (Launch *l : all) {
        launch_read(l, l->calls[call].send + at * size, count * size, Use::READ);
        acquire(&all[(size_t)to]->segment, l->before);
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = 1; k <= ranks; k++) {
            const char *send = all[((size_t)to + k) % ranks]->calls[call].send;
            float x = load(send, at + i, type);
            store(sum.data(), i, type, k == 1 ? x : load(sum.data(), i, type) + x);
        }
    return sum;
}

static void write_sum(Launch *to, char *target, const std::vector<char> &sum) {
    access_as(&to->segment, target, sum.size(), Use::WRITE);
    raw_copy(target, sum.data(), sum.size());
}

static void reduce(const All &all, size_t call) {
    const Call &first = all[0]->calls[call];
    bool scatter = first.kind == REDUCE_SCATTER;
    std::vector<std::vector<char>> sums(all.size());
    for (size_t r = 0; r < all.size(); r++) // before any is written: they may be in place
        if (!all[r]->elsewhere && (scatter || (int)r == first.peer))
            sums[r] = ring_sum(all, call, scatter ? r * first.count : 0, first.count, (int)r);
    for (size_t r = 0; r < all.size(); r++)
        if (!sums[r].empty())
            write_sum(all[r], all[r]->calls[call].recv, sums[r]);
}

static void run_collective(const All &all, size_t call) {
    const Call &first = all[0]->calls[call];
    size_t bytes = first.count * type_bytes(first.type);
    if (first.kind == REDUCE || first.kind == REDUCE_SCATTER) {
        reduce(all, call);
        return;
    }
    for (Launch *to : all)
        for (Launch *from : all) {
            size_t at = first.kind == ALL_GATHER ? (size_t)from->rank * bytes : 0;
            if (first.kind == ALL_GATHER || (from->rank == first.peer && to != from))
                move(from, from->calls[call].send, to, to->calls[call].recv + at, bytes);
        }
}

static std::string text_of(const Launch *l, size_t call) {
    if (call >= l->calls.size())
        return "rank " + std::to_string(l->rank) + ": nothing";
    const Call &c = l->calls[call];
    return "rank " + std::to_string(l->rank) + ": " + kind_names[c.kind] + " of " +
           std::to_string(c.count) + " x type " + std::to_string((int)c.type) +
           (c.peer >= 0 ? ", rank " + std::to_string(c.peer) : "");
}

[[noreturn]] static void differ(const Launch *a, size_t i, const Launch *b, size_t j) {
    die("NCCL: calls that do not fit, launch %llu: %s; %s", (unsigned long long)a->number,
        text_of(a, i).c_str(), text_of(b, j).c_str());
}

static bool is_point_to_point(const Call &c) {
    return c.kind == SEND || c.kind == RECV;
}

// The nth send of a to b meets b's nth receive from a.
static void run_sends(Launch *a, Launch *b) {
    size_t j = 0;
    for (size_t i = 0; i < a->calls.size(); i++) {
        const Call &s = a->calls[i];
        if (s.kind != SEND || s.peer != b->rank)
            continue;
        while (j < b->calls.size() && (b->calls[j].kind != RECV || b->calls[j].peer != a->rank))
            j++;
        if (j == b->calls.size() || b->calls[j].count != s.count || b->calls[j].type != s.type)
            differ(a, i, b, j);
        move(a, s.send, b, b->calls[j].recv, s.count * type_bytes(s.type));
        j++;
    }
    for (; j < b->calls.size(); j++)
        if (b->calls[j].kind == RECV && b->calls[j].peer == a->rank)
            differ(a, a->calls.size(), b, j);
}

void launch_run_all(const All &all) {
    Launch *first = all[0];
    for (Launch *l : all) {
        for (size_t i = 0; i < std::max(first->calls.size(), l->calls.size()); i++) {
            if (i >= l->calls.size() || i >= first->calls.size())
                differ(first, i, l, i);
            const Call &a = first->calls[i], &b = l->calls[i];
            if (is_point_to_point(a) && is_point_to_point(b))
                continue;
            if (a.kind != b.kind || a.count != b.count || a.type != b.type || a.peer != b.peer)
                differ(first, i, l, i);
        }
    }
    for (Launch *a : all)
        for (Launch *b : all)
            run_sends(a, b);
    for (size_t i = 0; i < first->calls.size(); i++)
        if (!is_point_to_point(first->calls[i]))
            run_collective(all, i);
}

} // namespace cusim
