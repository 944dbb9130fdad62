/* blas.c - owns the way to the CBLAS. */
#include "base/env.h"
#include "nn/model_state.h"

#include <cblas.h>
#include <dlfcn.h>

void cddpi_blas_set_threads(void)
{
    void (*set_threads)(int);

    /* of OpenBLAS alone; another CBLAS obeys its own environment */
    *(void **)&set_threads = dlsym(RTLD_DEFAULT, "openblas_set_num_threads");
    if (set_threads != NULL) {
        set_threads((int)cddpi_env_integer(CDDPI_ENV_THREADS, 1, 1024, 1));
    }
}

void cddpi_blas_gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k,
                     const float *a, const float *b, float beta, float *c)
{
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, 1.0f, a,
                (int)(transpose_a ? m : k), b, (int)(transpose_b ? k : n), beta, c, (int)n);
}
