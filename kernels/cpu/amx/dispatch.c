/* dispatch.c - checks whether AMX can be used: build, CPU and operating system must support it. */
#include "kernels/cpu/amx/amx_gemm.h"
#include "kernels/cpu/isa.h"

#if defined(CDDPI_HAVE_AMX) && defined(__linux__)
#include <cpuid.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From <asm/prctl.h>; older systems have the header without them. */
enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };

static bool processor_has_them(void)
{
    const unsigned bf16 = 1u << 22;
    const unsigned tiles = 1u << 24;
    enum cddpi_isa limit;
    bool allowed = true;
    unsigned a, b, c, d;

    return (!cddpi_isa_limit(&limit, &allowed) || allowed) &&
           cddpi_isa() == CDDPI_ISA_LEVEL_AVX512 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
           (d & bf16) != 0 && (d & tiles) != 0;
}

bool cddpi_amx_gemm_available(void)
{
    static _Atomic int known = -1; /* a race is harmless: all threads find the same */
    int here = atomic_load_explicit(&known, memory_order_relaxed);

    if (here < 0) {
        here = processor_has_them() && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
        atomic_store_explicit(&known, here, memory_order_relaxed);
    }
    return here != 0;
}
#else
bool cddpi_amx_gemm_available(void)
{
    return false;
}
#endif

#if !defined(CDDPI_HAVE_AMX)
size_t cddpi_amx_gemm_scratch(size_t n, size_t k)
{
    (void)n;
    (void)k;
    return 0;
}

void cddpi_amx_gemm(const struct cddpi_nn_matmul *matmul, void *scratch)
{
    (void)matmul; /* it is not called where there is no AMX */
    (void)scratch;
}
#endif
