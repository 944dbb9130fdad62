/* optim_select.c - owns the choice among the builds of optim.c. */
#include "kernels/cpu/optim.h"

extern const struct cddpi_optim_kernels cddpi_optim_kernels_generic;
#ifdef CDDPI_OPTIM_X86
extern const struct cddpi_optim_kernels cddpi_optim_kernels_avx2;
extern const struct cddpi_optim_kernels cddpi_optim_kernels_avx512;
#endif

size_t cddpi_optim_kernels_all(const struct cddpi_optim_kernels *out[3])
{
    size_t count = 0;

    out[count++] = &cddpi_optim_kernels_generic;
#ifdef CDDPI_OPTIM_X86
    if (__builtin_cpu_supports("avx2")) {
        out[count++] = &cddpi_optim_kernels_avx2;
    }
    if (__builtin_cpu_supports("avx512f")) {
        out[count++] = &cddpi_optim_kernels_avx512;
    }
#endif
    return count;
}

const struct cddpi_optim_kernels *cddpi_optim_kernels(void)
{
    const struct cddpi_optim_kernels *tables[3];

    return tables[cddpi_optim_kernels_all(tables) - 1];
}
