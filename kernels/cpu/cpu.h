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

// A set of functions for each instruction set; oracle: the plain ones (kernels/cpu/ref_*.c).
#define CPU_DECLARE(isa)                                                                           \
    CPU_DECLARE_RUN(isa, matmul, Matmul)                                                           \
    CPU_DECLARE_RUN(isa, norm_forward, NormForward)                                                \
    CPU_DECLARE_RUN(isa, norm_backward, NormBackward)                                              \
    CPU_DECLARE_RUN(isa, attention_forward, AttentionForward)                                      \
    CPU_DECLARE_RUN(isa, attention_backward, AttentionBackward)                                    \
    CPU_DECLARE_RUN(isa, attention_cached, AttentionCached)                                        \
    CPU_DECLARE_RUN(isa, rotate_forward, RotateForward)                                            \
    CPU_DECLARE_RUN(isa, rotate_backward, RotateBackward)                                          \
    CPU_DECLARE_RUN(isa, gelu_forward, GeluForward)                                                \
    CPU_DECLARE_RUN(isa, dropout, Dropout)                                                         \
    CPU_DECLARE_RUN(isa, swiglu_forward, SwigluForward)                                            \
    CPU_DECLARE_RUN(isa, swiglu_backward, SwigluBackward)                                          \
    CPU_DECLARE_RUN(isa, embed_forward, EmbedForward)                                              \
    CPU_DECLARE_RUN(isa, embed_backward, EmbedBackward)                                            \
    CPU_DECLARE_RUN(isa, classifier, Classifier)                                                   \
    CPU_DECLARE_RUN(isa, classifier_part, ClassifierPart)                                          \
    CPU_DECLARE_RUN(isa, classifier_merge, ClassifierMerge)                                        \
    CPU_DECLARE_RUN(isa, sum, Sum)                                                                 \
    CPU_DECLARE_RUN(isa, step_clip, StepClip)                                                      \
    CPU_DECLARE_RUN(isa, adamw, AdamW)                                                             \
    CPU_DECLARE_RUN(isa, cast, Cast)                                                               \
    CPU_DECLARE_RUN(isa, fill_normal, FillNormal)                                                  \
    CPU_DECLARE_RUN(isa, rank_sum, RankSum)                                                        \
    CPU_DECLARE_RUN(isa, rank_gather, RankGather)                                                  \
    CPU_DECLARE_RUN(isa, quantize, Quantize)                                                       \
    CPU_DECLARE_RUN(isa, dequantize, Dequantize)                                                   \
    CPU_DECLARE_RUN(isa, requantize, Requantize)                                                   \
    CPU_DECLARE_RUN(isa, nf4_quantize, Nf4Quantize)                                                \
    CPU_DECLARE_RUN(isa, nf4_dequantize, Nf4Dequantize)                                            \
    CPU_DECLARE_WORK(isa, matmul, Matmul)                                                          \
    CPU_DECLARE_WORK(isa, norm_backward, NormBackward)                                             \
    CPU_DECLARE_WORK(isa, attention_forward, AttentionForward)                                     \
    CPU_DECLARE_WORK(isa, attention_backward, AttentionBackward)                                   \
    CPU_DECLARE_WORK(isa, attention_cached, AttentionCached)                                       \
    CPU_DECLARE_WORK(isa, rotate_backward, RotateBackward)                                         \
    CPU_DECLARE_WORK(isa, embed_backward, EmbedBackward)
#define CPU_DECLARE_RUN(isa, op, Args) void isa##_##op(struct Cpu *, const struct Args *);
#define CPU_DECLARE_WORK(isa, op, Args) size_t isa##_##op##_work(struct Cpu *, const struct Args *);
// Finds the table called `name` (NULL: the fastest this CPU runs). Errors: see device_open_cpu.
int cpu_kernels(const char *name, const struct Kernels **out, struct Error *e);
// True if the table's loops multiply bf16 by special instructions of the CPU (matmul_tile.c).
bool cpu_kernels_dot_bf16(const struct Kernels *table);

CPU_DECLARE(oracle)
CPU_DECLARE(base)
CPU_DECLARE(avx2)
CPU_DECLARE(avx512)
CPU_DECLARE(avx512bf16)
CPU_DECLARE_RUN(amx, matmul, Matmul)
CPU_DECLARE_RUN(amx, attention_forward, AttentionForward)
CPU_DECLARE_RUN(amx, attention_backward, AttentionBackward)
CPU_DECLARE_RUN(amx, attention_cached, AttentionCached)
CPU_DECLARE_WORK(amx, matmul, Matmul)
CPU_DECLARE_WORK(amx, attention_forward, AttentionForward)
CPU_DECLARE_WORK(amx, attention_backward, AttentionBackward)
CPU_DECLARE_WORK(amx, attention_cached, AttentionCached)

#endif
