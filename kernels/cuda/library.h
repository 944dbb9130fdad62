/* library.h - opens NVIDIA's libraries at their first use. */
#ifndef CDDPI_CUDA_LIBRARY_H
#define CDDPI_CUDA_LIBRARY_H

#include <cddp/status.h>

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum cuda_library {
    CUDA_LIBRARY_CUBLASLT,
    CUDA_LIBRARY_CUDNN,
    CUDA_LIBRARY_NCCL,
    CUDA_LIBRARY_COUNT
};

/** Open @p library, once in a process, with the major version that the module was built for (or one
 *  that is known to work); it is never closed. CDDP_ERR_UNAVAILABLE: with the loader's reason.
 *  CDDP_ERR_CONFIG: it comes from another place than the libraries opened before, and
 *  $CDDP_MIXED_LIBRARIES does not allow that. Any thread. */
cddp_status cuda_library_open(enum cuda_library library, void **out);

/** Open NVML, libnvidia-ml.so.1, likewise. It belongs to the driver, so it may come from another
 * place than the others. */
cddp_status cuda_nvml_open(void **out);

/** A readable list of where the open libraries came from. */
void cuda_libraries_describe(char *out, size_t bytes);

/** A function of an opened library: *(void **)&function = cuda_library_symbol(library, "name");
 *  NULL: the library has no such function. */
void *cuda_library_symbol(void *library, const char *name);

#ifdef __cplusplus
}
#endif
#endif
