/* core_dispatch.c - selects the builds of per_isa/reduce_loops.c and per_isa/optim_loops.c for this
 * CPU. */
#include "kernels/cpu/cpu_optim.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/reduce.h"

#define DECLARE(isa, level) extern const struct cddpi_reduce_isa cddpi_reduce_##isa;
CDDPI_FOR_ISAS(DECLARE)
#define ROW(isa, level) [CDDPI_ISA_LEVEL_##level] = &cddpi_reduce_##isa,
static const struct cddpi_reduce_isa *const isas[] = {CDDPI_FOR_ISAS(ROW)};

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

/* --- optimizers --- */

#define DECLARE_OPTIM(isa, level) extern const struct cddpi_optim_kernels cddpi_optim_kernels_##isa;
CDDPI_FOR_ISAS(DECLARE_OPTIM)
#define OPTIM_ROW(isa, level) [CDDPI_ISA_LEVEL_##level] = &cddpi_optim_kernels_##isa,
static const struct cddpi_optim_kernels *const optim_builds[] = {CDDPI_FOR_ISAS(OPTIM_ROW)};

size_t cddpi_optim_kernels_all(const struct cddpi_optim_kernels *out[3])
{
    size_t count = (size_t)cddpi_isa() + 1;

    for (size_t i = 0; i < count; i++) {
        out[i] = optim_builds[i];
    }
    return count;
}

const struct cddpi_optim_kernels *cddpi_optim_kernels(void)
{
    return optim_builds[cddpi_isa()];
}
