// What a test may ask of the CUDA simulator. On a real GPU (tests/cusim/real.c) all of it does
// nothing, and sim_is_real is true.
#ifndef TESTS_CUSIM_SIM_H
#define TESTS_CUSIM_SIM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The order in which the threads of a block, and the blocks of a grid, take their turns.
enum SimOrder { SIM_FORWARD, SIM_REVERSE, SIM_RANDOM_ORDER, NSIMORDER };
void sim_set_order(enum SimOrder order, uint64_t seed);

// How far streams run ahead of the host and of each other. EAGER: each operation as soon as it can.
// LAZY: only what the host waits for. STARVE: the stream of that queue number (enum Queue) last of
// all, on every GPU; from 4 on: the queue of that number less 4, on every CPU device. RANDOM: any
// ready stream, by seed. The queues of CPU devices are host threads, which take turns by seed.
enum SimSchedule { SIM_EAGER, SIM_LAZY, SIM_STARVE, SIM_RANDOM };
void sim_set_schedule(enum SimSchedule schedule, uint64_t seed_or_queue);

// Races found since the last call: two accesses to the same bytes, one of them a write, that no
// stream's order, event or synchronisation puts one after the other. The first is printed.
size_t sim_races(void);

// Leaves out the nth (from 0) event record, event wait, or synchronisation of the host that is
// made from now on; SIZE_MAX: none. Returns how many were made since the last call.
size_t sim_drop(size_t nth);
// How many were made since the last call of sim_drop.
size_t sim_syncs(void);

// What the nth since the last call of sim_drop was. queue: that records or waits, or is waited for
// (enum Queue; -1: none, the program's own thread waits for an event); event: its cudaEvent_t, or a
// CPU device's struct Event (NULL: none).
enum SimSyncKind { SIM_RECORD, SIM_WAIT, SIM_SYNC };
struct SimSync {
    enum SimSyncKind kind;
    int queue;
    bool cpu_queue;  // the queue is a CPU device's
    bool cpu_event;  // the event is
    bool first_host; // made by the program's first thread, or in a queue of its CPU device
    const void *event;
    size_t queued; // kernels and copies that the calling thread's compute streams had not ended
};
struct SimSync sim_sync(size_t nth);

// Kernels, products of cuBLASLt, copies and memsets that were queued since the last call.
size_t sim_launches(void);

// Whether faults are told with names and lines of the source, as they are at first: to look one up
// takes about a second.
void sim_tell_places(bool yes);

// How many GPUs the simulator shows; 1 at first.
void sim_set_gpus(int count);

// What CUDA_MODULE_LOADING was at the process's first call of CUDA; "": nothing. NULL: no call yet.
const char *sim_module_loading(void);

// Whether each launch of a kernel or product waits until its GPU is idle, while calls of the
// process's other threads wait for it: CUDA may do so where it loads a kernel late.
void sim_load_late(bool yes);

// The GPUs' compute capability, 9.0 at first. The simulator's kernels count as built for 8.0 and
// 9.0.
void sim_set_capability(int major, int minor);

// The nth kernel (from 0) that is launched from now on fails when it runs, as by an address out of
// bounds: all that comes after it in any stream is lost, and CUDA's calls say so. SIZE_MAX: none.
void sim_fail_launch(size_t nth);

// The nth call (from 0) of that function of CUDA, cuBLASLt or NCCL that is made from now on does
// nothing, and returns `status`.
void sim_fail_call(const char *name, size_t nth, int status);

// Matrix products that warps have made by mma since the program began, each counted once a lane.
size_t sim_mmas(void);

// Rows for kernels of tests, as docs/registers.md has them for all others.
void sim_tell_registers(const char *rows);

// The kernels (of kernels/) that have no row there, and rows without a kernel, a line each. NULL:
// none.
const char *sim_unreported(void);

// Counts what kernels ask of memory that run from now on, or no longer; forgets what was counted.
// counters.cc says what the numbers are.
void sim_count(bool yes);
// A small operand, which blocks read again from a cache: see SimCounts.
void sim_count_small(const void *p, size_t bytes);
struct SimCounts {
    size_t launches;
    uint64_t asked, moved, again, touched; // 32-byte sectors of global memory
    uint64_t passes, ideal;                // over the banks of shared memory
};
// Of the function of that name ("norm_forward_kernel"), whatever its template arguments.
struct SimCounts sim_counts(const char *kernel);
// The name of the nth such function that has been counted, in ascending order; NULL: no more.
const char *sim_counted(size_t nth);

bool sim_is_real(void);

#ifdef __cplusplus
}
#endif
#endif
