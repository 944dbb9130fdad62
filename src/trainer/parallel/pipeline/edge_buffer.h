/* edge_buffer.h - owns the memory of an edge between stages: an activation, and its gradient on the
 * way back. */
#ifndef CDDPI_PARALLEL_PIPELINE_EDGE_BUFFER_H
#define CDDPI_PARALLEL_PIPELINE_EDGE_BUFFER_H

#include "device/device.h"
#include "nn/model.h"

struct cddpi_edge_buffer {
    float *data, *grad;               /* in the device's memory */
    cddp_work *data_work, *grad_work; /* messages under way; NULL: none */
};

/** Wait for a message, if one is under way. Then its memory is free, or holds what was received. */
CDDP_CHECKED cddp_status cddpi_message_finish(cddp_work **work);
/** Allocate memory for @p samples samples of each of @p count edges. After a failure,
 *  cddpi_edge_buffers_release() releases what was allocated. */
CDDP_CHECKED cddp_status cddpi_edge_buffers_allocate(struct cddpi_device *device,
                                                     struct cddpi_edge_buffer *buffers,
                                                     const struct cddpi_edge *edges, size_t count,
                                                     int samples);
/** Bytes that cddpi_edge_buffers_allocate() allocates. */
size_t cddpi_edge_buffers_bytes(const struct cddpi_edge *edges, size_t count, int samples);
/** Wait for all messages, then release the memory. @p buffers may be NULL. */
void cddpi_edge_buffers_release(struct cddpi_device *device, struct cddpi_edge_buffer *buffers,
                                size_t count);

#endif
