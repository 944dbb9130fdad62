/* device_module.h - the interface between the CUDA module (libcddp-cuda.so) and the libraries that
 * open it: one table in each direction.
 *
 * The module is opened with dlopen when a CUDA device is requested: from $CDDP_CUDA_MODULE, else
 * beside the library or program that requests it, else where the dynamic loader finds it. Its
 * interface and its own code are C (the kernels are C++ with plain C headers). It uses nothing of
 * libcddp except a table (base/module.h). */
#ifndef CDDPI_DEVICE_MODULE_H
#define CDDPI_DEVICE_MODULE_H

#include "base/module.h"
#include "device/device.h"

#define CDDPI_MODULE_SYMBOL "cddpi_cuda_module"

struct cddpi_module {
    uint32_t abi;
    const char *version; /* the version of cddp that the module was built from */
    /* Count the devices; an error says why there is none. Calls only cuInit(). @p has_peers: the
     * devices' streams will wait for other ranks, so CUDA must get more hardware queues before it
     * is initialised. */
    cddp_status (*count)(const struct cddpi_module_host *host, bool has_peers, int *out);
    /* Open device @p index of those that `count` found. Call `count` first. */
    cddp_status (*open)(const struct cddpi_module_host *host, int index, int rank,
                        struct cddpi_device **out);
    /* Write lines for people: driver, runtime, cuBLASLt, cuDNN and NCCL with their versions, or why
     * one is missing; then for each device its name, memory, compute capability, PCI id and
     * reachable peers. */
    cddp_status (*describe)(const struct cddpi_module_host *host, char *out, size_t bytes);
    /* Write the unique names of the devices (struct cddpi_device) that `count` found, each with a
     * newline. One that does not answer is left out. Call `count` first. */
    void (*list)(char *out, size_t bytes);
    /* Load NCCL. CDDP_ERR_UNAVAILABLE: the text says why that failed. */
    cddp_status (*find_nccl)(const struct cddpi_module_host *host);
    /* The transports that carry its devices' memory between ranks: see struct cddpi_device. */
    const struct cddpi_transport *const *transports;
};

/* The module's only symbol. */
typedef const struct cddpi_module *(*cddpi_module_fn)(void);

/* --- in libcddp: probe.c --- */

/** Open the module, once per process; it is never closed. Opening it calls no CUDA function.
 *  CDDP_ERR_UNAVAILABLE: the text says where it was searched and why that failed. Any thread. */
cddp_status cddpi_module_open(const struct cddpi_module **out);

/** Run @p probe in a child process and return the text that it writes to @p fd. A child is needed
 *  because a driver must not be touched before a fork, and because it may hang or crash. If this
 *  process has other threads, the probe may only execute a program. Release the text with
 *  cddpi_free(). NULL: the child hung or crashed; the error's text says so. */
char *cddpi_probe_child(void (*probe)(int fd, const void *context), const void *context,
                        uint32_t timeout_ms);

#endif
