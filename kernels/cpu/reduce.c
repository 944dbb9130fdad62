/* reduce.c - picks the instruction set for reductions and casts, once. */
#include "kernels/cpu/reduce.h"

#include <stdatomic.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

extern const struct cddpi_reduce_isa cddpi_reduce_generic;
#if defined(__x86_64__)
extern const struct cddpi_reduce_isa cddpi_reduce_avx2;
extern const struct cddpi_reduce_isa cddpi_reduce_avx512;
#endif

static const struct cddpi_reduce_isa *const isas[] = {
    &cddpi_reduce_generic,
#if defined(__x86_64__)
    &cddpi_reduce_avx2,
    &cddpi_reduce_avx512,
#endif
};

#if defined(__x86_64__)
/* clang 14's __builtin_cpu_supports does not know it */
static bool has_f16c(void)
{
    unsigned a;
    unsigned b;
    unsigned c;
    unsigned d;

    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

static size_t usable(void)
{
    static _Atomic size_t known; /* 0: not asked yet; two threads find the same */
    size_t count = atomic_load_explicit(&known, memory_order_relaxed);

    if (count == 0) {
        count = 1;
#if defined(__x86_64__)
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx2") && has_f16c() && __builtin_cpu_supports("fma")) {
            count = 2;
            if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
                count = 3;
            }
        }
#endif
        atomic_store_explicit(&known, count, memory_order_relaxed);
    }
    return count;
}

const struct cddpi_reduce_isa *const *cddpi_reduce_isas(size_t *out_count)
{
    *out_count = usable();
    return isas;
}

void cddpi_reduce(const struct cddpi_reduce *how, void *const *dst, const void *const *src,
                  size_t count)
{
    isas[usable() - 1]->reduce(how, dst, src, count);
}

void cddpi_cast(void *dst, cddp_type dst_type, const void *src, cddp_type src_type, size_t count)
{
    isas[usable() - 1]->cast(dst, dst_type, src, src_type, count);
}
