// NCCL's calls as data: see nccl_calls.h. Called by nccl.cc.
#include "tests/cusim/nccl_calls.h"

#include "tests/cusim/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace cusim {

const char *const kind_names[] = {"ncclSend", "ncclRecv", "ncclAllGather", "ncclReduce",
                                  "ncclReduceScatter"};

size_t type_bytes(ncclDataType_t type) {
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

size_t sent_bytes(const Call &c, int size) {
    size_t bytes = c.count * type_bytes(c.type);
    switch (c.kind) {
    case RECV:
        return 0;
    case REDUCE_SCATTER:
        return bytes * (size_t)size;
    default:
        return bytes;
    }
}

// ---- between processes ----

struct Wire {
    int32_t kind, type, peer;
    uint64_t count;
};

std::string calls_pack(const std::vector<Call> &calls, int size) {
    uint64_t n = calls.size();
    std::string bytes(reinterpret_cast<const char *>(&n), sizeof n);
    for (const Call &c : calls) {
        Wire w = {c.kind, (int32_t)c.type, c.peer, c.count};
        bytes.append(reinterpret_cast<const char *>(&w), sizeof w);
    }
    for (const Call &c : calls)
        if (size_t sent = sent_bytes(c, size))
            bytes.append(c.send, sent);
    return bytes;
}

std::vector<Call> calls_unpack(const std::string &bytes, int sender, int size) {
    uint64_t n;
    std::vector<Call> calls;
    memcpy(&n, bytes.data(), sizeof n);
    const char *wire = bytes.data() + sizeof n, *sent = wire + n * sizeof(Wire);
    for (uint64_t i = 0; i < n; i++, wire += sizeof(Wire)) {
        Wire w;
        memcpy(&w, wire, sizeof w);
        Call c = {(Kind)w.kind, sent, nullptr, w.count, (ncclDataType_t)w.type, w.peer};
        sent += sent_bytes(c, size);
        calls.push_back(c);
    }
    if (sent != bytes.data() + bytes.size())
        die("NCCL: a message of %zu bytes from rank %d", bytes.size(), sender);
    return calls;
}

// ---- faults ----

static Fault read_fault() {
    Fault f;
    char what[16];
    unsigned long long launch;
    const char *text = getenv("CUSIM_NCCL_FAULT");
    if (text && sscanf(text, "%15s %d %llu", what, &f.rank, &launch) != 3)
        die("CUSIM_NCCL_FAULT=\"%s\": expected WHAT RANK LAUNCH", text);
    if (text) {
        f.what = what;
        f.launch = launch;
    }
    return f;
}

const Fault &fault_wanted() {
    static const Fault fault = read_fault();
    return fault;
}

} // namespace cusim
