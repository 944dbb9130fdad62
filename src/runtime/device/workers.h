/* workers.h - a thread a device that lives on and is given work again and again, bound to the
 * device as the threads of cddp_parallel_apply() are. */
#ifndef CDDPI_DEVICE_WORKERS_H
#define CDDPI_DEVICE_WORKERS_H

#include "device/parallel.h"

struct cddpi_workers;

/** What a device's thread does. */
typedef cddp_status (*cddpi_worker_fn)(int device, void *arg);

/** Start a thread for each of @p devices, which are borrowed and outlive them.
 *  @param out  Belongs to one thread; release with cddpi_workers_destroy(), which accepts NULL.
 *  @return CDDP_OK; CDDP_ERR_NO_MEMORY; CDDP_ERR_UNAVAILABLE: a thread cannot be bound. */
CDDP_CHECKED cddp_status cddpi_workers_create(const cddp_devices *devices,
                                              struct cddpi_workers **out);
/** End the threads. */
void cddpi_workers_destroy(struct cddpi_workers *workers);

/** Run @p fn on each device at once, and wait for all.
 *  @return CDDP_OK, or the failure of the device that failed first, its name before the text: those
 *          that fail later may have failed because of it. */
CDDP_CHECKED cddp_status cddpi_workers_run(struct cddpi_workers *workers, cddpi_worker_fn fn,
                                           void *arg);

#endif
