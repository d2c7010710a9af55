// NCCL in the simulator, between ranks that are threads of one process.
//
// A launch (a call, or all calls between ncclGroupStart and ncclGroupEnd) is one operation of its
// stream. The nth launches of all ranks belong together: each says that it is there, and the one
// whose turn comes when all are there moves the data for all of them, each rank's buffers as that
// rank's operation. A rank comes after those whose data it gets, and after no others.
//
// It is meaner than the real one, where that finds mistakes: a communicator that does not block
// launches nothing before its thread has asked for its state; calls of ranks that do not fit end
// the run; sums go round the ring and are rounded at every rank, so that they are not ours.
//
// The prototypes are those of nccl.h. Source: NVIDIA, "NCCL User Guide". Called by zero/comm_nccl.c
// through library_open (library.cc).
#include "kernels/dtype.h"
#include "tests/cusim/nccl_sim.h"
#include "tests/cusim/runtime.h"

#include <map>
#include <nccl.h>
#include <pthread.h>
#include <string.h>

using namespace cusim;

enum Kind { SEND, RECV, ALL_GATHER, REDUCE, REDUCE_SCATTER, BROADCAST };
static const char *const kind_names[] = {"ncclSend",   "ncclRecv",          "ncclAllGather",
                                         "ncclReduce", "ncclReduceScatter", "ncclBroadcast"};

struct Call {
    Kind kind;
    const char *send;
    char *recv;
    size_t count;
    ncclDataType_t type;
    int peer; // or root; -1: none
};

struct Launch;

// What the ranks of one identifier share.
struct Group {
    int size = 0, joined = 0, finalized = 0;
    std::vector<int> gpu; // of each rank; -1: not there yet
    bool duplicate = false;
    std::map<uint64_t, std::vector<Launch *>> meetings; // by number: the ranks' launches
};

struct ncclComm {
    std::shared_ptr<Group> group;
    int rank;
    uint64_t launches = 0;
    bool finalizing = false;
    pthread_t thread; // that made the pending launch
    cudaStream_t stream = nullptr;
    std::vector<Call> pending; // a launch that has not come to its stream
};

static int broken_rank = -1;

static size_t type_bytes(ncclDataType_t type) {
    switch (type) {
    case ncclUint8:
        return 1;
    case ncclFloat32:
        return 4;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    default:
        die("NCCL's type %d is not simulated", (int)type);
    }
}

static float load(const char *p, size_t i, ncclDataType_t type) {
    return dtype_load(p, type == ncclFloat32 ? F32 : type == ncclBfloat16 ? BF16 : F16, i);
}
static void store(char *p, size_t i, ncclDataType_t type, float x) {
    dtype_store(p, type == ncclFloat32 ? F32 : type == ncclBfloat16 ? BF16 : F16, i, x);
}

// ---- a launch ----

struct Launch : Operation {
    std::shared_ptr<Group> group;
    std::vector<Call> calls;
    int rank;
    uint64_t number;
    bool moved = false;
    Clock before;

    void start() override {
        std::vector<Launch *> &all = group->meetings[number];
        all.resize((size_t)group->size);
        all[(size_t)rank] = this;
        release(&segment, &before);
    }
    bool poll() override;
};

using All = std::vector<Launch *>;

static void read_of(Launch *l, const char *p, size_t bytes, Use use) {
    access_as(&l->segment, p, bytes, use);
}

// `to` gets bytes of `from`.
static void move(Launch *from, const char *source, Launch *to, char *target, size_t bytes) {
    if (source == target || !bytes)
        return;
    read_of(from, source, bytes, Use::CARRY);
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
        read_of(l, l->calls[call].send + at * size, count * size, Use::READ);
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
        if (scatter || (int)r == first.peer)
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

static void run_all(const All &all) {
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

bool Launch::poll() {
    if (moved)
        return true;
    auto meeting = group->meetings.find(number);
    for (Launch *l : meeting->second)
        if (!l || l->rank == broken_rank)
            return false;
    run_all(meeting->second);
    for (Launch *l : meeting->second)
        l->moved = true;
    group->meetings.erase(meeting);
    return true;
}

// ---- calls ----

struct Depth {
    int groups = 0;
    ncclComm_t comm = nullptr; // of the calls so far
};
static thread_local Depth depth;

// What was called comes to its stream.
static void launch(ncclComm_t c) {
    std::unique_ptr<Launch> l(new Launch);
    l->group = c->group;
    l->calls = std::move(c->pending);
    l->rank = c->rank;
    l->number = c->launches++;
    c->pending.clear();
    const char *what = l->calls.size() > 1 ? "a group of NCCL's" : kind_names[l->calls[0].kind];
    enqueue(c->stream, what, std::move(l));
}

static ncclResult_t add(ncclComm_t c, cudaStream_t stream, const Call &call) {
    host_turn();
    if (c->group->joined < c->group->size)
        die("NCCL: %s before the communicator is ready", kind_names[call.kind]);
    bool first = !depth.comm;
    if (first && !c->pending.empty())
        die("NCCL: %s while an earlier launch is in progress", kind_names[call.kind]);
    if (!first && (depth.comm != c || c->stream != stream))
        die("NCCL: a group with two communicators or streams is not simulated");
    if (stream_gpu(stream) != c->group->gpu[(size_t)c->rank])
        die("NCCL: %s on a stream of another GPU", kind_names[call.kind]);
    c->stream = stream;
    c->thread = pthread_self();
    c->pending.push_back(call);
    if (depth.groups)
        depth.comm = c;
    return depth.groups ? ncclSuccess : ncclInProgress;
}

extern "C" {
void sim_nccl_break(int rank) {
    broken_rank = rank;
}

static ncclResult_t sim_version(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

static const char *sim_error_string(ncclResult_t r) {
    return r == ncclRemoteError    ? "remote process exited or there was a network error"
           : r == ncclInvalidUsage ? "invalid usage"
                                   : "an error of the simulator";
}

static ncclResult_t sim_unique_id(ncclUniqueId *id) {
    static uint64_t made;
    memset(id, 0, sizeof *id);
    made++;
    memcpy(id->internal + 64, &made, sizeof made);
    return ncclSuccess;
}

static ncclResult_t sim_init(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                             ncclConfig_t *config) {
    static std::map<std::string, std::weak_ptr<Group>> groups;
    host_turn();
    if (config->blocking != 0)
        die("NCCL: only communicators that do not block are simulated");
    std::string key(id.internal, sizeof id.internal);
    std::shared_ptr<Group> g = groups[key].lock();
    if (!g) {
        groups[key] = g = std::make_shared<Group>();
        g->size = size;
        g->gpu.assign((size_t)size, -1);
    }
    if (g->size != size || rank < 0 || rank >= size || g->gpu[(size_t)rank] >= 0)
        die("NCCL: rank %d of %d in a group of %d", rank, size, g->size);
    for (int gpu : g->gpu)
        g->duplicate |= gpu == current_gpu();
    g->gpu[(size_t)rank] = current_gpu();
    g->joined++;
    *out = new ncclComm;
    (*out)->group = g;
    (*out)->rank = rank;
    return ncclInProgress;
}

static ncclResult_t sim_async_error(ncclComm_t c, ncclResult_t *result) {
    host_turn();
    Group *g = c->group.get();
    bool waits = g->joined < g->size || (c->finalizing && g->finalized < g->size);
    *result = waits ? ncclInProgress : ncclSuccess;
    if (g->duplicate)
        *result = ncclInvalidUsage;
    else if (c->rank == broken_rank)
        *result = ncclRemoteError;
    else if (!c->pending.empty() && !pthread_equal(c->thread, pthread_self()))
        *result = ncclInProgress;
    else if (!c->pending.empty() && !depth.groups)
        launch(c);
    return ncclSuccess;
}

static ncclResult_t sim_group_start() {
    depth.groups++;
    return ncclSuccess;
}

static ncclResult_t sim_group_end() {
    if (--depth.groups)
        return ncclSuccess;
    bool any = depth.comm;
    depth.comm = nullptr;
    return any ? ncclInProgress : ncclSuccess;
}

static ncclResult_t sim_send(const void *send, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t c, cudaStream_t s) {
    return add(c, s, {SEND, (const char *)send, nullptr, count, type, peer});
}
static ncclResult_t sim_recv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                             cudaStream_t s) {
    return add(c, s, {RECV, nullptr, (char *)recv, count, type, peer});
}
static ncclResult_t sim_all_gather(const void *send, void *recv, size_t count, ncclDataType_t type,
                                   ncclComm_t c, cudaStream_t s) {
    return add(c, s, {ALL_GATHER, (const char *)send, (char *)recv, count, type, -1});
}
static ncclResult_t sim_broadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                                  int root, ncclComm_t c, cudaStream_t s) {
    return add(c, s, {BROADCAST, (const char *)send, (char *)recv, count, type, root});
}
static ncclResult_t sim_reduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t s) {
    if (op != ncclSum)
        die("NCCL: only sums are simulated");
    return add(c, s, {REDUCE, (const char *)send, (char *)recv, count, type, root});
}
static ncclResult_t sim_reduce_scatter(const void *send, void *recv, size_t count,
                                       ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
                                       cudaStream_t s) {
    if (op != ncclSum)
        die("NCCL: only sums are simulated");
    return add(c, s, {REDUCE_SCATTER, (const char *)send, (char *)recv, count, type, -1});
}

static ncclResult_t sim_finalize(ncclComm_t c) {
    host_turn();
    if (!c->pending.empty())
        die("NCCL: finalized while a launch is in progress");
    c->finalizing = true;
    c->group->finalized++;
    return ncclInProgress;
}
static ncclResult_t sim_destroy(ncclComm_t c) {
    if (!c->finalizing)
        die("NCCL: destroyed before it was finalized");
    delete c;
    return ncclSuccess;
}
static ncclResult_t sim_abort(ncclComm_t c) {
    host_turn();
    delete c;
    return ncclSuccess;
}
}

// With the types of nccl.h, so that a wrong prototype does not compile.
#define EXPORT(name, function)                                                                     \
    { "nccl" #name, (void *)static_cast<decltype(&nccl##name)>(function) }
static Library nccl("libnccl.so", {
                                      EXPORT(GetVersion, sim_version),
                                      EXPORT(GetErrorString, sim_error_string),
                                      EXPORT(GetUniqueId, sim_unique_id),
                                      EXPORT(CommInitRankConfig, sim_init),
                                      EXPORT(CommGetAsyncError, sim_async_error),
                                      EXPORT(CommFinalize, sim_finalize),
                                      EXPORT(CommDestroy, sim_destroy),
                                      EXPORT(CommAbort, sim_abort),
                                      EXPORT(GroupStart, sim_group_start),
                                      EXPORT(GroupEnd, sim_group_end),
                                      EXPORT(Send, sim_send),
                                      EXPORT(Recv, sim_recv),
                                      EXPORT(AllGather, sim_all_gather),
                                      EXPORT(Broadcast, sim_broadcast),
                                      EXPORT(Reduce, sim_reduce),
                                      EXPORT(ReduceScatter, sim_reduce_scatter),
                                  });
