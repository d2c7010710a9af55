// Inside the CUDA simulator: what its own files share and a simulated library does not need.
#ifndef TESTS_CUSIM_INTERNAL_H
#define TESTS_CUSIM_INTERNAL_H
#include "tests/cusim/runtime.h"
#include "tests/cusim/sim.h"

#include <deque>

namespace cusim {

enum { MAX_GPUS = 8 };

// report.cc
std::string code_place(const void *address);    // "file:line" of code
std::string function_name(const void *address); // of a kernel
std::string kernel_place();                     // "block (0,0,0), thread (3,0,0)"; "" outside
[[noreturn]] void die_at(const void *caller, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// memory.cc
struct Allocation {
    uintptr_t start;
    size_t bytes;
    int gpu, number;
    bool freed;
};
void *memory_alloc(int gpu, size_t bytes); // gpu -1: pinned; nullptr: the GPU is full
void memory_free(void *p, bool pinned);
size_t memory_free_bytes(int gpu);
extern const size_t gpu_bytes;
extern uintptr_t arena_begin, arena_end; // of all memory that is watched
void hook(const void *p, size_t bytes, Use use, const void *caller); // a compiled access

// race.cc
void race(uint32_t earlier, bool earlier_writes, Segment *now, bool now_writes, uintptr_t address,
          const void *caller);
std::string describe(uintptr_t address); // "byte 4 of the 64 bytes of allocation 3 (GPU 0)"

// api.cc
void count_launch(const char *what); // of an operation that is queued, for sim_launches

// stream.cc
extern int gpu_count;
bool streams_advance();                  // one step of any stream; false: nothing can go on
extern cudaError_t lost;                 // what a kernel's failure made of the context
void streams_pump();                     // as far as the schedule lets them run ahead
void stream_finish(cudaStream_t stream); // the host waits for all of it
void gpu_finish(const char *what);       // for all of the current GPU's, which orders nothing
bool dropped(SimSync sync);              // counts one; true: it is to be left out
void call_on_driver(cudaStream_t stream, cudaHostFn_t function, void *data);

// host.cc
struct Host {
    Actor actor;
    Segment segment;
    int gpu = 0;
    bool over = false;
    double deadline = -1; // s, of a wait that ends by itself; -1: none
    const char *waits_for = nullptr;
    std::function<bool()> ready; // empty: it can run
    void *wake = nullptr;        // sem_t
    int queue = -1;              // a CPU device's worker: of this queue (cpu.cc)
    Host *owner = nullptr;       // of a worker: who opened the device
    int opens_queue = -1;        // the thread that it starts now is the worker of that queue
    bool quiet = false;          // in code whose locks order nothing: they carry no clocks
};
Host *host_self();
bool host_is_first(); // of the program, or a worker of its CPU device
void host_released(); // later accesses of this host thread are a new segment
Host *host_start_driver(void (*body)());
Host *host_newest(); // that was started
struct Quiet {       // while it lives, locks that the calling thread takes carry no clocks
    Host *host = host_self();
    bool before = host->quiet;
    Quiet() { host->quiet = true; }
    ~Quiet() { host->quiet = before; }
};
uint64_t host_random();
void host_seed(uint64_t seed);
bool host_put_off(const Host *h); // stream.cc: the schedule lets it go on only if nobody else can

// shared.cc
extern uintptr_t shared_begin, shared_end;   // static shared memory
extern uintptr_t dynamic_begin, dynamic_end; // where dynamic shared memory lies
static inline bool is_shared(uintptr_t a) {
    return a - shared_begin < shared_end - shared_begin ||
           a - dynamic_begin < dynamic_end - dynamic_begin;
}
void shared_access(uintptr_t address, size_t bytes, Use use, const void *caller);

// loading.cc
void wait_for_loading(); // of another thread's kernel

// report.cc
[[noreturn]] void die_unaligned(uintptr_t address, size_t alignment, const void *caller);
// A GPU loads and stores N bytes (2, 4, 8, 16) at multiples of N, and faults elsewhere.
static inline void check_aligned(const void *p, size_t alignment, const void *caller) {
    if (reinterpret_cast<uintptr_t>(p) & (alignment - 1))
        die_unaligned(reinterpret_cast<uintptr_t>(p), alignment, caller);
}

// resources.cc
size_t static_shared(const void *kernel);     // bytes
std::string kernel_named(const void *kernel); // as in docs/registers.md
std::string kernel_line(const void *kernel);  // file:line
std::string launch_of(const void *kernel);    // "file:line: launch of NAME"
void check_block(const void *kernel, size_t threads);

// counters.cc
extern bool counting; // a kernel runs whose accesses are counted
void count_access(uintptr_t address, size_t bytes, Use use, bool shared, bool cached,
                  const void *caller);

// block.cc
extern SimOrder thread_order;
bool in_kernel();
void set_dynamic_limit(const void *kernel, size_t bytes);

} // namespace cusim

// The calls that the linker has wrapped (Makefile), under their own names.
extern "C" {
void *__real_memcpy(void *, const void *, size_t);
void *__real_memmove(void *, const void *, size_t);
void *__real_memset(void *, int, size_t);
}
#endif
