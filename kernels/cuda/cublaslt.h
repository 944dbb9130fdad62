/* cublaslt.h - the functions of cuBLASLt that are used here, looked up in libcublasLt.so when they
 * are first wanted: a module opens without it, and says what is missing when a product is asked
 * for. */
#ifndef CDDPI_CUDA_CUBLASLT_H
#define CDDPI_CUDA_CUBLASLT_H

#include <cublasLt.h>

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
    X(heuristic, cublasLtMatmulAlgoGetHeuristic)                                                   \
    X(matmul, cublasLtMatmul)

#define CDDPI_CUBLASLT_MEMBER(member, symbol) __typeof__(symbol) *member;

struct cddpi_cublaslt {
    void *library;
    CDDPI_CUBLASLT_FUNCTIONS(CDDPI_CUBLASLT_MEMBER)
};

/** NULL, or why not: the library is not there or lacks a function. The text is valid until the next
 * call of this thread. Needs no device. */
const char *cddpi_cublaslt_open(struct cddpi_cublaslt *out);
void cddpi_cublaslt_close(struct cddpi_cublaslt *lt); /* accepts one that was never opened */

#endif
