// The Nth call of CUDA fails: for scripts/faults/faults.sh, whose libfault.so cannot stand between
// a program and a simulator in the same executable, so that the linker does it (Makefile,
// CUSIM_CALLS). It heeds the same settings (tests/lib/fault.c) where FAULT_CLASS is cuda:
//
//   FAULT_AT=N    the Nth call from 1, of all that are listed here
//   FAULT_DO      ENOMEM: out of memory; ENODEV: the GPU is lost, so that every later call fails
//                 too; kill: the process's end; anything else: a CUDA error
//   FAULT_RANK    of a launcher's processes only that one's
//   FAULT_LOG     gets "fault cuda N NAME 0 DO", and at the end "calls cuda COUNT"
//
// A test asks for one by the call's name instead (sim_fail_call). The launches of
// kernels and the calls of cuBLASLt and NCCL, which no linker could wrap, ask by themselves
// (block.cc, cublaslt.cc, nccl.cc).
//
// As in tests/lib/fault.c, calls travel as integers, here of up to sixteen arguments.
#include "tests/cusim/internal.h"

#include <atomic>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// clang-format off
#define CUDA_CALLS(X) \
    X(cudaDeviceGetAttribute) X(cudaDeviceGetStreamPriorityRange) X(cudaDeviceSynchronize) \
    X(cudaEventCreateWithFlags) X(cudaEventDestroy) X(cudaEventElapsedTime) X(cudaEventQuery) \
    X(cudaEventRecord) X(cudaEventSynchronize) X(cudaFree) X(cudaFreeHost) \
    X(cudaFuncGetAttributes) X(cudaFuncSetAttribute) X(cudaGetDevice) X(cudaGetDeviceCount) \
    X(cudaGetDeviceProperties) X(cudaGetLastError) X(cudaHostAlloc) X(cudaLaunchHostFunc) \
    X(cudaMalloc) X(cudaMallocHost) X(cudaMemGetInfo) X(cudaMemcpyAsync) X(cudaMemsetAsync) \
    X(cudaPeekAtLastError) X(cudaSetDevice) X(cudaStreamCreateWithFlags) \
    X(cudaStreamCreateWithPriority) X(cudaStreamDestroy) X(cudaStreamQuery) \
    X(cudaStreamSynchronize) X(cudaStreamWaitEvent)
// clang-format on

// What the libraries say of a call that fails, of memory that is out, and of a GPU that is lost.
static const struct {
    const char *prefix;
    long fails, no_memory, lost;
} answers[] = {{"cuda", 700, 2, 214}, {"cublas", 14, 3, 14}, {"nccl", 2, 1, 1}};

static std::atomic<long> calls;
static long at = -1; // -1: not looked yet
static const char *what, *told;

static const char *refused; // by sim_fail_call
static size_t refused_after;
static long refusal;

extern "C" void sim_fail_call(const char *name, size_t nth, int status) {
    refused = name;
    refused_after = nth;
    refusal = status;
}

static void tell(const char *line) {
    FILE *f = told ? fopen(told, "ae") : nullptr;
    if (!f)
        return;
    fputs(line, f);
    fclose(f);
}

__attribute__((constructor)) static void look() {
    const char *of = getenv("FAULT_CLASS"), *number = getenv("FAULT_AT");
    const char *wish = getenv("FAULT_DO");
    const char *victim = getenv("FAULT_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    bool other = victim && rank && strcmp(victim, rank) != 0;
    at = of && !strcmp(of, "cuda") && number && !other ? atol(number) : 0;
    what = wish ? wish : "EIO";
    told = getenv("FAULT_LOG");
}

__attribute__((destructor)) static void count() {
    char line[64];
    snprintf(line, sizeof line, "calls cuda %ld\n", calls.load());
    if (calls.load())
        tell(line);
}

static long answer_of(const char *name) {
    for (const auto &a : answers)
        if (!strncmp(name, a.prefix, strlen(a.prefix)))
            return !strcmp(what, "ENOMEM")   ? a.no_memory
                   : !strcmp(what, "ENODEV") ? a.lost
                                             : a.fails;
    abort();
}

// 0: it is to go through.
long cusim::fault_of(const char *name) {
    char line[128];
    long n = ++calls;
    if (refused && !strcmp(refused, name) && refused_after-- == 0)
        return refusal;
    if (at < 1 || n < at)
        return 0;
    if (n > at)
        return strcmp(what, "ENODEV") ? 0 : answer_of(name);
    snprintf(line, sizeof line, "fault cuda %ld %s 0 %s\n", n, name, what);
    tell(line);
    if (!strcmp(what, "kill"))
        kill(getpid(), SIGKILL);
    return answer_of(name);
}

#define LONGS                                                                                      \
    long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k,        \
        long l, long m, long n, long o, long p
#define AS_WRAPPER(name)                                                                           \
    extern "C" long __real_##name(LONGS);                                                          \
    extern "C" long __wrap_##name(LONGS) {                                                         \
        long error = cusim::fault_of(#name);                                                       \
        return error ? error : __real_##name(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);      \
    }
CUDA_CALLS(AS_WRAPPER)
