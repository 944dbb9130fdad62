/* cudnn_nodes.h - builds operation graphs of cuDNN in C: one call for each node, instead of the
 * backend API's descriptors.
 *
 * A graph remembers the first failure and ignores all later calls, so that builders read like
 * formulas: check `status` once, at the end. Nothing here needs a device. */
#ifndef CDDPI_KERNELS_CUDA_CUDNN_NODES_H
#define CDDPI_KERNELS_CUDA_CUDNN_NODES_H

#include "kernels/cuda/cudnn/cudnn_library.h"

#include <cddp/types.h>

#include <stdbool.h>

enum { CDDPI_CUDNN_DIMS = 4, CDDPI_CUDNN_OPERATIONS = 32, CDDPI_CUDNN_DESCRIPTORS = 256 };

/* A tensor of a graph; 0: no tensor. */
typedef cudnnBackendDescriptor_t cddpi_cudnn_node;

struct cddpi_cudnn_graph {
    const struct cddpi_cudnn *cudnn;
    const char *what; /* for error messages: "attention" */
    cddp_status status;
    /* all of them, in the order of creation */
    cudnnBackendDescriptor_t descriptors[CDDPI_CUDNN_DESCRIPTORS];
    cudnnBackendDescriptor_t operations[CDDPI_CUDNN_OPERATIONS];
    int descriptor_count, operation_count;
    int64_t unnamed; /* tensors without a pointer; their ids start at UNNAMED */
    bool single;     /* float32 factors are multiplied, which tensor cores round to TF32 */
};

/* Dimensions and strides, in elements, outermost first. */
struct cddpi_cudnn_layout {
    int64_t dims[CDDPI_CUDNN_DIMS], strides[CDDPI_CUDNN_DIMS];
};

cudnnDataType_t cddpi_cudnn_type(cddp_type type);
/* Dense: rows of the last dimension are adjacent. */
struct cddpi_cudnn_layout cddpi_cudnn_packed(int64_t a, int64_t b, int64_t c, int64_t d);
/* The same memory with the last two dimensions exchanged. */
struct cddpi_cudnn_layout cddpi_cudnn_transposed(struct cddpi_cudnn_layout layout);

void cddpi_cudnn_graph_init(struct cddpi_cudnn_graph *graph, const struct cddpi_cudnn *cudnn,
                            const char *what);
void cddpi_cudnn_graph_fini(struct cddpi_cudnn_graph *graph);

/* Device memory, whose pointer is passed at execution under @p id (positive, below 1000). */
cddpi_cudnn_node cddpi_cudnn_memory(struct cddpi_cudnn_graph *graph, int64_t id,
                                    cudnnDataType_t type, const struct cddpi_cudnn_layout *layout);
/* The same for rows of float32 that may be passed in consecutive parts of the batch. A part starts
 * at a vector boundary if each part consists of whole vectors. */
cddpi_cudnn_node cddpi_cudnn_rows(struct cddpi_cudnn_graph *graph, int64_t id,
                                  const struct cddpi_cudnn_layout *layout);
/* A float32 in CPU memory, passed at execution. */
cddpi_cudnn_node cddpi_cudnn_scalar(struct cddpi_cudnn_graph *graph, int64_t id);
/* A tensor that exists only between two operations. */
cddpi_cudnn_node cddpi_cudnn_intermediate(struct cddpi_cudnn_graph *graph, cudnnDataType_t type,
                                          const struct cddpi_cudnn_layout *layout);

struct cddpi_cudnn_pointwise {
    cudnnPointwiseMode_t mode;
    cddpi_cudnn_node x, b, t, y; /* b, t (of a selection): 0 for modes without them */
    cudnnDataType_t math;
    int axis; /* for CUDNN_POINTWISE_GEN_INDEX */
};
void cddpi_cudnn_pointwise(struct cddpi_cudnn_graph *graph,
                           const struct cddpi_cudnn_pointwise *pointwise);
void cddpi_cudnn_matmul(struct cddpi_cudnn_graph *graph, cddpi_cudnn_node a, cddpi_cudnn_node b,
                        cddpi_cudnn_node c);
/* Reduce over the dimensions that are 1 in @p y. */
void cddpi_cudnn_reduce(struct cddpi_cudnn_graph *graph, cudnnReduceTensorOp_t op,
                        cddpi_cudnn_node x, cddpi_cudnn_node y);
/* The same memory with other dimensions and strides. */
void cddpi_cudnn_reshape(struct cddpi_cudnn_graph *graph, cddpi_cudnn_node x, cddpi_cudnn_node y);

enum cddpi_cudnn_conv_pass { CDDPI_CONV_FORWARD, CDDPI_CONV_INPUT, CDDPI_CONV_WEIGHT };
/* The pass decides which of the three is the result: y, x or w. */
void cddpi_cudnn_convolve(struct cddpi_cudnn_graph *graph, enum cddpi_cudnn_conv_pass pass,
                          int64_t stride, int64_t padding, cddpi_cudnn_node x, cddpi_cudnn_node w,
                          cddpi_cudnn_node y);

/* Create a descriptor of another kind, which the graph owns; 0 after a failure. */
cudnnBackendDescriptor_t cddpi_cudnn_make(struct cddpi_cudnn_graph *graph,
                                          cudnnBackendDescriptorType_t type);
void cddpi_cudnn_set(struct cddpi_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                     cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     int64_t count, const void *values);
void cddpi_cudnn_finalize(struct cddpi_cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                          const char *what);

#endif
