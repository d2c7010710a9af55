// The kernel tables of the CPU, and the choice among them.
//
// For each instruction set, every function of cpu.h gets a launcher that queues it, and all
// launchers together make one struct Kernels. Only the names differ, so a macro over KERNEL_LIST
// writes them.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/instructions.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/queue.h"
#include "kernels/tier_check.h"

#include <errno.h>
#include <string.h>

// The launcher of one kernel: the worker calls `run_`, users of the table call `launch_`.
#define LAUNCHER(isa, op, Args)                                                                    \
    static void run_##isa##_##op(struct Cpu *cpu, const void *args) {                              \
        isa##_##op(cpu, args);                                                                     \
    }                                                                                              \
    static void launch_##isa##_##op(struct Stream *s, const struct Args *args) {                   \
        tier_check_launch(queue_device(s), #op, args);                                             \
        queue_push(s, #op, run_##isa##_##op, args, sizeof *args);                                  \
    }
#define WORK_QUERY(isa, op, Args)                                                                  \
    static size_t query_##isa##_##op(struct Device *d, const struct Args *args) {                  \
        return isa##_##op##_work((struct Cpu *)d, args);                                           \
    }
#define ENTRY(isa, op) .op = launch_##isa##_##op,
#define WORK_ENTRY(isa, op) .op##_work = query_##isa##_##op,

// KERNEL_LIST hands (op, Args) to a macro of two parameters: one set of them per table.
#define X(op, Args) LAUNCHER(oracle, op, Args)
KERNEL_LIST(X)
#undef X
#define X(op, Args) WORK_QUERY(oracle, op, Args)
KERNEL_WORK_LIST(X)
#undef X
#define X(op, Args) LAUNCHER(base, op, Args)
KERNEL_LIST(X)
#undef X
#define X(op, Args) WORK_QUERY(base, op, Args)
KERNEL_WORK_LIST(X)
#undef X
#define X(op, Args) LAUNCHER(avx2, op, Args)
KERNEL_LIST(X)
#undef X
#define X(op, Args) WORK_QUERY(avx2, op, Args)
KERNEL_WORK_LIST(X)
#undef X
#define X(op, Args) LAUNCHER(avx512, op, Args)
KERNEL_LIST(X)
#undef X
#define X(op, Args) WORK_QUERY(avx512, op, Args)
KERNEL_WORK_LIST(X)
#undef X

#define X(op, Args) LAUNCHER(avx512bf16, op, Args)
KERNEL_LIST(X)
#undef X
#define X(op, Args) WORK_QUERY(avx512bf16, op, Args)
KERNEL_WORK_LIST(X)
#undef X

static const struct Kernels oracle_table = {.name = "oracle",
#define X(op, Args) ENTRY(oracle, op)
                                            KERNEL_LIST(X)
#undef X
#define X(op, Args) WORK_ENTRY(oracle, op)
                                                KERNEL_WORK_LIST(X)
#undef X
};

static const struct Kernels base_table = {.name = "base",
#define X(op, Args) ENTRY(base, op)
                                          KERNEL_LIST(X)
#undef X
#define X(op, Args) WORK_ENTRY(base, op)
                                              KERNEL_WORK_LIST(X)
#undef X
};

static const struct Kernels avx2_table = {.name = "avx2",
#define X(op, Args) ENTRY(avx2, op)
                                          KERNEL_LIST(X)
#undef X
#define X(op, Args) WORK_ENTRY(avx2, op)
                                              KERNEL_WORK_LIST(X)
#undef X
};

static const struct Kernels avx512_table = {.name = "avx512",
#define X(op, Args) ENTRY(avx512, op)
                                            KERNEL_LIST(X)
#undef X
#define X(op, Args) WORK_ENTRY(avx512, op)
                                                KERNEL_WORK_LIST(X)
#undef X
};

static const struct Kernels avx512bf16_table = {.name = "avx512bf16",
#define X(op, Args) ENTRY(avx512bf16, op)
                                                KERNEL_LIST(X)
#undef X
#define X(op, Args) WORK_ENTRY(avx512bf16, op)
                                                    KERNEL_WORK_LIST(X)
#undef X
};

// AMX's products, attention's too, and everything else by AVX512_BF16.
#define AMX_LIST(X)                                                                                \
    X(matmul, Matmul)                                                                              \
    X(attention_forward, AttentionForward)                                                         \
    X(attention_backward, AttentionBackward)                                                       \
    X(attention_cached, AttentionCached)
#define X(op, Args) LAUNCHER(amx, op, Args) WORK_QUERY(amx, op, Args)
AMX_LIST(X)
#undef X
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init" // by AMX_LIST
static const struct Kernels amx_table = {.name = "amx",
#define X(op, Args) ENTRY(avx512bf16, op)
                                         KERNEL_LIST(X)
#undef X
#define X(op, Args) WORK_ENTRY(avx512bf16, op)
                                             KERNEL_WORK_LIST(X)
#undef X
#define X(op, Args) ENTRY(amx, op) WORK_ENTRY(amx, op)
                                                 AMX_LIST(X)
#undef X
};
#pragma GCC diagnostic pop

// The fastest first; the oracle is used only by name.
static const struct KernelChoice {
    const struct Kernels *table;
    enum Instructions needs;
} choices[] = {
    {&amx_table, INSTRUCTIONS_AMX},       {&avx512bf16_table, INSTRUCTIONS_AVX512BF16},
    {&avx512_table, INSTRUCTIONS_AVX512}, {&avx2_table, INSTRUCTIONS_AVX2},
    {&base_table, INSTRUCTIONS_BASE},     {&oracle_table, INSTRUCTIONS_BASE},
};

int cpu_kernels(const char *name, const struct Kernels **out, struct Error *e) {
    int err = instructions_check(e);
    if (err)
        return err;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        const struct KernelChoice *c = &choices[i];
        if (name && strcmp(name, c->table->name) != 0)
            continue;
        if (instructions_usable(c->needs)) {
            *out = c->table;
            return 0;
        }
        if (name)
            return error_set(
                e, -ENOTSUP, E_CPU_LACKS,
                "--kernels %s: this CPU lacks the instructions of these kernels%s; leave out "
                "--kernels for the fastest that it runs",
                name,
                c->table == &amx_table ? ", or the operating system does not allow them" : "");
    }
    return error_set(e, -EINVAL, E_KERNELS_NAME,
                     "--kernels %s: expected oracle, base, avx2, avx512, avx512bf16 or amx", name);
}

bool cpu_kernels_dot_bf16(const struct Kernels *table) {
    return table == &avx512bf16_table || table == &amx_table;
}

// The oracle's products are loops over fp32; all others are chosen by matmul.c.
bool device_has_bf16_cpu(const char *kernels) {
    const struct Kernels *table;
    struct Error ignored;
    return !cpu_kernels(kernels, &table, &ignored) && table != &oracle_table &&
           matmul_uses_bf16(cpu_kernels_dot_bf16(table));
}
