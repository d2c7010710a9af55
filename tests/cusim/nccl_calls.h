// Inside the simulated NCCL: its calls as data, how they travel between processes, and what goes
// wrong on purpose.
#ifndef TESTS_CUSIM_NCCL_CALLS_H
#define TESTS_CUSIM_NCCL_CALLS_H
#include <nccl.h>
#include <stddef.h>
#include <stdint.h>
#include <string>
#include <vector>

namespace cusim {

enum Kind { SEND, RECV, ALL_GATHER, REDUCE, REDUCE_SCATTER };
extern const char *const kind_names[];

struct Call {
    Kind kind;
    const char *send;
    char *recv;
    size_t count;
    ncclDataType_t type;
    int peer; // or root; -1: none
};

size_t type_bytes(ncclDataType_t type);
// What a rank of `size` ranks gives the others by a call, from c.send on.
size_t sent_bytes(const Call &c, int size);

// The calls of a launch with all that they send, and back: the calls' `send` then lie in `bytes`.
std::string calls_pack(const std::vector<Call> &calls, int size);
std::vector<Call> calls_unpack(const std::string &bytes, int sender, int size);

// What CUSIM_NCCL_FAULT="WHAT RANK LAUNCH" asks for, at the first call of that launch (from 0) of
// that rank: kill or stop, its process gets that signal; error, its link breaks and NCCL says so;
// silence, it breaks and nobody says so.
struct Fault {
    std::string what;
    int rank = -1;
    uint64_t launch = 0;
};
const Fault &fault_wanted();

} // namespace cusim
#endif
