/* device_module.h - what the CUDA module (libcddp-cuda.so) and the libraries that open it know of
 * each other: one table each way.
 *
 * The module is opened with dlopen when a CUDA device is asked for: from $CDDP_CUDA_MODULE, else
 * beside the library or program that asks, else where the loader finds it. It is C inside and out
 * (kernels are C++ behind plain headers) and uses nothing of libcddp but a table (base/module.h).
 */
#ifndef CDDPI_DEVICE_MODULE_H
#define CDDPI_DEVICE_MODULE_H

#include "base/module.h"
#include "device/device.h"

#define CDDPI_MODULE_SYMBOL "cddpi_cuda_module"

struct cddpi_module {
    uint32_t abi;
    const char *version; /* of cddp, as it was built */
    /* How many devices there are; an error says why there is none. Calls no more than cuInit().
     * @p has_peers: devices will have streams that wait for other ranks, for which CUDA is asked
     * for more hardware queues before it is initialised. */
    cddp_status (*count)(const struct cddpi_module_host *host, bool has_peers, int *out);
    /* Device @p index of those. After count. */
    cddp_status (*open)(const struct cddpi_module_host *host, int index, int rank,
                        struct cddpi_device **out);
    /* Lines for people: driver, runtime, cuBLASLt, cuDNN and NCCL with versions, or why one is
     * missing; then for each device name, memory, compute capability, PCI id, reachable peers. */
    cddp_status (*describe)(const struct cddpi_module_host *host, char *out, size_t bytes);
    /* What carries its devices' memory between ranks: see struct cddpi_device. */
    const struct cddpi_transport *const *transports;
};

/* The module's only symbol. */
typedef const struct cddpi_module *(*cddpi_module_fn)(void);

#endif
