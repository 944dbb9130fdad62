/* optim_dispatch.c - selects the build of per_isa/optim_loops.c for this CPU. */
#include "kernels/cpu/cpu_optim.h"
#include "kernels/cpu/isa.h"

extern const struct cddpi_optim_kernels cddpi_optim_kernels_generic;
#if defined(__x86_64__)
extern const struct cddpi_optim_kernels cddpi_optim_kernels_avx2;
extern const struct cddpi_optim_kernels cddpi_optim_kernels_avx512;
#endif

static const struct cddpi_optim_kernels *const builds[] = {
    [CDDPI_ISA_LEVEL_GENERIC] = &cddpi_optim_kernels_generic,
#if defined(__x86_64__)
    [CDDPI_ISA_LEVEL_AVX2] = &cddpi_optim_kernels_avx2,
    [CDDPI_ISA_LEVEL_AVX512] = &cddpi_optim_kernels_avx512,
#endif
};

size_t cddpi_optim_kernels_all(const struct cddpi_optim_kernels *out[3])
{
    size_t count = (size_t)cddpi_isa() + 1;

    for (size_t i = 0; i < count; i++) {
        out[i] = builds[i];
    }
    return count;
}

const struct cddpi_optim_kernels *cddpi_optim_kernels(void)
{
    return builds[cddpi_isa()];
}
