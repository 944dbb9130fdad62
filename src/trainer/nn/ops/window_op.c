/* window_op.c - owns the shape rule and the windows of convolutions and pools. */
#include "nn/ops/window_op.h"

#include "base/error.h"

cddp_status cddpi_window_shape(const struct cddpi_op *op, struct cddpi_shape *out)
{
    const struct cddpi_layer *layer = &op->layer;
    int height = op->in.height + 2 * layer->padding;
    int width = op->in.width + 2 * layer->padding;

    if (layer->kernel > height || layer->kernel > width) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "its kernel of %d x %d is larger than its input of %d x %d with padding "
                          "%d",
                          layer->kernel, layer->kernel, op->in.height, op->in.width,
                          layer->padding);
    }
    out->height = (height - layer->kernel) / layer->stride + 1;
    out->width = (width - layer->kernel) / layer->stride + 1;
    out->flat = false;
    return CDDP_OK;
}

int cddpi_window_padding_after(const struct cddpi_op *op, int in_side, int out_side)
{
    return (out_side - 1) * op->layer.stride + op->layer.kernel - in_side - op->layer.padding;
}

struct cddpi_nn_window cddpi_window_of(const struct cddpi_op *op, const struct cddpi_shape *image,
                                       const struct cddpi_shape *out, size_t planes, size_t lanes)
{
    return (struct cddpi_nn_window){.planes = planes,
                                    .lanes = lanes,
                                    .height = (size_t)image->height,
                                    .width = (size_t)image->width,
                                    .out_height = (size_t)out->height,
                                    .out_width = (size_t)out->width,
                                    .kernel = (size_t)op->layer.kernel,
                                    .stride = (size_t)op->layer.stride,
                                    .padding = (size_t)op->layer.padding};
}
