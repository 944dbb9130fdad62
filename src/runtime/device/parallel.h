/* parallel.h - the devices of one process, as cddp/parallel.h names them. */
#ifndef CDDPI_DEVICE_PARALLEL_H
#define CDDPI_DEVICE_PARALLEL_H

#include "base/handle.h"
#include "device/device.h"

#include <cddp/parallel.h>

struct cddp_devices {
    struct cddpi_handle handle;
    _Atomic int busy; /* calls that run on the devices now */
    size_t bytes;     /* the size of this object */
    int count;
    struct cddpi_core {
        char name[16];
        int cpu;                     /* the kernel's number of the CPU; -1: any */
        struct cddpi_device *device; /* where it computes; this object owns a GPU */
    } cores[];
};

/* The rank of the process, globally and on its machine. */
struct cddpi_devices_place {
    int rank; /* for texts; -1: no rank */
    int world_size, local_rank, local_world_size;
};

/** Like cddp_devices_create(), but GPUs are allowed, too. "cuda" is the GPU that the rank would get
 *  alone. "cuda:N" counts in the rank's share of the visible GPUs, if there are enough of them for
 *  every rank of the machine to get a share that includes all named GPUs. Otherwise N counts in all
 *  visible GPUs, which the ranks then share.
 *  @return also CDDP_ERR_UNAVAILABLE: why CUDA cannot be used; CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddpi_devices_open(const char *const *names, int count,
                                            const struct cddpi_devices_place *place,
                                            cddp_devices **out);

/** Check that @p devices is a valid object: CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_STATE
 *  (destroyed). */
CDDP_CHECKED cddp_status cddpi_devices_check(const cddp_devices *devices, const char *call);

/** Begin a call that runs on @p devices; they cannot be destroyed until cddpi_devices_leave(). Any
 *  thread; several calls may run at once. Returns as cddpi_devices_check(). */
CDDP_CHECKED cddp_status cddpi_devices_enter(const cddp_devices *devices, const char *call);
void cddpi_devices_leave(const cddp_devices *devices);

/** Whether at least one of the devices is a GPU. */
bool cddpi_devices_have_gpu(const cddp_devices *devices);

/** Bind the calling thread to the CPU of @p core; does nothing if the CPU is "any".
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: the process may no longer use that CPU. */
CDDP_CHECKED cddp_status cddpi_core_bind(const struct cddpi_core *core);

/* --- workers.c: one persistent thread per device, which runs one piece of work after another. The
 * thread is bound to its device like the threads of cddp_parallel_apply(). --- */

struct cddpi_workers;

/** The work of a device's thread. */
typedef cddp_status (*cddpi_worker_fn)(int device, void *arg);

/** Start a thread for each of @p devices, which are borrowed and must outlive the threads.
 *  @param out  Belongs to one thread. Release with cddpi_workers_destroy(), which accepts NULL.
 *  @return CDDP_OK; CDDP_ERR_NO_MEMORY; CDDP_ERR_UNAVAILABLE: a thread cannot be bound. */
CDDP_CHECKED cddp_status cddpi_workers_create(const cddp_devices *devices,
                                              struct cddpi_workers **out);
/** End the threads. */
void cddpi_workers_destroy(struct cddpi_workers *workers);

/** Run @p fn on all devices at the same time, and wait for all of them.
 *  @return CDDP_OK, or the failure of the device that failed first, with the device's name before
 *          the text. Later failures are dropped, because the first one may have caused them. */
CDDP_CHECKED cddp_status cddpi_workers_run(struct cddpi_workers *workers, cddpi_worker_fn fn,
                                           void *arg);

#endif
