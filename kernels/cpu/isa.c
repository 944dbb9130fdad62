/* isa.c - asks the processor once. */
#include "kernels/cpu/isa.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* clang 14's __builtin_cpu_supports does not know it */
static int has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static enum cddpi_isa ask(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !has_f16c() || !__builtin_cpu_supports("fma")) {
        return CDDPI_ISA_LEVEL_GENERIC;
    }
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
        return CDDPI_ISA_LEVEL_AVX2;
    }
    return CDDPI_ISA_LEVEL_AVX512;
}
#else
static enum cddpi_isa ask(void)
{
    return CDDPI_ISA_LEVEL_GENERIC;
}
#endif

enum cddpi_isa cddpi_isa(void)
{
    static _Atomic int known = -1; /* two threads find the same */
    int level = atomic_load_explicit(&known, memory_order_relaxed);

    if (level < 0) {
        level = (int)ask();
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return (enum cddpi_isa)level;
}
