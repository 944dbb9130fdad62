/* nn_variants.h - one body of a loop, compiled for several instruction sets, chosen at run time.
 *
 * The bodies are plain C without contraction, so every variant gives the same bits. */
#ifndef CDDPI_KERNELS_NN_VARIANTS_H
#define CDDPI_KERNELS_NN_VARIANTS_H

#define CDDPI_BODY static inline __attribute__((always_inline))

#if defined(__x86_64__)
/* 0: what every x86-64 has, 1: AVX2, 2: AVX-512 */
static inline int cddpi_nn_level(void)
{
    static _Atomic int known = -1;

    if (known < 0) {
        known = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")
                    ? 2
                    : __builtin_cpu_supports("avx2");
    }
    return known;
}

/* Define cddpi_nn_<name> from body_<name>; both lists with their parentheses. */
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
        switch (cddpi_nn_level()) {                                                                \
        case 2:                                                                                    \
            name##_avx512 arguments;                                                               \
            break;                                                                                 \
        case 1:                                                                                    \
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
