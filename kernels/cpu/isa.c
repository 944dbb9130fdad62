/* isa.c - detects the CPU's instruction set, and reads CDDP_MAX_ISA, once. */
#include "kernels/cpu/isa.h"

#include "base/env.h"
#include "base/log.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* clang 14's __builtin_cpu_supports does not know F16C */
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

bool cddpi_isa_limit(enum cddpi_isa *out, bool *out_amx)
{
    static const struct {
        const char *name;
        enum cddpi_isa level;
        bool amx;
    } limits[] = {{"generic", CDDPI_ISA_LEVEL_GENERIC, false},
                  {"avx2", CDDPI_ISA_LEVEL_AVX2, false},
                  {"avx512", CDDPI_ISA_LEVEL_AVX512, false},
                  {"amx", CDDPI_ISA_LEVEL_AVX512, true}};
    const char *text = cddpi_env(CDDPI_ENV_MAX_ISA);

    if (text == NULL) {
        return false;
    }
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        if (strcmp(text, limits[i].name) == 0) {
            *out = limits[i].level;
            *out_amx = limits[i].amx;
            return true;
        }
    }
    cddpi_log(CDDPI_LOG_WARN,
              "CDDP_MAX_ISA=%s is not one of generic, avx2, avx512 and amx, so it is ignored",
              text);
    return false;
}

enum cddpi_isa cddpi_isa(void)
{
    static _Atomic int known = -1; /* a race is harmless: all threads find the same */
    int level = atomic_load_explicit(&known, memory_order_relaxed);

    if (level < 0) {
        enum cddpi_isa limit;
        bool amx;

        level = (int)ask();
        if (cddpi_isa_limit(&limit, &amx) && (int)limit < level) {
            level = (int)limit;
        }
        atomic_store_explicit(&known, level, memory_order_relaxed);
    }
    return (enum cddpi_isa)level;
}
