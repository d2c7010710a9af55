// A grid of blocks: every CUDA thread is a fiber, and they take turns where they wait.
//
// A thread runs until a barrier or a collective of its warp makes it wait; then the next one that
// can run, in the order that the test asked for (forward, reverse, random by seed), goes on. A
// kernel whose result depends on that order lacks a barrier. If nobody can go on, threads wait at
// places that others never reach: the run ends, and says where.
//
// Blocks run one after the other, so a kernel may not wait for another block. Shared memory is
// poisoned before each block.
//
// Read next: warp.cc, shared.cc; resources.cc, for what a block may have.
#include "tests/cusim/block.h"

#include <algorithm>
#include <map>
#include <random>
#include <stdio.h>
#include <sys/mman.h>

// What kernels see as constants (include/cusim/language.h).
extern uint3 thread_index __asm__("cusim_thread_index");
extern uint3 block_index __asm__("cusim_block_index");
extern dim3 block_size __asm__("cusim_block_size");
extern dim3 grid_size __asm__("cusim_grid_size");
uint3 thread_index, block_index;
dim3 block_size, grid_size;

extern "C" void cusim_switch(void **save, void *load);
extern "C" void cusim_entry(void);

namespace cusim {

Block block;
SimOrder thread_order = SIM_FORWARD;
static std::mt19937_64 random_order(1);
static std::map<const void *, size_t> dynamic_limit;

static const size_t STACK_BYTES = 128 << 10, PAGE = 4096;
static const size_t SHARED_DEFAULT = 48 << 10, SHARED_MOST = 227 << 10; // static and dynamic

bool in_kernel() {
    return block.now;
}

std::string kernel_place() {
    if (!block.now)
        return "";
    char text[128];
    snprintf(text, sizeof text, "block (%u,%u,%u), thread (%u,%u,%u)", block_index.x, block_index.y,
             block_index.z, thread_index.x, thread_index.y, thread_index.z);
    return text;
}

void *dynamic_shared() {
    return block.dynamic;
}

int lane_now() {
    return block.now->lane;
}

// ---- turns ----

static Fiber *next_fiber() {
    for (int k = 0; k < block.threads; k++) {
        if (++block.cursor == block.threads)
            block.cursor = 0;
        Fiber *f = &block.fiber[block.order[block.cursor]];
        if (f->state == State::RUNS)
            return f;
    }
    return nullptr;
}

static void switch_to(void **save, Fiber *to) {
    block.now = to;
    if (to)
        thread_index = to->index;
    cusim_switch(save, to ? to->stack_pointer : block.launcher);
}

// Two threads that wait at different places say most.
[[noreturn]] static void die_waiting() {
    std::string all;
    std::vector<std::string> seen;
    for (int i = 0; i < block.threads; i++) {
        const Fiber &f = block.fiber[i];
        std::string at = f.state == State::OVER
                             ? "ended"
                             : std::string(f.state == State::IN_WARP ? "waits for its warp at "
                                                                     : "waits at the barrier ") +
                                   f.file + ":" + std::to_string(f.line);
        if (std::find(seen.begin(), seen.end(), at) != seen.end())
            continue;
        seen.push_back(at);
        all += (all.empty() ? "thread " : ", thread ") + std::to_string(i) + " " + at;
    }
    die("divergent threads of a block: %s", all.c_str());
}

void fiber_yield() {
    Fiber *me = block.now, *to = next_fiber();
    if (!to)
        die_waiting();
    if (to != me)
        switch_to(&me->stack_pointer, to);
}

// ---- barriers ----

static void open_barrier() {
    block.at_barrier = 0;
    block.barrier_result = block.barrier_sum;
    block.barrier_sum = 0;
    shared_barrier();
    if (counting)
        count_barrier();
    for (Fiber &f : block.fiber)
        if (f.state == State::AT_BARRIER)
            f.state = State::RUNS;
}

int barrier(int predicate, int kind, const char *file, int line) {
    (void)kind;
    Fiber *me = block.now;
    me->file = file;
    me->line = line;
    if (block.at_barrier && (line != block.barrier_line || file != block.barrier_file))
        die("divergent barrier: some threads of the block are at %s:%d, others at %s:%d",
            block.barrier_file, block.barrier_line, file, line);
    block.barrier_file = file;
    block.barrier_line = line;
    block.barrier_sum += predicate != 0;
    if (++block.at_barrier == block.live) {
        open_barrier();
    } else {
        me->state = State::AT_BARRIER;
        fiber_yield();
    }
    return block.barrier_result;
}

extern "C" void cusim_fiber_main(void) {
    Fiber *me = block.now;
    (*block.body)();
    me->state = State::OVER;
    block.live--;
    fiber_leaves_warp(me);
    if (block.live && block.at_barrier == block.live)
        open_barrier();
    Fiber *to = block.live ? next_fiber() : nullptr;
    if (block.live && !to)
        die_waiting();
    void *never_used;
    switch_to(&never_used, to);
}

// ---- a grid ----

static char *stack_open() {
    void *p = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, PAGE, PROT_NONE))
        die("no memory for the stacks of a block's threads");
    return static_cast<char *>(p);
}

static void set_up(dim3 size, size_t shared_bytes) {
    static std::vector<char *> stacks;
    int n = (int)(size.x * size.y * size.z);
    while ((int)stacks.size() < n)
        stacks.push_back(stack_open());
    block.threads = n;
    block.fiber.resize((size_t)n);
    block.order.resize((size_t)n);
    block.warp.resize((size_t)(n + 31) / 32);
    block.dynamic = shared_open(shared_bytes);
    block.dynamic_bytes = shared_bytes;
    for (int i = 0; i < n; i++) {
        Fiber &f = block.fiber[i];
        unsigned u = (unsigned)i;
        f.stack = stacks[i];
        f.number = i;
        f.lane = i % 32;
        f.warp = i / 32;
        f.index = {u % size.x, u / size.x % size.y, u / size.x / size.y};
        block.order[i] = thread_order == SIM_REVERSE ? n - 1 - i : i;
    }
}

static void start_block() {
    int n = block.threads;
    shared_poison();
    if (thread_order == SIM_RANDOM_ORDER)
        std::shuffle(block.order.begin(), block.order.end(), random_order);
    for (size_t w = 0; w < block.warp.size(); w++) {
        int lanes = n - (int)w * 32;
        block.warp[w].live = lanes >= 32 ? 0xffffffffu : (1u << lanes) - 1;
        for (Meeting &m : block.warp[w].meeting)
            m.mask = m.arrived = m.count = 0;
    }
    for (Fiber &f : block.fiber) {
        f.state = State::RUNS;
        f.commits = 0;
        f.copies.clear();
        // Stacks begin at different lines of the cache.
        void **top = reinterpret_cast<void **>(f.stack + STACK_BYTES - 64 - f.number % 64 * 64);
        top[0] = reinterpret_cast<void *>(cusim_entry);
        for (int i = 1; i <= 6; i++)
            top[-i] = nullptr;
        f.stack_pointer = top - 6;
    }
    block.live = n;
    block.at_barrier = block.barrier_sum = 0;
    block.cursor = n - 1;
}

void run_grid(dim3 grid, dim3 size, size_t shared_bytes, const std::function<void()> &body) {
    set_up(size, shared_bytes);
    block.body = &body;
    block_size = size;
    grid_size = grid;
    std::vector<unsigned> turn((size_t)grid.x * grid.y * grid.z);
    for (size_t i = 0; i < turn.size(); i++)
        turn[i] = (unsigned)(thread_order == SIM_REVERSE ? turn.size() - 1 - i : i);
    if (thread_order == SIM_RANDOM_ORDER)
        std::shuffle(turn.begin(), turn.end(), random_order);
    count_begin();
    for (unsigned b : turn) {
        block_index = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        start_block();
        switch_to(&block.launcher, next_fiber());
        if (counting)
            count_block();
    }
    count_end();
}

static size_t launches_left = SIZE_MAX; // until one fails

static void check_launch(const void *kernel, dim3 grid, dim3 size, size_t shared_bytes) {
    auto limit = dynamic_limit.find(kernel);
    size_t fixed = static_shared(kernel);
    size_t most = limit == dynamic_limit.end() ? SHARED_DEFAULT - fixed : limit->second;
    size_t threads = (size_t)size.x * size.y * size.z;
    if (threads < 1 || threads > 1024 || size.z > 64)
        die("launch of %s: a block of %u x %u x %u threads", function_name(kernel).c_str(), size.x,
            size.y, size.z);
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        die("launch of %s: a grid of %u x %u x %u blocks", function_name(kernel).c_str(), grid.x,
            grid.y, grid.z);
    if (shared_bytes > most)
        die("%s: %zu bytes of dynamic shared memory beside %zu static ones, the limit is %zu "
            "(cudaFuncSetAttribute raises it)",
            launch_of(kernel).c_str(), shared_bytes, fixed, most);
    check_block(kernel, threads);
}

cudaError_t launch(const void *kernel, dim3 grid, dim3 size, size_t shared_bytes,
                   cudaStream_t stream, std::function<void()> body) {
    host_turn();
    check_launch(kernel, grid, size, shared_bytes);
    if (stream && stream_gpu(stream) != current_gpu())
        die("launch of %s: GPU %d is current, the stream is GPU %d's",
            function_name(kernel).c_str(), current_gpu(), stream_gpu(stream));
    struct Kernel : Operation {
        dim3 grid, size;
        size_t shared_bytes;
        std::function<void()> body;
        bool fails;
        void start() override {
            if (fails)
                lost = cudaErrorIllegalAddress;
            else
                run_grid(grid, size, shared_bytes, body);
        }
    };
    long refused = fault_of("cudaLaunchKernel");
    if (lost || refused)
        return lost ? lost : (cudaError_t)refused;
    load_kernel();
    std::unique_ptr<Kernel> op(new Kernel);
    op->fails = launches_left == 0;
    launches_left -= launches_left != SIZE_MAX;
    op->segment.kernel = kernel;
    op->grid = grid;
    op->size = size;
    op->shared_bytes = shared_bytes;
    op->body = std::move(body);
    enqueue(stream, "a kernel", std::move(op));
    return cudaSuccess;
}

void set_dynamic_limit(const void *kernel, size_t bytes) {
    size_t fixed = static_shared(kernel);
    if (fixed + bytes > SHARED_MOST)
        die("%s: cudaFuncSetAttribute allows it %zu bytes of dynamic shared memory beside %zu "
            "static ones, a GPU has %zu for a block",
            launch_of(kernel).c_str(), bytes, fixed, SHARED_MOST);
    dynamic_limit[kernel] = bytes;
}

} // namespace cusim

extern "C" void sim_fail_launch(size_t nth) {
    cusim::launches_left = nth;
}

extern "C" void sim_set_order(enum SimOrder order, uint64_t seed) {
    cusim::thread_order = order;
    cusim::random_order.seed(seed);
}
