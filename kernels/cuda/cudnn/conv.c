/* conv.c - owns the operation graphs of convolution.
 *
 * Each graph is a single node ("cuDNN graph API": CONVOLUTION_FORWARD, CONVOLUTION_BACKWARD_DATA
 * and CONVOLUTION_BACKWARD_FILTER). cuDNN names dimensions N, C, H, W whatever their order in
 * memory; strides say that channels are last. */
#include "kernels/cuda/cudnn/conv.h"

#include "kernels/cuda/im2col.h"

static struct cddpi_cudnn_layout channels_last(int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (struct cddpi_cudnn_layout){{n, c, h, w}, {h * w * c, 1, w * c, c}};
}

void cddpi_cudnn_conv_build(struct cddpi_cudnn_graph *graph, enum cddpi_cudnn_conv_pass pass,
                            const struct cddpi_cuda_conv *shape)
{
    struct cddpi_cudnn_layout x = channels_last(shape->count, shape->channels, shape->height,
                                                shape->width);
    struct cddpi_cudnn_layout w = channels_last(shape->outputs, shape->channels, shape->kernel,
                                                shape->kernel);
    struct cddpi_cudnn_layout y = channels_last(shape->count, shape->outputs,
                                                cddpi_cuda_conv_extent(shape->height, shape),
                                                cddpi_cuda_conv_extent(shape->width, shape));
    cudnnDataType_t type = cddpi_cudnn_type(shape->type);

    graph->single = type == CUDNN_DATA_FLOAT;
    cddpi_cudnn_convolve(graph, pass, shape->stride, shape->padding,
                         cddpi_cudnn_memory(graph, CDDPI_CONV_X, type, &x),
                         cddpi_cudnn_memory(graph, CDDPI_CONV_W, type, &w),
                         cddpi_cudnn_memory(graph, CDDPI_CONV_Y, type, &y));
}

bool cddpi_cudnn_conv_few(const struct cddpi_cuda_conv *shape)
{
    return cddp_type_bytes(shape->type) == 2 && shape->channels < CDDPI_WHOLE_CHANNELS;
}

struct cddpi_cuda_conv cddpi_cudnn_conv_whole(const struct cddpi_cuda_conv *shape)
{
    struct cddpi_cuda_conv whole = *shape;

    whole.channels = CDDPI_WHOLE_CHANNELS;
    return whole;
}
