/* common.h - owns what the transports of the CUDA module share. */
#ifndef CDDPI_GROUP_CUDA_COMMON_H
#define CDDPI_GROUP_CUDA_COMMON_H

#include "base/alloc.h"
#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "group/transports.h"

enum { CDDPI_TRANSPORT_TEXT_BYTES = 512 };

/** The thread's error text without this rank's name at its start: for other ranks, which get the
 *  name separately. */
const char *cddpi_transport_reason(const struct cddpi_device *device);

/** Fail for an operation that no transport enqueues into the communication stream: barrier, send,
 *  recv, and group_alloc's allocation. */
cddp_status cddpi_transport_refuse(const struct cddpi_group_op *op);

/** Make the device the calling thread's current one. */
void cddpi_transport_enter(struct cddpi_device *device);
/** Wait until the work in @p stream is done or has failed. Returns whether that happened in time.
 *  If not, do not free memory that the work uses: the call would wait without a limit. */
bool cddpi_transport_drain(struct cddpi_device *device, cudaStream_t stream, uint32_t timeout_ms);
/** Write one line to the log: "rank 2: <text>". */
void cddpi_transport_warn(const struct cddpi_device *device, const char *text);

/** Agree on one status: every rank passes its own status, whose failure is the thread's last: see
 *  cddpi_agree(). Collective. */
cddp_status cddpi_transport_agree(const struct cddpi_device_open_params *params, cddp_status own);

/** End the opening of @p transport, whose first member is its base: store it in @p out, or close it
 *  (it may be NULL) if @p status is a failure. Keeps the failure's text, although closing may fail,
 *  too. Returns @p status. */
cddp_status cddpi_transport_opened(cddp_status status, void *transport,
                                   struct cddpi_device_transport **out);

/** Whether kernels can use @p memory. */
static inline bool cuda_is_aligned(const void *memory)
{
    return (uintptr_t)memory % 16 == 0;
}

#define CDDPI_DECLARE_TRANSPORT(name) extern const struct cddpi_transport cddpi_##name##_transport;
CDDPI_CUDA_TRANSPORTS(CDDPI_DECLARE_TRANSPORT)
extern const struct cddpi_transport cddpi_staged_hosts_transport; /* staged, between hosts */

#endif
