/* norm_dispatch.c - selects the build of norm.h's kernels for this CPU. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/norm.h"

extern const struct cddpi_norm_kernels cddpi_norm_kernels_generic;
#if defined(__x86_64__)
extern const struct cddpi_norm_kernels cddpi_norm_kernels_avx2, cddpi_norm_kernels_avx512;
#endif

static const struct cddpi_norm_kernels *const builds[] = {
    [CDDPI_ISA_LEVEL_GENERIC] = &cddpi_norm_kernels_generic,
#if defined(__x86_64__)
    [CDDPI_ISA_LEVEL_AVX2] = &cddpi_norm_kernels_avx2,
    [CDDPI_ISA_LEVEL_AVX512] = &cddpi_norm_kernels_avx512,
#endif
};

size_t cddpi_norm_kernels_all(const struct cddpi_norm_kernels *out[3])
{
    size_t count = (size_t)cddpi_isa() + 1;

    for (size_t i = 0; i < count; i++) {
        out[i] = builds[i];
    }
    return count;
}

const struct cddpi_norm_kernels *cddpi_norm_kernels(void)
{
    return builds[cddpi_isa()];
}
