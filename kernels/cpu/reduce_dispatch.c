/* reduce_dispatch.c - selects the build of per_isa/reduce_loops.c for this CPU. */
#include "kernels/cpu/reduce.h"

#include "kernels/cpu/isa.h"

extern const struct cddpi_reduce_isa cddpi_reduce_generic;
#if defined(__x86_64__)
extern const struct cddpi_reduce_isa cddpi_reduce_avx2;
extern const struct cddpi_reduce_isa cddpi_reduce_avx512;
#endif

static const struct cddpi_reduce_isa *const isas[] = {
    [CDDPI_ISA_LEVEL_GENERIC] = &cddpi_reduce_generic,
#if defined(__x86_64__)
    [CDDPI_ISA_LEVEL_AVX2] = &cddpi_reduce_avx2,
    [CDDPI_ISA_LEVEL_AVX512] = &cddpi_reduce_avx512,
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

cddp_type cddpi_reduce_sum_type(cddp_type type, cddp_op op)
{
    if (type == CDDP_F16 || type == CDDP_BF16) {
        return CDDP_F32;
    }
    if (op == CDDP_OP_MEAN && (type == CDDP_I32 || type == CDDP_U8 || type == CDDP_I8)) {
        return CDDP_I64;
    }
    return type;
}

bool cddpi_reduce_part(const struct cddpi_reduce *how, void *out, const void *const *src,
                       size_t count)
{
    return isas[cddpi_isa()]->part(how, out, src, count);
}

void cddpi_reduce_merges(const struct cddpi_reduce_merges *how, size_t count)
{
    isas[cddpi_isa()]->merges(how, count);
}

void cddpi_reduce_weighted(struct cddpi_reduce *out, cddp_type type, const double *weights,
                           int sources, double *factors)
{
    bool equal = true;
    double total = 0;

    for (int s = 0; s < sources; s++) {
        equal = equal && weights[s] == weights[0] && weights[s] > 0;
        total += weights[s];
    }
    *out = (struct cddpi_reduce){type, equal ? CDDP_OP_MEAN : CDDP_OP_SUM, sources, 1, NULL};
    if (!equal) {
        for (int s = 0; s < sources; s++) {
            factors[s] = total > 0 ? weights[s] / total : 0;
        }
        out->factors = factors;
    }
}

void cddpi_cast(void *dst, cddp_type dst_type, const void *src, cddp_type src_type, size_t count)
{
    isas[cddpi_isa()]->cast(dst, dst_type, src, src_type, count);
}
