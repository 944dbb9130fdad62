/* variants.h - compiles one loop body for several instruction sets, one of which is chosen at run
 * time.
 *
 * The bodies are plain C without contraction to FMA, so every variant gives the same bits. */
#ifndef CDDPI_KERNELS_CPU_VARIANTS_H
#define CDDPI_KERNELS_CPU_VARIANTS_H

#include "kernels/cpu/isa.h"

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
