/* cudnn_nodes.c - builds cuDNN's nodes from descriptors and attributes.
 *
 * The attributes of each node follow NVIDIA's "cuDNN backend API" reference (Backend Descriptor
 * Types: TENSOR, POINTWISE, MATMUL, REDUCTION, CONVOLUTION and the OPERATION_... of each). */
#include "kernels/cuda/cudnn/cudnn_nodes.h"

#include <stdio.h>

enum { UNNAMED = 1000 }; /* first id of tensors that exist only between operations */

cudnnDataType_t cddpi_cudnn_type(cddp_type type)
{
    switch (type) {
    case CDDP_BF16:
        return CUDNN_DATA_BFLOAT16;
    case CDDP_F16:
        return CUDNN_DATA_HALF;
    default:
        return CUDNN_DATA_FLOAT;
    }
}

struct cddpi_cudnn_layout cddpi_cudnn_packed(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct cddpi_cudnn_layout){{a, b, c, d}, {b * c * d, c * d, d, 1}};
}

struct cddpi_cudnn_layout cddpi_cudnn_transposed(struct cddpi_cudnn_layout layout)
{
    const int64_t *d = layout.dims;
    const int64_t *s = layout.strides;

    return (struct cddpi_cudnn_layout){{d[0], d[1], d[3], d[2]}, {s[0], s[1], s[3], s[2]}};
}

void cddpi_cudnn_graph_init(struct cddpi_cudnn_graph *graph, const struct cddpi_cudnn *cudnn,
                            const char *what)
{
    *graph = (struct cddpi_cudnn_graph){
        .cudnn = cudnn, .what = what, .status = CDDP_OK, .unnamed = UNNAMED};
}

void cddpi_cudnn_graph_fini(struct cddpi_cudnn_graph *graph)
{
    while (graph->descriptor_count > 0) { /* in reverse: descriptors before those that they use */
        graph->cudnn->unmake(graph->descriptors[--graph->descriptor_count]);
    }
}

static void check_call(struct cddpi_cudnn_graph *graph, cudnnStatus_t code, const char *part)
{
    char what[96];

    if (code != CUDNN_STATUS_SUCCESS && graph->status == CDDP_OK) {
        snprintf(what, sizeof what, "%s: %s", graph->what, part);
        graph->status = cddpi_cudnn_failed(graph->cudnn, code, what);
    }
}

cudnnBackendDescriptor_t cddpi_cudnn_make(struct cddpi_cudnn_graph *graph,
                                          cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;

    if (graph->status == CDDP_OK && graph->descriptor_count == CDDPI_CUDNN_DESCRIPTORS) {
        graph->status = cuda_fail(graph->cudnn->device, CDDP_ERR_STATE,
                                  "%s: more than %d descriptors", graph->what,
                                  CDDPI_CUDNN_DESCRIPTORS);
    }
    if (graph->status != CDDP_OK) {
        return NULL;
    }
    check_call(graph, graph->cudnn->make(type, &descriptor), "descriptor");
    if (graph->status == CDDP_OK) {
        graph->descriptors[graph->descriptor_count++] = descriptor;
    }
    return descriptor;
}

void cddpi_cudnn_set(struct cddpi_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                     cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     int64_t count, const void *values)
{
    if (graph->status == CDDP_OK) {
        check_call(graph, graph->cudnn->set(descriptor, name, type, count, values), "attribute");
    }
}

void cddpi_cudnn_finalize(struct cddpi_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                          const char *what)
{
    if (graph->status == CDDP_OK) {
        check_call(graph, graph->cudnn->finalize(descriptor), what);
    }
}

static void set_descriptor(struct cddpi_cudnn_graph *graph, cudnnBackendDescriptor_t to,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    cddpi_cudnn_set(graph, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

/* --- tensors --- */

/* The alignment that cuDNN may assume: all memory of the table of kernels has it. */
enum { ALIGNMENT = 16 };

static cddpi_cudnn_node tensor(struct cddpi_cudnn_graph *graph, int64_t id, cudnnDataType_t type,
                               const struct cddpi_cudnn_layout *layout, int64_t alignment,
                               bool is_virtual, bool by_value)
{
    cudnnBackendDescriptor_t made = cddpi_cudnn_make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

    cddpi_cudnn_set(graph, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    cddpi_cudnn_set(graph, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, CDDPI_CUDNN_DIMS,
                    layout->dims);
    cddpi_cudnn_set(graph, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, CDDPI_CUDNN_DIMS,
                    layout->strides);
    cddpi_cudnn_set(graph, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    cddpi_cudnn_set(graph, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    cddpi_cudnn_set(graph, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    cddpi_cudnn_set(graph, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    cddpi_cudnn_finalize(graph, made, "tensor");
    return made;
}

cddpi_cudnn_node cddpi_cudnn_memory(struct cddpi_cudnn_graph *graph, int64_t id,
                                    cudnnDataType_t type, const struct cddpi_cudnn_layout *layout)
{
    return tensor(graph, id, type, layout, ALIGNMENT, false, false);
}

cddpi_cudnn_node cddpi_cudnn_rows(struct cddpi_cudnn_graph *graph, int64_t id,
                                  const struct cddpi_cudnn_layout *layout)
{
    int64_t count = layout->dims[0] * layout->strides[0];
    bool vectors = count * (int64_t)sizeof(float) % ALIGNMENT == 0;

    return tensor(graph, id, CUDNN_DATA_FLOAT, layout, vectors ? ALIGNMENT : (int64_t)sizeof(float),
                  false, false);
}

cddpi_cudnn_node cddpi_cudnn_scalar(struct cddpi_cudnn_graph *graph, int64_t id)
{
    struct cddpi_cudnn_layout one = cddpi_cudnn_packed(1, 1, 1, 1);

    return tensor(graph, id, CUDNN_DATA_FLOAT, &one, ALIGNMENT, false, true);
}

cddpi_cudnn_node cddpi_cudnn_intermediate(struct cddpi_cudnn_graph *graph, cudnnDataType_t type,
                                          const struct cddpi_cudnn_layout *layout)
{
    return tensor(graph, graph->unnamed++, type, layout, ALIGNMENT, true, false);
}

/* --- operations --- */

static void add_operation(struct cddpi_cudnn_graph *graph, cudnnBackendDescriptor_t operation,
                          const char *what)
{
    cddpi_cudnn_finalize(graph, operation, what);
    if (graph->status == CDDP_OK && graph->operation_count == CDDPI_CUDNN_OPERATIONS) {
        graph->status = cuda_fail(graph->cudnn->device, CDDP_ERR_STATE,
                                  "%s: more than %d operations", graph->what,
                                  CDDPI_CUDNN_OPERATIONS);
    }
    if (graph->status == CDDP_OK) {
        graph->operations[graph->operation_count++] = operation;
    }
}

void cddpi_cudnn_pointwise(struct cddpi_cudnn_graph *graph,
                           const struct cddpi_cudnn_pointwise *pointwise)
{
    cudnnBackendDescriptor_t mode = cddpi_cudnn_make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnBackendDescriptor_t operation;
    int64_t axis = pointwise->axis;
    float one = 1;

    cddpi_cudnn_set(graph, mode, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
                    &pointwise->mode);
    cddpi_cudnn_set(graph, mode, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
                    &pointwise->math);
    if (pointwise->mode == CUDNN_POINTWISE_GEN_INDEX) {
        cddpi_cudnn_set(graph, mode, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    }
    cddpi_cudnn_finalize(graph, mode, "pointwise mode");
    operation = cddpi_cudnn_make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, pointwise->x);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, pointwise->y);
    if (pointwise->b != NULL) {
        set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, pointwise->b);
    }
    if (pointwise->t != NULL) {
        set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, pointwise->t);
    }
    cddpi_cudnn_set(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1,
                    &one);
    cddpi_cudnn_set(graph, operation, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1,
                    &one);
    add_operation(graph, operation, "pointwise operation");
}

void cddpi_cudnn_matmul(struct cddpi_cudnn_graph *graph, cddpi_cudnn_node a, cddpi_cudnn_node b,
                        cddpi_cudnn_node c)
{
    cudnnBackendDescriptor_t matmul = cddpi_cudnn_make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    cudnnBackendDescriptor_t operation;
    cudnnDataType_t sums = CUDNN_DATA_FLOAT;

    cddpi_cudnn_set(graph, matmul, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    cddpi_cudnn_finalize(graph, matmul, "product");
    operation = cddpi_cudnn_make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, matmul);
    add_operation(graph, operation, "product's operation");
}

void cddpi_cudnn_reduce(struct cddpi_cudnn_graph *graph, cudnnReduceTensorOp_t op,
                        cddpi_cudnn_node x, cddpi_cudnn_node y)
{
    cudnnBackendDescriptor_t mode = cddpi_cudnn_make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    cudnnBackendDescriptor_t operation;
    cudnnDataType_t sums = CUDNN_DATA_FLOAT;

    cddpi_cudnn_set(graph, mode, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    cddpi_cudnn_set(graph, mode, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
                    1, &op);
    cddpi_cudnn_finalize(graph, mode, "reduction");
    operation = cddpi_cudnn_make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, mode);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_operation(graph, operation, "reduction's operation");
}

void cddpi_cudnn_reshape(struct cddpi_cudnn_graph *graph, cddpi_cudnn_node x, cddpi_cudnn_node y)
{
    cudnnBackendDescriptor_t operation = cddpi_cudnn_make(
        graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(graph, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_operation(graph, operation, "reshape");
}

/* --- convolution --- */

struct conv_names {
    cudnnBackendDescriptorType_t operation;
    cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
};

static const struct conv_names conv_names[] = {
    [CDDPI_CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CDDPI_CONV_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CDDPI_CONV_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

static cudnnBackendDescriptor_t conv_window(struct cddpi_cudnn_graph *graph, int64_t stride,
                                            int64_t padding)
{
    cudnnBackendDescriptor_t conv = cddpi_cudnn_make(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t spatial = 2;
    int64_t strides[] = {stride, stride};
    int64_t paddings[] = {padding, padding};
    int64_t dilations[] = {1, 1};

    cddpi_cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    cddpi_cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
                    &mode);
    cddpi_cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1,
                    &spatial);
    cddpi_cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2,
                    paddings);
    cddpi_cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2,
                    paddings);
    cddpi_cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
    cddpi_cudnn_set(graph, conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2,
                    strides);
    cddpi_cudnn_finalize(graph, conv, "convolution's window");
    return conv;
}

void cddpi_cudnn_convolve(struct cddpi_cudnn_graph *graph, enum cddpi_cudnn_conv_pass pass,
                          int64_t stride, int64_t padding, cddpi_cudnn_node x, cddpi_cudnn_node w,
                          cddpi_cudnn_node y)
{
    const struct conv_names *names = &conv_names[pass];
    cudnnBackendDescriptor_t conv = conv_window(graph, stride, padding);
    cudnnBackendDescriptor_t operation = cddpi_cudnn_make(graph, names->operation);
    float alpha = 1;
    float beta = 0;

    set_descriptor(graph, operation, names->conv, conv);
    set_descriptor(graph, operation, names->x, x);
    set_descriptor(graph, operation, names->w, w);
    set_descriptor(graph, operation, names->y, y);
    cddpi_cudnn_set(graph, operation, names->alpha, CUDNN_TYPE_FLOAT, 1, &alpha);
    cddpi_cudnn_set(graph, operation, names->beta, CUDNN_TYPE_FLOAT, 1, &beta);
    add_operation(graph, operation, "convolution");
}
