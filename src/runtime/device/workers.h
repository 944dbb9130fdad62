/* workers.h - one persistent thread per device, which runs one piece of work after another. The
 * thread is bound to its device like the threads of cddp_parallel_apply(). */
#ifndef CDDPI_DEVICE_WORKERS_H
#define CDDPI_DEVICE_WORKERS_H

#include "device/parallel.h"

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
