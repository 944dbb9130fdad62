/* cudnn_library.h - the functions of cuDNN 9 that are used here. They are looked up in
 * libcudnn.so.9 at the first use, so a module works without cuDNN, with kernels of its own. */
#ifndef CDDPI_KERNELS_CUDA_CUDNN_LIBRARY_H
#define CDDPI_KERNELS_CUDA_CUDNN_LIBRARY_H

#include "kernels/cuda/kernels_module.h"

#include <cudnn_graph.h>

/* member, symbol */
#define CDDPI_CUDNN_FUNCTIONS(X)                                                                   \
    X(get_version, cudnnGetVersion)                                                                \
    X(error_name, cudnnGetErrorString)                                                             \
    X(last_error, cudnnGetLastErrorString)                                                         \
    X(create, cudnnCreate)                                                                         \
    X(destroy, cudnnDestroy)                                                                       \
    X(set_stream, cudnnSetStream)                                                                  \
    X(make, cudnnBackendCreateDescriptor)                                                          \
    X(unmake, cudnnBackendDestroyDescriptor)                                                       \
    X(set, cudnnBackendSetAttribute)                                                               \
    X(get, cudnnBackendGetAttribute)                                                               \
    X(finalize, cudnnBackendFinalize)                                                              \
    X(execute, cudnnBackendExecute)

#define CDDPI_CUDNN_MEMBER(member, symbol) __typeof__(symbol) *member;

struct cddpi_cudnn {
    struct cddpi_device *device; /* for error messages */
    void *library;
    int version; /* 91900 is 9.19.0 */
    CDDPI_CUDNN_FUNCTIONS(CDDPI_CUDNN_MEMBER)
};

/** CDDP_ERR_UNAVAILABLE: @p library (from dlopen; it stays the caller's) is too old or lacks a
 *  function; the text says which. @p device is only used for error messages. */
cddp_status cddpi_cudnn_look_up(struct cddpi_device *device, void *library,
                                struct cddpi_cudnn *out);

/** Word the error @p code of @p what (a noun): CDDP_ERR_UNAVAILABLE if cuDNN does not support it,
 *  CDDP_ERR_NO_MEMORY, else CDDP_ERR_DEVICE. */
cddp_status cddpi_cudnn_failed(const struct cddpi_cudnn *cudnn, cudnnStatus_t code,
                               const char *what);

#endif
