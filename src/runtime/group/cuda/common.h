/* common.h - owns the helpers that the transports of the CUDA module share. */
#ifndef CDDPI_GROUP_CUDA_COMMON_H
#define CDDPI_GROUP_CUDA_COMMON_H

#include "device/cuda/cuda_device.h"
#include "group/transports.h"

enum { CDDPI_TRANSPORT_TEXT_BYTES = 512 };

/** Set the text as this thread's error; returns @p status. */
cddp_status cddpi_transport_fail(const struct cddpi_device *device, cddp_status status,
                                 const char *format, ...) __attribute__((format(printf, 3, 4)));
/** The same for a failure of @p rank, whose name is put before the text. */
cddp_status cddpi_transport_fail_rank(const struct cddpi_device *device, cddp_status status,
                                      int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
const char *cddpi_transport_last_error(const struct cddpi_device *device);
/** The thread's error text without this rank's name at its start: for other ranks, which get the
 *  name separately. */
const char *cddpi_transport_reason(const struct cddpi_device *device);

/** Fail for an operation that no transport enqueues into the communication stream: barrier, send,
 *  recv, and group_alloc's allocation. */
cddp_status cddpi_transport_refuse(const struct cddpi_device *device,
                                   const struct cddpi_group_op *op);

/** Make the device the calling thread's current one. */
void cddpi_transport_enter(struct cddpi_device *device);
/** Wait until the work in @p stream is done or has failed. Returns whether that happened in time.
 *  If not, do not free memory that the work uses: the call would wait without a limit. */
bool cddpi_transport_drain(struct cddpi_device *device, cudaStream_t stream, uint32_t timeout_ms);
/** Write one line to the log: "rank 2: <text>". */
void cddpi_transport_warn(const struct cddpi_device *device, const char *text);

/** Allocate zeroed host memory; NULL: no memory. */
void *cddpi_transport_zalloc(const struct cddpi_device *device, size_t bytes);
void cddpi_transport_free(const struct cddpi_device *device, void *memory);

/** Agree on one status: every rank passes its own status, whose failure is the thread's last: see
 *  cddpi_agree(). Collective. */
cddp_status cddpi_transport_agree(const struct cddpi_device_open_params *params, cddp_status own);

/** Close @p transport (may be NULL), whose opening failed with @p status and the thread's error
 * text. Keeps that text, although closing may fail, too. Returns @p status. */
cddp_status cddpi_transport_give_up(const struct cddpi_device *device, cddp_status status,
                                    struct cddpi_device_transport *transport);

#define CDDPI_DECLARE_TRANSPORT(name) extern const struct cddpi_transport cddpi_##name##_transport;
CDDPI_CUDA_TRANSPORTS(CDDPI_DECLARE_TRANSPORT)
extern const struct cddpi_transport cddpi_staged_hosts_transport; /* staged, between hosts */

#endif
