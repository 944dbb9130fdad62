/* conv2d.h - the plan of a convolution. conv2d_plan.c creates it, where conv2d_choice.c chooses the
 * gradients' implementations; conv2d.c runs it, with our own products in conv2d_columns.c. */
#ifndef CDDPI_NN_OPS_CONV2D_H
#define CDDPI_NN_OPS_CONV2D_H

#include "kernels/cpu/cpu_layout.h"
#include "nn/cpu/dnnl.h"

/* conv2d_filters.c */

enum { CDDPI_FILTER_DIMS = 5 };

struct cddpi_filters {
    /* of the plain filters: groups; then for each group outputs, inputs, height, width */
    size_t sizes[CDDPI_FILTER_DIMS];
    /* offsets for each index: sizes[i] numbers for dimension i */
    size_t *places[CDDPI_FILTER_DIMS];
    size_t bytes; /* of the other layout, which may contain gaps of zeros ... */
    bool gaps;    /* ... if this is true */
    bool half;    /* its elements are bf16 */
};

/** Prepare copies to and from the layout @p md. It may have more outputs and inputs than @p sizes;
 *  without groups it may have four dimensions.
 *  @return CDDP_ERR_UNAVAILABLE: @p md is not a blocked layout of float32 or bf16. */
CDDP_CHECKED cddp_status cddpi_filters_init(struct cddpi_filters *filters, const dnnl_dim_t *sizes,
                                            cddpi_md md);
/** Prepare copies to and from outputs x height x width x inputs, one group after the other. */
CDDP_CHECKED cddp_status cddpi_filters_init_last(struct cddpi_filters *filters,
                                                 const dnnl_dim_t *sizes);
void cddpi_filters_pack(const struct cddpi_filters *filters, const float *plain, void *packed);
/** @p packed is float32. */
void cddpi_filters_unpack(const struct cddpi_filters *filters, const float *packed, float *plain);
void cddpi_filters_fini(struct cddpi_filters *filters); /* accepts zeroed ones */

/* A weight in another layout: its memory, and the copy to or from the plain layout. */
struct cddpi_packed {
    bool needed;                 /* false: the plain weight is used */
    struct cddpi_primitive copy; /* by oneDNN; not created: by our own copies */
    struct cddpi_filters own;
    int buffer;
};

/* The type of the factors: float32, float32 values that bf16 can represent, or bf16. */
enum cddpi_factors { CDDPI_FACTORS_F32, CDDPI_FACTORS_ROUNDED, CDDPI_FACTORS_BF16 };

/* The filters' gradient is computed as this many partial sums over the images, whatever the number
 * of threads. Each part is computed by one thread, and the parts are added in order. oneDNN alone
 * would divide the images among threads, so bits would depend on their number. */
enum { CDDPI_CONV_PARTS = 8 };

/* One pass of a convolution: forward, or one of the gradients. */
struct cddpi_conv_pass {
    struct cddpi_primitive primitive; /* not created: our own products, by im2col */
    /* layouts in which it reads or writes the op's input and output, or their gradients */
    struct cddpi_nn_layout image, result;
    int outputs, inputs; /* channels; those beyond the op's channels are zero padding */
    struct cddpi_packed weight;
    int image_buffer, result_buffer; /* for gradients, where the layouts differ */
    size_t lines; /* our own products: rows of outputs whose columns are made at a time ... */
    int columns;  /* ... and the buffer for them */
    /* our own products with several groups: buffers for one group's channels */
    int group_image, group_result;
};

struct cddpi_conv {
    struct cddpi_dnnl *dnnl;
    enum cddpi_factors factors;
    struct cddpi_conv_pass forward, data, weights;
    struct cddpi_nn_layout in, inner; /* the input's layout, and the layout in which it is read */
    struct cddpi_nn_layout out;       /* the output's layout */
    struct cddpi_nn_window window;    /* for our own products: channels last */
    bool keeps_input;                 /* the filters' gradient reads the input itself ... */
    int inner_input;                  /* ... or this buffer, if `inner` differs from `in` */
    int input_factor, grad_factor;    /* buffers, if factors are not plain float32 */
    int weight_factor;                /* buffer: the plain weight, rounded */
    int parts;                        /* of the images, for the filters' gradient */
    int lanes;                        /* how many parts are computed at once */
    struct cddpi_primitive others[CDDPI_CONV_PARTS - 1]; /* `weights` for the other parts */
    size_t image_bytes, result_bytes, made_bytes;        /* of one part */
    int part_made;  /* buffer: gradients of all parts but the first; of one part if lanes is 1 */
    int plain_grad; /* buffer, used if gradients are accumulated */
    int bias_partial, bias_sums; /* buffers for the sum over the output's gradient */
    /* the op's tensors for oneDNN: src and any_weight have the factors' type, dst is the result */
    cddpi_md src, dst, plain_weight, any_weight, bias; /* bias NULL: there is no bias */
    struct cddpi_dnnl_window steps;
};

/* Channels of one group. */
static inline int cddpi_conv_inputs(const struct cddpi_op *op)
{
    return op->in.channels / op->layer.groups;
}

static inline int cddpi_conv_outputs(const struct cddpi_op *op)
{
    return op->out.channels / op->layer.groups;
}

CDDP_CHECKED cddp_status cddpi_conv_plan(struct cddpi_plan *plan, int index);
void cddpi_conv_unplan(void *state);

/* Dimensions of filters for oneDNN. @p sizes receives the number of groups, then for each group
 * @p outputs, @p inputs, height and width; with one group, oneDNN wants only the last four. Returns
 * how many dimensions there are; @p out points to the first. */
static inline int cddpi_conv_filter_dims(const struct cddpi_op *op, int outputs, int inputs,
                                         dnnl_dim_t sizes[CDDPI_FILTER_DIMS],
                                         const dnnl_dim_t **out)
{
    int without = op->layer.groups == 1;

    sizes[0] = op->layer.groups;
    sizes[1] = outputs;
    sizes[2] = inputs;
    sizes[3] = sizes[4] = op->layer.kernel;
    *out = sizes + without;
    return CDDPI_FILTER_DIMS - without;
}

/* conv2d_choice.c */

/** Choose how a gradient is computed. If oneDNN has more than a reference implementation for the
 *  layouts as they are, that one is taken. Otherwise the choice is what is expected to be fastest:
 *  oneDNN's kernels for other layouts, with copies; the same with channels padded to whole blocks;
 *  or our own products. It depends only on the shapes and on this oneDNN, so every run chooses the
 *  same.
 *  @param as_is  The request for the layouts as they are.
 *  @param pass   Its layouts and channels are set.
 *  @param out    NULL: our own products; otherwise the caller releases it. */
CDDP_CHECKED cddp_status cddpi_conv_choose(const struct cddpi_conv *state, struct cddpi_plan *plan,
                                           int index, const struct cddpi_dnnl_request *as_is,
                                           struct cddpi_conv_pass *pass,
                                           struct cddpi_plan_part *part,
                                           dnnl_primitive_desc_t *out);
/** Set in @p part the expected cost of a pass of @p op with the implementation @p name. */
void cddpi_conv_cost(const struct cddpi_plan *plan, const struct cddpi_op *op, const char *name,
                     const struct cddpi_conv_pass *pass, struct cddpi_plan_part *part);

/* conv2d_columns.c: images are channels last; filters are outputs x height x width x inputs, where
 * inputs are those of one group. */

/** Request memory for the columns of a pass. */
void cddpi_conv_columns_plan(struct cddpi_plan *plan, int index, const struct cddpi_conv *state,
                             enum cddpi_lifetime lifetime, struct cddpi_conv_pass *pass);
CDDP_CHECKED cddp_status cddpi_conv_columns_forward(const struct cddpi_exec *exec,
                                                    const struct cddpi_conv *state, const float *x,
                                                    const float *weight, float *y);
CDDP_CHECKED cddp_status cddpi_conv_columns_weights(const struct cddpi_exec *exec,
                                                    const struct cddpi_conv *state, const float *x,
                                                    const float *grad, float *weight_grad);
CDDP_CHECKED cddp_status cddpi_conv_columns_data(const struct cddpi_exec *exec,
                                                 const struct cddpi_conv *state, const float *grad,
                                                 const float *weight, float *dx);

#endif
