/* planes.h - what the planes inside the CUDA module share. */
#ifndef CDDPI_GROUP_PLANES_H
#define CDDPI_GROUP_PLANES_H

#include "device/cuda/cuda_device.h"
#include "group/plane.h"

enum { CDDPI_PLANE_TEXT = 512 };

/** Keep the text as this thread's error; returns @p status. */
cddp_status cddpi_plane_fail(const struct cddpi_device *device, cddp_status status,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *cddpi_plane_last_error(const struct cddpi_device *device);

/** What no plane puts into the communication stream: barrier, send, recv, and group_alloc's
 *  allocation, in words. */
cddp_status cddpi_plane_refuse(const struct cddpi_device *device, const struct cddpi_group_op *op);

/** Make the device the calling thread's. */
void cddpi_plane_enter(struct cddpi_device *device);
/** Wait until the work in @p stream is done, or has failed: whether it came to that in time. Memory
 *  that is freed before would be waited for without an end. */
bool cddpi_plane_drain(struct cddpi_device *device, cudaStream_t stream, uint32_t timeout_ms);
/** One line into the log: "rank 2: <text>". */
void cddpi_plane_warn(const struct cddpi_device *device, const char *text);

/** Zeroed memory of the host, or NULL. */
void *cddpi_plane_zalloc(const struct cddpi_device *device, size_t bytes);
void cddpi_plane_free(const struct cddpi_device *device, void *memory);

/** Every rank passes how it fared, with the text stored: all get CDDP_OK, or the first failure,
 * told with its rank. Collective. */
cddp_status cddpi_plane_agree(const struct cddpi_plane_seat *seat, cddp_status own);

/** Close @p plane, of which opening failed with @p status and the thread's text, and keep the text:
 *  closing has failures of its own. Returns the status. */
cddp_status cddpi_plane_give_up(const struct cddpi_device *device, cddp_status status,
                                void (*close)(struct cddpi_plane *plane),
                                struct cddpi_plane *plane);

extern const struct cddpi_plane_ops cddpi_nccl_plane;
extern const struct cddpi_plane_ops cddpi_ipc_plane;
extern const struct cddpi_plane_ops cddpi_staged_plane;

#endif
