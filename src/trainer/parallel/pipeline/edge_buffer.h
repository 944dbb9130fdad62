/* edge_buffer.h - where what crosses an edge of a stage lies: a value on its way, and its gradient
 * on the way back. */
#ifndef CDDPI_PARALLEL_PIPELINE_EDGE_BUFFER_H
#define CDDPI_PARALLEL_PIPELINE_EDGE_BUFFER_H

#include "device/device.h"
#include "nn/model.h"

struct cddpi_edge_buffer {
    float *data, *grad;               /* memory of the device */
    cddp_work *data_work, *grad_work; /* messages that are under way; NULL: none */
};

/** End a message, if one is under way: its memory is free then, or holds what came. */
CDDP_CHECKED cddp_status cddpi_message_finish(cddp_work **work);
/** Memory for @p samples of each of @p count edges; what there is after a failure is released by
 *  cddpi_edge_buffers_release(). */
CDDP_CHECKED cddp_status cddpi_edge_buffers_allocate(struct cddpi_device *device,
                                                     struct cddpi_edge_buffer *buffers,
                                                     const struct cddpi_edge *edges, size_t count,
                                                     int samples);
/** Bytes of that memory. */
size_t cddpi_edge_buffers_bytes(const struct cddpi_edge *edges, size_t count, int samples);
/** Wait for messages, and release the memory. @p buffers may be NULL. */
void cddpi_edge_buffers_release(struct cddpi_device *device, struct cddpi_edge_buffer *buffers,
                                size_t count);

#endif
