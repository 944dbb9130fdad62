/* window_op.h - square windows of convolutions and pools: their effect on a shape, and their
 * positions. */
#ifndef CDDPI_NN_OPS_WINDOW_H
#define CDDPI_NN_OPS_WINDOW_H

#include "kernels/cpu/cpu_layout.h"
#include "nn/graph/graph.h"

/** Height and width after the layer's kernel, stride and padding; windows that do not fit entirely
 *  are dropped. CDDP_ERR_CONFIG: the kernel is larger than the padded image. */
CDDP_CHECKED cddp_status cddpi_window_shape(const struct cddpi_op *op, struct cddpi_shape *out);

/** Padding below and to the right in oneDNN's sense: negative if rows are dropped. */
int cddpi_window_padding_after(const struct cddpi_op *op, int in_side, int out_side);

/** The layer's window over @p planes images with @p lanes elements at each position. */
struct cddpi_nn_window cddpi_window_of(const struct cddpi_op *op, const struct cddpi_shape *image,
                                       const struct cddpi_shape *out, size_t planes, size_t lanes);

#endif
