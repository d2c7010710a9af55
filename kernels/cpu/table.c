// The kernel tables of the CPU, and the choice among them.
//
// For each instruction set, every function of cpu.h gets a launcher that queues it, and all
// launchers together make one struct Kernels. Only the names differ, so macros over KERNEL_LIST
// write them.
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
#define X(op, Args) LAUNCHER(oracle, op, Args) CPU_FOR_ISAS(LAUNCHER, op, Args)
KERNEL_LIST(X)
#undef X
#define X(op, Args) CPU_FOR_ISAS(WORK_QUERY, op, Args)
KERNEL_WORK_LIST(X)
#undef X
#define X(op, Args) LAUNCHER(amx, op, Args) WORK_QUERY(amx, op, Args)
CPU_AMX_LIST(X)
#undef X

// The plain kernels need no scratch.
#define X(op, Args)                                                                                \
    static size_t query_oracle_##op(struct Device *d, const struct Args *args) {                   \
        (void)d, (void)args;                                                                       \
        return 0;                                                                                  \
    }
KERNEL_WORK_LIST(X)
#undef X

enum { ORACLE = NINSTRUCTIONS, NTABLES }; // behind a table for each set: used by name only

#define ENTRY(table, isa, op) [table].op = launch_##isa##_##op,
#define WORK_ENTRY(table, isa, op) [table].op##_work = query_##isa##_##op,
#define FOR_TABLES(E, op)                                                                          \
    E(INSTRUCTIONS_BASE, base, op)                                                                 \
    E(INSTRUCTIONS_AVX2, avx2, op)                                                                 \
    E(INSTRUCTIONS_AVX512, avx512, op)                                                             \
    E(INSTRUCTIONS_AVX512BF16, avx512bf16, op)                                                     \
    E(INSTRUCTIONS_AMX, avx512bf16, op)                                                            \
    E(ORACLE, oracle, op)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init" // by CPU_AMX_LIST
static const struct Kernels tables[NTABLES] = {[INSTRUCTIONS_BASE].name = "base",
                                               [INSTRUCTIONS_AVX2].name = "avx2",
                                               [INSTRUCTIONS_AVX512].name = "avx512",
                                               [INSTRUCTIONS_AVX512BF16].name = "avx512bf16",
                                               [INSTRUCTIONS_AMX].name = "amx",
                                               [ORACLE].name = "oracle",
#define X(op, Args) FOR_TABLES(ENTRY, op)
                                               KERNEL_LIST(X)
#undef X
#define X(op, Args) FOR_TABLES(WORK_ENTRY, op)
                                                   KERNEL_WORK_LIST(X)
#undef X
#define X(op, Args) ENTRY(INSTRUCTIONS_AMX, amx, op) WORK_ENTRY(INSTRUCTIONS_AMX, amx, op)
                                                       CPU_AMX_LIST(X)
#undef X
};
#pragma GCC diagnostic pop

int cpu_kernels(const char *name, const struct Kernels **out, struct Error *e) {
    int err = instructions_check(e);
    if (err)
        return err;
    for (int i = name ? ORACLE : INSTRUCTIONS_AMX; i >= 0; i--) { // the fastest first
        if (name && strcmp(name, tables[i].name) != 0)
            continue;
        if (i == ORACLE || instructions_usable((enum Instructions)i)) {
            *out = &tables[i];
            return 0;
        }
        if (name)
            return error_set(
                e, -ENOTSUP, E_CPU_LACKS,
                "--kernels %s: this CPU lacks the instructions of these kernels%s; leave out "
                "--kernels for the fastest that it runs",
                name, i == INSTRUCTIONS_AMX ? ", or the operating system does not allow them" : "");
    }
    return error_set(e, -EINVAL, E_KERNELS_NAME,
                     "--kernels %s: expected oracle, base, avx2, avx512, avx512bf16 or amx", name);
}

bool cpu_kernels_dot_bf16(const struct Kernels *table) {
    return table == &tables[INSTRUCTIONS_AVX512BF16] || table == &tables[INSTRUCTIONS_AMX];
}

// The oracle's products are loops over fp32; all others are chosen by matmul.c.
bool device_has_bf16_cpu(const char *kernels) {
    const struct Kernels *table;
    struct Error ignored;
    return !cpu_kernels(kernels, &table, &ignored) && table != &tables[ORACLE] &&
           matmul_uses_bf16(cpu_kernels_dot_bf16(table));
}
