/* parallel.h - the devices of one process, as cddp/parallel.h names them. */
#ifndef CDDPI_DEVICE_PARALLEL_H
#define CDDPI_DEVICE_PARALLEL_H

#include "base/handle.h"
#include "device/device.h"

#include <cddp/parallel.h>

struct cddp_devices {
    struct cddpi_handle handle;
    _Atomic int busy; /* calls that run on them now */
    size_t bytes;     /* of this object */
    int count;
    struct cddpi_core {
        char name[16];
        int cpu;                     /* the kernel's number of the processor; -1: any */
        struct cddpi_device *device; /* where it computes; a GPU is this object's own */
    } cores[];
};

/* Which rank the process is, among all and among those of its machine. */
struct cddpi_devices_place {
    int rank; /* for texts; -1: none */
    int world_size, local_rank, local_world_size;
};

/** As cddp_devices_create(), and GPUs, too: "cuda" is the one that the rank would have alone;
 *  "cuda:N" counts in the rank's share of those that the process sees, if they suffice for a share
 *  of that size for each rank of the machine, else in all of them, which ranks share then.
 *  @return also CDDP_ERR_UNAVAILABLE: why there is no CUDA here; CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddpi_devices_open(const char *const *names, int count,
                                            const struct cddpi_devices_place *place,
                                            cddp_devices **out);

/** Whether @p devices are some: CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_STATE (destroyed). */
CDDP_CHECKED cddp_status cddpi_devices_check(const cddp_devices *devices, const char *call);

/** Begin a call that runs on them: they cannot be destroyed until cddpi_devices_leave(). Any
 * thread, also several at once. Returns as cddpi_devices_check(). */
CDDP_CHECKED cddp_status cddpi_devices_enter(const cddp_devices *devices, const char *call);
void cddpi_devices_leave(const cddp_devices *devices);

/** Whether one of them is a GPU. */
bool cddpi_devices_have_gpu(const cddp_devices *devices);

/** Bind the calling thread to @p core; nothing for one that is any.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: the process may not use that processor any more. */
CDDP_CHECKED cddp_status cddpi_core_bind(const struct cddpi_core *core);

#endif
