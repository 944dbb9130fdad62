/* cpu_gemm.c - owns float32 matrix products: oneDNN's own where it generates code for the CPU (on
 * the MLP's shapes it is about 12 % faster than OpenBLAS 0.3.21 on an AVX-512 core), elsewhere a
 * CBLAS. */
#include "base/env.h"
#include "base/error.h"
#include "base/memory_left.h"
#include "cddp_config.h"
#include "nn/cpu/dnnl.h"
#include "nn/model_state.h"

#include <dlfcn.h>
#include <string.h>
#if CDDP_HAVE_CBLAS
#include <cblas.h>
#endif

/* address space for the code that a library generates, and its working memory */
enum { CODE_BYTES = 32 << 20 };

/* If the process has the library, call the function that sets its number of threads. */
static void tell(const char *function, int threads)
{
    void (*set_threads)(int);

    *(void **)&set_threads = dlsym(RTLD_DEFAULT, function);
    if (set_threads != NULL) {
        set_threads(threads);
    }
}

void cddpi_compute_threads(void)
{
    int threads = (int)cddpi_env_integer(CDDPI_ENV_THREADS, 1, 1024, 1);

    /* Debian's oneDNN uses any OpenMP runtime in the process */
    tell("omp_set_num_threads", threads);
    tell("openblas_set_num_threads", threads);
}

cddp_status cddpi_compute_begin(void)
{
    float a[4] = {1, 2, 3, 4};
    float c[4];

    cddpi_compute_threads();
    cddpi_dnnl_limit();
    if (!cddpi_address_space_is_limited()) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_address_space_need(CODE_BYTES, "the first matrix product"));
    return cddpi_gemm(false, false, 2, 2, 2, a, a, 0, c);
}

static void clear_rows(float *c, size_t m, size_t n, size_t ldc)
{
    for (size_t r = 0; r < m; r++) {
        memset(c + r * ldc, 0, n * sizeof *c);
    }
}

cddp_status cddpi_gemm_strided(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
                               float alpha, const float *a, size_t lda, const float *b, size_t ldb,
                               float beta, float *c, size_t ldc)
{
    if (m == 0) { /* m or k is 0: a batch without samples */
        return CDDP_OK;
    }
    if (k == 0) {
        if (beta == 0) {
            clear_rows(c, m, n, ldc);
        }
        return CDDP_OK;
    }
#if CDDP_HAVE_CBLAS
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, alpha, a, (int)lda,
                b, (int)ldb, beta, c, (int)ldc);
    return CDDP_OK;
#else
    return cddpi_dnnl_check(dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N',
                                       (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, alpha, a,
                                       (dnnl_dim_t)lda, b, (dnnl_dim_t)ldb, beta, c,
                                       (dnnl_dim_t)ldc),
                            "matrix product");
#endif
}

cddp_status cddpi_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
                       const float *a, const float *b, float beta, float *c)
{
    return cddpi_gemm_strided(transpose_a, transpose_b, m, n, k, 1, a, transpose_a ? m : k, b,
                              transpose_b ? k : n, beta, c, n);
}
