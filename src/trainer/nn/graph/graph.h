/* graph.h - the static graph: ops in execution order, the values between them, and the table of
 * functions (struct cddpi_op_ops) that each file of ops/ defines.
 *
 * Each layer becomes one op, except a relu that is fused into its producer. The loss is the last
 * op. Nothing here depends on the batch size: see model_plan.h for that. */
#ifndef CDDPI_NN_GRAPH_GRAPH_H
#define CDDPI_NN_GRAPH_GRAPH_H

#include "device/device.h"
#include "kernels/pointwise.h"
#include "nn/graph/graph_layers.h"

enum { CDDPI_OP_INPUTS = 2, CDDPI_OP_PARAMS = 4, CDDPI_VALUE_INPUT = 0 };

/* Initial values of an op's `params` and `buffers`. */
#define CDDPI_OP_NO_PARAMS                                                                         \
    {                                                                                              \
        -1, -1, -1, -1                                                                             \
    }

/* The shape of one sample. Flat: `channels` features, height and width 1. Sequence: `height` rows
 * of `channels` features, width 1. */
struct cddpi_shape {
    int channels, height, width;
    bool flat;
    bool sequence;
};

static inline struct cddpi_shape cddpi_shape_flat(int channels)
{
    return (struct cddpi_shape){channels, 1, 1, true, false};
}

/* Rows of features in one sample, for ops that treat each row separately. */
static inline size_t cddpi_shape_rows(const struct cddpi_shape *shape)
{
    return shape->sequence ? (size_t)shape->height : 1;
}

static inline size_t cddpi_shape_elements(const struct cddpi_shape *shape)
{
    return (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
}

struct cddpi_op {
    const struct cddpi_op_ops *ops;
    const struct cddpi_op_kernels *kernels; /* for the model's device */
    struct cddpi_layer layer;               /* with defaults filled in; its name is the op's name */
    uint32_t number;             /* of the layer in the description; selects its random numbers */
    int inputs[CDDPI_OP_INPUTS]; /* values */
    int input_count;
    int output;                  /* value; -1: the loss, which has none */
    bool relu;                   /* the following relu is fused into this op */
    bool gelu;                   /* the following gelu is fused into this op (on a device only) */
    int params[CDDPI_OP_PARAMS]; /* indices in the model: weight and bias, or as the op defines; -1:
                                    none */
    int buffers[CDDPI_OP_PARAMS]; /* indices in the model: running mean and variance; -1: none */
    struct cddpi_shape in, out;
};

struct cddpi_graph_value {
    struct cddpi_shape shape;
    int producer; /* op; -1: the data */
    int uses;
    bool needs_grad; /* there is a parameter before it, so backward needs its gradient */
};

struct cddpi_graph {
    struct cddpi_op *ops;
    int op_count;
    struct cddpi_graph_value *values;
    int value_count;
};

/* The form of a parameter that a device keeps beside the float32 one. */
enum cddpi_copy {
    CDDPI_COPY_NONE,
    CDDPI_COPY_CAST,         /* in the model's type */
    CDDPI_COPY_CHANNELS_LAST /* O x height x width x I, in the model's type */
};

struct cddpi_model;
struct cddpi_plan;
struct cddpi_exec;

/* How an op's bits could depend on the number of threads; see plan_threads.c. */
enum cddpi_thread_use {
    CDDPI_THREADS_FREE,    /* they do not */
    CDDPI_THREADS_KERNELS, /* oneDNN's choice of a kernel may depend on it, and some kernels do */
    CDDPI_THREADS_PRODUCTS /* a library divides matrix products among threads as it likes */
};

/* The implementation of an op on one kind of device: oneDNN and kernels/cpu on the CPU, the tables
 * of src/runtime/device and kernels/cuda on a CUDA device. */
struct cddpi_op_kernels {
    bool fuses_add;  /* batch_norm: can have a second input, which it adds before its relu */
    bool fuses_gelu; /* can fuse the following gelu, unless that is exact */
    enum cddpi_thread_use threads;
    size_t state_bytes; /* of what the op keeps in a plan, zeroed before `plan`; 0: nothing */
    /* Choose the output's layout, request memory, create primitives; NULL: there is no output. */
    cddp_status (*plan)(struct cddpi_plan *plan, int op);
    void (*unplan)(void *state); /* releases what the state holds; NULL: nothing */
    cddp_status (*forward)(struct cddpi_exec *exec);
    cddp_status (*backward)(struct cddpi_exec *exec);
    /* For an op that can compute parameter gradients separately from backward and later: do so.
     * Backward calls it where cddpi_exec_defers() is false; otherwise the plan keeps the memory
     * that CDDPI_WEIGHTS_... and CDDPI_..._TO_WEIGHTS ask for. NULL: backward computes all
     * gradients. */
    cddp_status (*weights)(struct cddpi_exec *exec);
    /* What a rank without samples must do for the ranks that have some; NULL: nothing. */
    cddp_status (*idle_forward)(struct cddpi_exec *exec);
    cddp_status (*idle_backward)(struct cddpi_exec *exec);
    /* The form in which the op reads parameter @p k; NULL: float32. */
    enum cddpi_copy (*copy)(const struct cddpi_op *op, int k);
};

struct cddpi_op_ops {
    const char *name;
    bool fuses_relu;
    bool images_only; /* rejects sequences */
    /* Change @p out from op->in to the output's shape. CDDP_ERR_CONFIG says what does not fit; the
     * caller puts the layer's name in front, and checks that two inputs have equal shapes. NULL:
     * accepts every input, and the output has its shape. */
    cddp_status (*shape)(const struct cddpi_op *op, struct cddpi_shape *out);
    /* Register parameters and buffers; NULL: the op has none. */
    cddp_status (*declare)(struct cddpi_model *model, struct cddpi_op *op);
    /* Multiplications of one sample's forward; NULL: too few to count. */
    double (*work)(const struct cddpi_op *op);
    const struct cddpi_op_kernels *on[CDDPI_DEVICE_KINDS];
};

extern const struct cddpi_op_ops cddpi_op_linear, cddpi_op_conv2d, cddpi_op_batch_norm,
    cddpi_op_max_pool, cddpi_op_avg_pool, cddpi_op_global_avg_pool, cddpi_op_flatten, cddpi_op_add,
    cddpi_op_dropout, cddpi_op_embedding, cddpi_op_layer_norm, cddpi_op_attention, cddpi_op_loss,
    cddpi_op_receive, cddpi_op_send, cddpi_op_response_norm, cddpi_op_lstm,
    cddpi_op_conv_transpose2d;
/* One for each row of kernels/pointwise.h. A gelu layer always uses the row GELU, exact or not. */
extern const struct cddpi_op_ops cddpi_op_pointwise[CDDPI_POINTWISE_COUNT];

/** Resolve names, infer shapes and fuse ops. The graph borrows the strings of @p list. */
CDDP_CHECKED cddp_status cddpi_graph_build(const struct cddpi_model_spec *spec,
                                           struct cddpi_layer_list *list, struct cddpi_graph *out);
void cddpi_graph_fini(struct cddpi_graph *graph);

/* graph_part.c: a graph cut out of a whole one: some of its layers, and an op for each value that
 * crosses a cut. */

/* The edges at one side of a part: one for each op that receives or sends. */
struct cddpi_edges {
    struct cddpi_edge *items;
    int *values; /* in the part's graph, one for each edge */
    void **data; /* bound by the caller, one for each edge */
    void **grads;
    size_t count;
};

struct cddpi_part {
    struct cddpi_edges in, out;
    bool own_edges; /* they have the model's type and layout, except for the data */
    struct cddpi_graph whole;
    int *origin;             /* for each value of the part, its number in the whole graph */
    uint32_t *param_numbers; /* their numbers in the whole model */
};

/** Cut layers @p range out of @p whole. The part owns @p whole from now on, even if this fails.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: the range has no layer, or tokens would cross a cut. */
CDDP_CHECKED cddp_status cddpi_part_cut(const struct cddpi_model_spec *spec,
                                        const struct cddpi_layer_list *list,
                                        struct cddpi_graph *whole, struct cddpi_part *part,
                                        struct cddpi_graph *out);
void cddpi_part_fini(struct cddpi_part *part);
/** The edges at one side. */
static inline struct cddpi_edges *cddpi_part_edges(struct cddpi_part *part,
                                                   enum cddpi_edge_side side)
{
    return side == CDDPI_EDGE_IN ? &part->in : &part->out;
}

#endif
