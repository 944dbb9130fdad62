/* reduce.c - picks the build of reduce_isa.c that fits this processor. */
#include "kernels/cpu/reduce.h"

#include "kernels/cpu/isa.h"

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

const struct cddpi_reduce_isa *const *cddpi_reduce_isas(size_t *out_count)
{
    *out_count = (size_t)cddpi_isa() + 1;
    return isas;
}

void cddpi_reduce(const struct cddpi_reduce *how, void *const *dst, const void *const *src,
                  size_t count)
{
    isas[cddpi_isa()]->reduce(how, dst, src, count);
}

void cddpi_cast(void *dst, cddp_type dst_type, const void *src, cddp_type src_type, size_t count)
{
    isas[cddpi_isa()]->cast(dst, dst_type, src, src_type, count);
}
