/* arithmetic.c - describes what a model's bits depend on besides its inputs: instructions, sizes of
 * caches, by which oneDNN divides sums, and oneDNN's version. */
#include "nn/cpu/dnnl.h"

#include "kernels/cpu/amx/amx_gemm.h"
#include "kernels/cpu/isa.h"
#include "nn/model_state.h"

#include <stdio.h>
#include <unistd.h>

static const char *name_of_instructions(void)
{
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } all[] = {{dnnl_cpu_isa_sse41, "SSE4.1"},
               {dnnl_cpu_isa_avx, "AVX"},
               {dnnl_cpu_isa_avx2, "AVX2"},
               {dnnl_cpu_isa_avx2_vnni, "AVX2-VNNI"},
               {dnnl_cpu_isa_avx512_core, "AVX-512"},
               {dnnl_cpu_isa_avx512_core_vnni, "AVX512-VNNI"},
               {dnnl_cpu_isa_avx512_core_bf16, "AVX512-BF16"},
               {dnnl_cpu_isa_avx512_core_amx, "AVX-512 with AMX"}};
    dnnl_cpu_isa_t isa;

    cddpi_dnnl_limit();
    isa = dnnl_get_effective_cpu_isa();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].isa == isa) {
            return all[i].name;
        }
    }
    return "other instructions";
}

static long cache_kib(int level)
{
#if defined(_SC_LEVEL1_DCACHE_SIZE) && defined(_SC_LEVEL2_CACHE_SIZE)
    long bytes = sysconf(level == 1 ? _SC_LEVEL1_DCACHE_SIZE : _SC_LEVEL2_CACHE_SIZE);

    return bytes > 0 ? bytes >> 10 : 0;
#else
    (void)level;
    return 0;
#endif
}

void cddpi_cpu_arithmetic(const struct cddpi_model *model, char *out, size_t bytes)
{
    static const char *const levels[] = {[CDDPI_ISA_LEVEL_GENERIC] = "generic",
                                         [CDDPI_ISA_LEVEL_AVX2] = "AVX2",
                                         [CDDPI_ISA_LEVEL_AVX512] = "AVX-512"};
    const dnnl_version_t *version = dnnl_version();

    snprintf(out, bytes, "%s kernels, oneDNN %d.%d.%d with %s, caches of %ld and %ld KiB, %s",
             levels[cddpi_isa()], version->major, version->minor, version->patch,
             name_of_instructions(), cache_kib(1), cache_kib(2), model->ops->matmul_note(model));
}
