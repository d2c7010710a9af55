// Inside the simulated NCCL: a group of ranks, and a launch of one of them.
#ifndef TESTS_CUSIM_NCCL_LAUNCH_H
#define TESTS_CUSIM_NCCL_LAUNCH_H
#include "tests/cusim/nccl_calls.h"
#include "tests/cusim/runtime.h"

#include <map>

namespace cusim {

struct Launch;

// What the ranks of one identifier share.
struct Group {
    std::string folder; // of messages between processes; empty: one process has them all
    int size = 0, joined = 0, finalized = 0;
    std::vector<int> gpu; // of each rank, in the machine; -1: not there yet
    bool duplicate = false;
    std::map<uint64_t, std::vector<Launch *>> meetings; // by number: the ranks' launches
};

struct Launch : Operation {
    std::shared_ptr<Group> group;
    std::vector<Call> calls;
    int rank;
    uint64_t number;
    bool moved = false;
    bool elsewhere = false; // another process's: the calls' data lie in `message`
    std::string message;
    Clock before;

    void start() override;
    bool poll() override;
};

// An access of the launch's; of one in another process it is not seen.
void launch_read(Launch *l, const char *p, size_t bytes, Use use);
// Moves the data of launches that belong together, one of each rank, to the ranks of this process.
// Calls that do not fit end the run.
void launch_run_all(const std::vector<Launch *> &all);

} // namespace cusim
#endif
