/* cublaslt.c - looks up cuBLASLt's functions. */
#include "kernels/cuda/matmul/cublaslt.h"

#include "kernels/cuda/kernels_module.h"
#include "kernels/cuda/library.h"

cddp_status cddpi_cublaslt_open(struct cddpi_device *device, struct cddpi_cublaslt *out)
{
    struct cddpi_cublaslt lt;
    void *library;
    cddp_status status = cuda_library_open(CUDA_LIBRARY_CUBLASLT, &library);

    if (status != CDDP_OK) {
        return status;
    }
#define LOOK_UP(member, symbol)                                                                    \
    *(void **)&lt.member = cuda_library_symbol(library, #symbol);                                  \
    if (lt.member == NULL) {                                                                       \
        return cddpi_cuda_fail(device, CDDP_ERR_UNAVAILABLE, "this cuBLASLt lacks " #symbol);      \
    }
    CDDPI_CUBLASLT_FUNCTIONS(LOOK_UP)
    *out = lt;
    return CDDP_OK;
}
