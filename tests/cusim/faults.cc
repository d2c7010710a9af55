// The Nth call of CUDA fails: for scripts/faults.sh, whose libfault.so cannot stand between a
// program and a simulator in the same executable, so that the linker does it (Makefile,
// CUSIM_CALLS). It heeds the same settings (tests/lib/fault.c) where FAULT_CLASS is cuda:
//
//   FAULT_AT=N    the Nth call from 1, of all that are listed here
//   FAULT_DO      ENOMEM: out of memory; kill: the process's end; anything else: a CUDA error
//   FAULT_LOG     gets "fault cuda N NAME 0 DO", and at the end "calls cuda COUNT"
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
    X(cudaStreamSynchronize) X(cudaStreamWaitEvent) \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtMatmul) X(cublasLtMatmulAlgoCheck) \
    X(cublasLtMatmulAlgoConfigGetAttribute) X(cublasLtMatmulAlgoGetHeuristic) \
    X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) \
    X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatrixLayoutCreate) \
    X(cublasLtMatrixLayoutDestroy)
// clang-format on

static const long CUDA_FAILS = 700, CUDA_NO_MEMORY = 2, CUBLAS_FAILS = 14, CUBLAS_NO_MEMORY = 3;

static std::atomic<long> calls;
static long at = -1; // -1: not looked yet
static const char *what, *told;

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
    at = of && !strcmp(of, "cuda") && number ? atol(number) : 0;
    what = wish ? wish : "EIO";
    told = getenv("FAULT_LOG");
}

__attribute__((destructor)) static void count() {
    char line[64];
    snprintf(line, sizeof line, "calls cuda %ld\n", calls.load());
    if (calls.load())
        tell(line);
}

// 0: it is to go through.
static long fate(const char *name) {
    char line[128];
    long n = ++calls;
    if (n != at)
        return 0;
    snprintf(line, sizeof line, "fault cuda %ld %s 0 %s\n", n, name, what);
    tell(line);
    if (!strcmp(what, "kill"))
        kill(getpid(), SIGKILL);
    bool memory = !strcmp(what, "ENOMEM");
    if (name[1] == 'u' && name[2] == 'd')
        return memory ? CUDA_NO_MEMORY : CUDA_FAILS;
    return memory ? CUBLAS_NO_MEMORY : CUBLAS_FAILS;
}

#define LONGS                                                                                      \
    long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k,        \
        long l, long m, long n, long o, long p
#define AS_WRAPPER(name)                                                                           \
    extern "C" long __real_##name(LONGS);                                                          \
    extern "C" long __wrap_##name(LONGS) {                                                         \
        long error = fate(#name);                                                                  \
        return error ? error : __real_##name(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);      \
    }
CUDA_CALLS(AS_WRAPPER)
