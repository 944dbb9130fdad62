/* cublaslt.h - the functions of cuBLASLt that are used here, looked up at their first use. */
#ifndef CDDPI_KERNELS_CUDA_MATMUL_CUBLASLT_H
#define CDDPI_KERNELS_CUDA_MATMUL_CUBLASLT_H

#include <cddp/status.h>

#include <cublasLt.h>

struct cddpi_device;

/* member, symbol */
#define CDDPI_CUBLASLT_FUNCTIONS(X)                                                                \
    X(create, cublasLtCreate)                                                                      \
    X(destroy, cublasLtDestroy)                                                                    \
    X(version, cublasLtGetVersion)                                                                 \
    X(status_name, cublasLtGetStatusName)                                                          \
    X(status_string, cublasLtGetStatusString)                                                      \
    X(layout_create, cublasLtMatrixLayoutCreate)                                                   \
    X(layout_destroy, cublasLtMatrixLayoutDestroy)                                                 \
    X(desc_create, cublasLtMatmulDescCreate)                                                       \
    X(desc_destroy, cublasLtMatmulDescDestroy)                                                     \
    X(desc_set, cublasLtMatmulDescSetAttribute)                                                    \
    X(preference_create, cublasLtMatmulPreferenceCreate)                                           \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy)                                         \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute)                                        \
    X(algorithm_get, cublasLtMatmulAlgoConfigGetAttribute)                                         \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic)                                                   \
    X(matmul, cublasLtMatmul)

#define CDDPI_CUBLASLT_MEMBER(member, symbol) __typeof__(symbol) *member;

struct cddpi_cublaslt {
    CDDPI_CUBLASLT_FUNCTIONS(CDDPI_CUBLASLT_MEMBER)
};

/** CDDP_ERR_UNAVAILABLE: the library is missing or lacks a function. Needs no device; the library
 *  stays open. */
cddp_status cddpi_cublaslt_open(struct cddpi_device *device, struct cddpi_cublaslt *out);

#endif
