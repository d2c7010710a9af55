// Internals of the CPU backend: the device's state, the plain functions behind the kernel table,
// and the tables.
//
// A kernel is an ordinary function `void <isa>_<op>(struct Cpu *, const struct <Args> *)` that runs
// on the calling thread with device.threads OpenMP threads and returns when done.
// kernels/cpu/table.c wraps each into a launcher that puts it on a queue. The fast versions are
// compiled once per instruction set (Makefile: ISAS) from the same source; CPU_NAME puts the set
// into the name, so all are in one binary and device.c picks a table at run time.
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H
#include "kernels/kernels.h"

struct MatmulCache;

struct Cpu {
    struct Device device;           // first: a struct Device * of this backend is a struct Cpu *
    struct Stream *streams[NQUEUE]; // device.queue may be one of them four times
    struct MatmulCache *matmuls;    // prepared oneDNN primitives, by shape (kernels/cpu/matmul.c)
};

// The functions of each instruction set. oracle: the plain ones (kernels/cpu/ref_*.c), which run on
// one thread and need no scratch. amx: products, attention's too; its table has everything else by
// AVX512_BF16.
#define CPU_FOR_ISAS(X, op, Args)                                                                  \
    X(base, op, Args) X(avx2, op, Args) X(avx512, op, Args) X(avx512bf16, op, Args)
#define CPU_AMX_LIST(X)                                                                            \
    X(matmul, Matmul)                                                                              \
    X(attention_forward, AttentionForward)                                                         \
    X(attention_backward, AttentionBackward)                                                       \
    X(attention_cached, AttentionCached)

#define CPU_RUN(isa, op, Args) void isa##_##op(struct Cpu *, const struct Args *);
#define CPU_WORK(isa, op, Args) size_t isa##_##op##_work(struct Cpu *, const struct Args *);
#define X(op, Args) CPU_RUN(oracle, op, Args) CPU_FOR_ISAS(CPU_RUN, op, Args)
KERNEL_LIST(X)
#undef X
#define X(op, Args) CPU_FOR_ISAS(CPU_WORK, op, Args)
KERNEL_WORK_LIST(X)
#undef X
#define X(op, Args) CPU_RUN(amx, op, Args) CPU_WORK(amx, op, Args)
CPU_AMX_LIST(X)
#undef X

// Finds the table called `name` (NULL: the fastest this CPU runs). Errors: see device_open_cpu.
int cpu_kernels(const char *name, const struct Kernels **out, struct Error *e);
// True if the table's loops multiply bf16 by special instructions of the CPU (matmul_tile.c).
bool cpu_kernels_dot_bf16(const struct Kernels *table);

#endif
