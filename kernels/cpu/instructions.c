// Detects the instruction sets of this CPU (kernels/cpu/instructions.h). Read next: table.c.
#include "kernels/cpu/instructions.h"

#include <cpuid.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const names[NINSTRUCTIONS] = {"base", "avx2", "avx512", "avx512bf16", "amx"};

enum Instructions instructions_bound(void) {
    const char *text = getenv("ZERO_CPU");
    int set = 0;
    while (set < NINSTRUCTIONS && !(text && strcmp(text, names[set]) == 0))
        set++;
    return (enum Instructions)set;
}

int instructions_check(struct Error *e) {
    const char *text = getenv("ZERO_CPU");
    if (!text || instructions_bound() != NINSTRUCTIONS)
        return 0;
    return error_set(e, -EINVAL, E_KERNELS_NAME,
                     "ZERO_CPU=%s: expected base, avx2, avx512, avx512bf16 or amx", text);
}

// clang's __builtin_cpu_supports does not know F16C before version 19.
static bool has_f16c(void) {
    unsigned eax, ebx, ecx = 0, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
// The system saves AMX's registers, 8 KiB per thread, only if the process has asked for it (Linux
// 5.16 and later, arch_prctl(2)). Not every version of the compiler's __builtin_cpu_supports knows
// AMX. TILE, BF16_TILE: bits of leaf 7 of CPUID.
static bool has_amx(void) {
    enum { TILE = 1 << 24, BF16_TILE = 1 << 22, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned eax, ebx, ecx, edx = 0;
    bool has = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & TILE) && (edx & BF16_TILE);
    return has && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

bool instructions_usable(enum Instructions set) {
    if (set > instructions_bound())
        return false;
    return (set < INSTRUCTIONS_AVX2 || has_avx2()) && (set < INSTRUCTIONS_AVX512 || has_avx512()) &&
           (set < INSTRUCTIONS_AVX512BF16 || __builtin_cpu_supports("avx512bf16")) &&
           (set < INSTRUCTIONS_AMX || has_amx());
}
