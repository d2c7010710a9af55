// NCCL in the simulator, between ranks that are threads of one process, or processes.
//
// A launch (a call, or all calls between ncclGroupStart and ncclGroupEnd) is one operation of its
// stream. The nth launches of all ranks belong together: each says that it is there, and the one
// whose turn comes when all are there moves the data for all of them, each rank's buffers as that
// rank's operation. A rank comes after those whose data it gets, and after no others. Of a rank in
// another process the launch comes as a message, its calls and their data (job.h, nccl_calls.h);
// each process then moves what its own ranks get. The unique id names the folder of the messages.
//
// It is meaner than the real one, where that finds mistakes: a communicator that does not block
// launches nothing before its thread has asked for its state; calls of ranks that do not fit end
// the run; sums go round the ring and are rounded at every rank, so that they are not ours.
//
// The prototypes are those of nccl.h. Source: NVIDIA, "NCCL User Guide". Called by zero/comm/nccl.c
// through library_open (library.cc).
#include "tests/cusim/job.h"
#include "tests/cusim/nccl_launch.h"
#include "tests/cusim/nccl_sim.h"

#include <map>
#include <pthread.h>
#include <signal.h>
#include <string.h>

using namespace cusim;

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

// ---- a launch ----

static std::string message_of(int rank, uint64_t number) {
    return "launch." + std::to_string(rank) + "." + std::to_string(number);
}

static bool is_faulty(int rank, const char *what) {
    return fault_wanted().rank == rank && fault_wanted().what == what;
}

// The others find the message. Of those before, they have read all but the last: it took all of
// them to end it.
static void tell_others(Launch *l) {
    for (const Call &c : l->calls)
        launch_read(l, c.send, sent_bytes(c, l->group->size), Use::CARRY);
    if (is_faulty(l->rank, "silence") && l->number >= fault_wanted().launch)
        return;
    folder_post(l->group->folder, message_of(l->rank, l->number),
                calls_pack(l->calls, l->group->size));
    if (l->number > 1)
        folder_drop(l->group->folder, message_of(l->rank, l->number - 2));
}

void Launch::start() {
    std::vector<Launch *> &all = group->meetings[number];
    all.resize((size_t)group->size);
    all[(size_t)rank] = this;
    release(&segment, &before);
    if (!group->folder.empty())
        tell_others(this);
}

// The launch of a rank of another process, if its message has come.
static Launch *find_elsewhere(const Launch *mine, int rank) {
    std::string message;
    if (mine->group->folder.empty() ||
        !folder_get(mine->group->folder, message_of(rank, mine->number), &message))
        return nullptr;
    Launch *l = new Launch;
    l->elsewhere = true;
    l->rank = rank;
    l->number = mine->number;
    l->message = std::move(message);
    l->calls = calls_unpack(l->message, rank, mine->group->size);
    return l;
}

bool Launch::poll() {
    if (moved)
        return true;
    auto meeting = group->meetings.find(number);
    for (int r = 0; r < group->size; r++) {
        Launch *&l = meeting->second[(size_t)r];
        if (!l)
            l = find_elsewhere(this, r);
        if (!l || r == broken_rank)
            return false;
    }
    launch_run_all(meeting->second);
    for (Launch *l : meeting->second) {
        l->moved = true;
        if (l->elsewhere)
            delete l;
    }
    group->meetings.erase(meeting);
    return true;
}

// ---- calls ----

struct Depth {
    int groups = 0;
    ncclComm_t comm = nullptr; // of the calls so far
    ncclResult_t failed = ncclSuccess;
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

static void play_fault(ncclComm_t c) {
    const Fault &f = fault_wanted();
    if (f.rank != c->rank || f.launch != c->launches || !c->pending.empty())
        return;
    if (f.what == "kill" || f.what == "stop")
        raise(f.what == "kill" ? SIGKILL : SIGSTOP);
    if (f.what == "error")
        broken_rank = c->rank;
}

static ncclResult_t add(ncclComm_t c, cudaStream_t stream, const Call &call) {
    host_turn();
    play_fault(c);
    if (c->group->joined < c->group->size)
        die("NCCL: %s before the communicator is ready", kind_names[call.kind]);
    bool first = !depth.comm;
    if (first && !c->pending.empty())
        die("NCCL: %s while an earlier launch is in progress", kind_names[call.kind]);
    if (!first && (depth.comm != c || c->stream != stream))
        die("NCCL: a group with two communicators or streams is not simulated");
    if (gpu_place(stream_gpu(stream)) != c->group->gpu[(size_t)c->rank])
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

// A launcher's processes find the folder's name in it, as real ones find an address.
static ncclResult_t sim_unique_id(ncclUniqueId *id) {
    static uint64_t made;
    memset(id, 0, sizeof *id);
    made++;
    memcpy(id->internal + 64, &made, sizeof made);
    if (in_job()) {
        std::string folder = folder_make();
        if (folder.size() >= 64)
            die("NCCL: %s is too long for an id", folder.c_str());
        strcpy(id->internal, folder.c_str());
    }
    return ncclSuccess;
}

static void join(Group *g, int rank, int size, int gpu) {
    if (g->size != size || rank < 0 || rank >= size || g->gpu[(size_t)rank] >= 0)
        die("NCCL: rank %d of %d in a group of %d", rank, size, g->size);
    for (int other : g->gpu)
        g->duplicate |= other == gpu;
    g->gpu[(size_t)rank] = gpu;
    g->joined++;
}

static std::string join_of(int rank) {
    return "join." + std::to_string(rank);
}

// Who has come in other processes.
static void look_for_others(Group *g) {
    std::string said;
    int size, gpu;
    for (int r = 0; r < g->size && !g->folder.empty() && g->joined < g->size; r++)
        if (g->gpu[(size_t)r] < 0 && folder_get(g->folder, join_of(r), &said) &&
            sscanf(said.c_str(), "%d %d", &size, &gpu) == 2)
            join(g, r, size, gpu);
}

static std::shared_ptr<Group> group_of(const ncclUniqueId &id, int size) {
    static std::map<std::string, std::weak_ptr<Group>> groups;
    std::string key(id.internal, sizeof id.internal);
    std::shared_ptr<Group> g = groups[key].lock();
    if (g)
        return g;
    groups[key] = g = std::make_shared<Group>();
    g->size = size;
    g->gpu.assign((size_t)size, -1);
    if (in_job())
        g->folder = std::string(id.internal, strnlen(id.internal, sizeof id.internal));
    if (in_job() && !folder_exists(g->folder))
        die("NCCL: an id that no rank has made");
    return g;
}

static ncclResult_t sim_init(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                             ncclConfig_t *config) {
    host_turn();
    if (config->blocking != 0)
        die("NCCL: only communicators that do not block are simulated");
    std::shared_ptr<Group> g = group_of(id, size);
    int gpu = gpu_place(current_gpu());
    join(g.get(), rank, size, gpu);
    if (!g->folder.empty() &&
        !folder_post(g->folder, join_of(rank), std::to_string(size) + " " + std::to_string(gpu)))
        die("NCCL: rank %d twice", rank);
    *out = new ncclComm;
    (*out)->group = g;
    (*out)->rank = rank;
    return ncclInProgress;
}

// Ranks that have ended so far, by messages "WHAT.RANK".
static int count_of(const Group *g, const char *what) {
    int count = 0;
    std::string ignored;
    for (int r = 0; r < g->size; r++)
        count += folder_get(g->folder, what + std::to_string(r), &ignored);
    return count;
}

static ncclResult_t sim_async_error(ncclComm_t c, ncclResult_t *result) {
    host_turn();
    Group *g = c->group.get();
    look_for_others(g);
    if (c->finalizing && !g->folder.empty())
        g->finalized = count_of(g, "final.");
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
    Depth over = depth;
    depth = Depth();
    if (over.failed && over.comm)
        over.comm->pending.clear();
    if (over.failed)
        return over.failed;
    bool any = over.comm;
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
    if (!c->group->folder.empty())
        folder_post(c->group->folder, "final." + std::to_string(c->rank), "");
    return ncclInProgress;
}
// The last one to leave closes the door.
static ncclResult_t sim_destroy(ncclComm_t c) {
    if (!c->finalizing)
        die("NCCL: destroyed before it was finalized");
    Group *g = c->group.get();
    if (!g->folder.empty())
        folder_post(g->folder, "gone." + std::to_string(c->rank), "");
    if (!g->folder.empty() && count_of(g, "gone.") == g->size)
        folder_remove(g->folder);
    delete c;
    return ncclSuccess;
}
static ncclResult_t sim_abort(ncclComm_t c) {
    host_turn();
    if (fault_wanted().rank >= 0)
        fprintf(stderr, "cusim: rank %d: ncclCommAbort\n", c->rank);
    if (!c->group->folder.empty())
        folder_remove(c->group->folder); // the others wait for this rank in vain
    delete c;
    return ncclSuccess;
}
}

// With the types of nccl.h, so that a wrong prototype does not compile.
#define EXPORT(name, function)                                                                     \
    { "nccl" #name, (void *)static_cast<decltype(&nccl##name)>(function) }
// A call that faults.cc may let fail; in a group, the whole group then does.
static ncclResult_t refusal_of(const char *name) {
    ncclResult_t failed = (ncclResult_t)fault_of(name);
    if (failed && depth.groups)
        depth.failed = failed;
    return failed;
}
#define FALLIBLE(name, function)                                                                   \
    EXPORT(name, [](auto... a) {                                                                   \
        ncclResult_t failed = refusal_of("nccl" #name);                                            \
        return failed ? failed : function(a...);                                                   \
    })
static Library nccl("libnccl.so", {
                                      FALLIBLE(GetVersion, sim_version),
                                      EXPORT(GetErrorString, sim_error_string),
                                      FALLIBLE(GetUniqueId, sim_unique_id),
                                      FALLIBLE(CommInitRankConfig, sim_init),
                                      FALLIBLE(CommGetAsyncError, sim_async_error),
                                      FALLIBLE(CommFinalize, sim_finalize),
                                      FALLIBLE(CommDestroy, sim_destroy),
                                      FALLIBLE(CommAbort, sim_abort),
                                      FALLIBLE(GroupStart, sim_group_start),
                                      FALLIBLE(GroupEnd, sim_group_end),
                                      FALLIBLE(Send, sim_send),
                                      FALLIBLE(Recv, sim_recv),
                                      FALLIBLE(AllGather, sim_all_gather),
                                      FALLIBLE(Reduce, sim_reduce),
                                      FALLIBLE(ReduceScatter, sim_reduce_scatter),
                                  });
