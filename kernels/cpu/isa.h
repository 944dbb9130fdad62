/* isa.h - the instruction set that kernels use: the best that the CPU has, limited by CDDP_MAX_ISA.
 * Any thread. */
#ifndef CDDPI_KERNELS_ISA_H
#define CDDPI_KERNELS_ISA_H

#include "base/shared.h"

#include <stdbool.h>

enum cddpi_isa {
    CDDPI_ISA_LEVEL_GENERIC,
    CDDPI_ISA_LEVEL_AVX2,  /* with F16C and FMA */
    CDDPI_ISA_LEVEL_AVX512 /* F, BW, DQ and VL */
};

/* The sets that the files of per_isa/ are built for: their name there, and their level. */
#if defined(__x86_64__)
#define CDDPI_FOR_ISAS(X) X(generic, GENERIC) X(avx2, AVX2) X(avx512, AVX512)
#else
#define CDDPI_FOR_ISAS(X) X(generic, GENERIC)
#endif

/** The best instruction set that is allowed, that this CPU has and that this build supports. */
CDDPI_SHARED enum cddpi_isa cddpi_isa(void);

/** Whether CDDP_MAX_ISA is set. If so, @p out receives the level that it allows, and @p out_amx
 *  whether it allows AMX tiles. */
CDDPI_SHARED bool cddpi_isa_limit(enum cddpi_isa *out, bool *out_amx);

/* One loop body is compiled for several instruction sets, one of which is chosen at run time. The
 * bodies are plain C without contraction to FMA, so every variant gives the same bits. */
#define CDDPI_BODY static inline __attribute__((always_inline))

#if defined(__x86_64__)
/* Define cddpi_nn_<name> from body_<name>. Both lists include their parentheses. */
#define CDDPI_VARIANTS(name, parameters, arguments)                                                \
    __attribute__((                                                                                \
        target("avx512f,avx512vl,avx512dq,avx512bw"))) static void name##_avx512 parameters        \
    {                                                                                              \
        body_##name arguments;                                                                     \
    }                                                                                              \
    __attribute__((target("avx2"))) static void name##_avx2 parameters                             \
    {                                                                                              \
        body_##name arguments;                                                                     \
    }                                                                                              \
    void cddpi_nn_##name parameters                                                                \
    {                                                                                              \
        switch (cddpi_isa()) {                                                                     \
        case CDDPI_ISA_LEVEL_AVX512:                                                               \
            name##_avx512 arguments;                                                               \
            break;                                                                                 \
        case CDDPI_ISA_LEVEL_AVX2:                                                                 \
            name##_avx2 arguments;                                                                 \
            break;                                                                                 \
        default:                                                                                   \
            body_##name arguments;                                                                 \
        }                                                                                          \
    }
#else
#define CDDPI_VARIANTS(name, parameters, arguments)                                                \
    void cddpi_nn_##name parameters                                                                \
    {                                                                                              \
        body_##name arguments;                                                                     \
    }
#endif

#endif
