// Inside the CUDA simulator: what its parts share, and what a simulated library (NCCL, cuBLASLt)
// is written against.
//
// The whole simulator runs one step at a time. Host threads take turns (host.cc), and whoever has
// the turn also lets the streams advance (stream.cc). So nothing here needs a lock, and no function
// here may block: what has to wait is an Operation whose poll says "not yet".
//
// Who accessed what before whom is told by vector clocks (Mattern, "Virtual Time and Global States
// of Distributed Systems", 1988). An ACTOR is a stream or a host thread; it has a slot in every
// clock. A SEGMENT is a stretch of one actor's work that nothing can come between: one operation of
// a stream, or what a host thread does between two calls that others could wait for. Memory
// (memory.cc) keeps for every 4 bytes the segment that wrote them last and those that read them
// since.
//
// Read next: memory.cc, stream.cc, block.cc.
#ifndef TESTS_CUSIM_RUNTIME_H
#define TESTS_CUSIM_RUNTIME_H
#include <cuda_runtime_api.h>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stddef.h>
#include <stdint.h>
#include <string>
#include <vector>

namespace cusim {

// ---- faults ----

// One line, with what runs now (kernel, block, thread), and the end of the process (status 99).
[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

// What the call of that name is to answer by the wish of FAULT_AT (faults.cc); 0: it is to go
// through. For libraries whose calls the linker does not wrap.
long fault_of(const char *name);

// ---- clocks ----

struct Clock {
    std::vector<uint32_t> at; // by slot; what is missing is 0
    void join(const Clock &other);
    uint32_t of(unsigned slot) const { return slot < at.size() ? at[slot] : 0; }
};

struct Actor {
    unsigned slot;
    Clock clock;      // what happened before the actor's next step
    std::string name; // "stream 2 of GPU 0", "host thread 1"
};

struct Segment {
    Actor *actor = nullptr;
    uint32_t number = 0;          // index of its description; 0: none yet
    const char *what = "host";    // of the operation
    const void *kernel = nullptr; // if it is one: its address, which has a name
    int gpu = -1;                 // -1: the host
};

void actor_open(Actor *a, const std::string &name, const Clock &before);
void actor_close(Actor *a); // its slot may be used again
uint32_t segment_number(Segment *s);

// What is described by that number, for reports; and whether it comes before what `s` does now.
std::string segment_text(uint32_t number);
bool segment_before(uint32_t number, const Segment &s);

// ---- memory ----

enum class Use {
    READ,  // a fault where a byte was never written
    WRITE, // from now on it is written
    CARRY, // a read for a copy: bytes never written stay so in the copy (carry)
    ATOMIC // reads and writes at once; atomics do not race with each other inside one kernel
};

// Checks and notes an access to memory: bounds, unwritten bytes, races. Made by the operation that
// runs now or else by the calling host thread. Memory that is neither of a GPU nor pinned is
// nobody's business.
void access(const void *p, size_t bytes, Use use, const void *caller = nullptr);
// The same, made by the segment of an operation that has started and has not ended.
void access_as(Segment *s, const void *p, size_t bytes, Use use, const void *caller = nullptr);

// memcpy and memset that the checks do not see. Between GPU or pinned memory the state "never
// written" goes along.
void raw_copy(void *to, const void *from, size_t bytes);
void raw_set(void *to, int value, size_t bytes);
// Overwrites scratch with 0xff, and it counts as never written.
void poison(void *p, size_t bytes);

bool is_device_memory(const void *p);
bool is_pinned_memory(const void *p);
int gpu_of_memory(const void *p); // -1: the host's

// ---- operations of streams ----

// Something that takes its turn in a stream. Each function is called with `segment` as what runs
// now. An operation that meets others says so in start, and moves data once all are there: the
// first whose poll finds them all does the work for all, with access_as, since only its own segment
// may touch a rank's buffers.
struct Operation {
    Segment segment;
    Clock issued; // what the host had seen when it was enqueued
    bool started = false;
    virtual ~Operation() {}
    virtual bool can_start() { return true; }
    virtual void start() {}
    virtual bool poll() { // true: it is done
        return true;
    }
};

// `what` must last for ever (a literal).
void enqueue(cudaStream_t stream, const char *what, std::unique_ptr<Operation> op);
// An operation that is over as soon as it starts.
void enqueue(cudaStream_t stream, const char *what, std::function<void()> run);
int stream_gpu(cudaStream_t stream);
// Before a launch on the current GPU: of any kernel, or of a library's of that name.
void load_kernel();
void load_kernel(const std::string &name);

// Edges between operations, other than by streams and events: what the actor of `s` has done comes
// before whatever acquires `clock` later.
void release(Segment *s, Clock *clock);
void acquire(Segment *s, const Clock &clock);
Segment *running(); // the operation that runs now, or the calling host thread

// ---- host threads ----

// Gives other host threads their turn, and returns when `ready` says so. `what` is said if nobody
// can go on.
void host_wait(const char *what, std::function<bool()> ready);
// A place where another host thread may get its turn: at the start of every simulated call.
void host_turn();
int current_gpu();      // of the calling host thread (cudaSetDevice)
int gpu_place(int gpu); // its number in the machine, where CUDA_VISIBLE_DEVICES shows a part

// ---- libraries ----

// What library_open finds: static Library nccl("libnccl.so", {{"ncclSend", (void *)ncclSend},
// ...});
struct Export {
    const char *symbol;
    void *function;
};
struct Library {
    Library(const char *file_prefix, std::initializer_list<Export> exports);
    const char *file_prefix;
    std::vector<Export> exports;
};

} // namespace cusim
#endif
