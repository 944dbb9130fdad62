/* conv2d.h - what the plan of a convolution holds: made by conv2d_plan.c, where conv2d_choice.c
 * looks for the gradients' implementations, and run by conv2d.c, with our own products in
 * conv2d_columns.c. */
#ifndef CDDPI_NN_OPS_CONV2D_H
#define CDDPI_NN_OPS_CONV2D_H

#include "kernels/cpu/cpu_layout.h"
#include "kernels/cpu/cpu_window.h"
#include "nn/cpu/dnnl.h"
#include "nn/cpu/filters.h"

/* A weight in another layout: where it lies, and the copy from or to the plain one. */
struct cddpi_packed {
    bool needed;                 /* else the plain one is taken */
    struct cddpi_primitive copy; /* oneDNN's; not made: ours */
    struct cddpi_filters own;
    int buffer;
};

/* What is multiplied: float32, float32 that bf16 can hold, or bf16. */
enum cddpi_factors { CDDPI_FACTORS_F32, CDDPI_FACTORS_ROUNDED, CDDPI_FACTORS_BF16 };

/* The filters' gradient is made of as many parts of the images whatever the number of threads, each
 * by one thread, and these are added in order: oneDNN alone would cut the images by threads. */
enum { CDDPI_CONV_PARTS = 8 };

/* The forward, or one of the gradients. */
struct cddpi_conv_pass {
    struct cddpi_primitive primitive; /* not made: our own products, of columns */
    /* in which it reads or writes the op's input and output, or their gradients */
    struct cddpi_nn_layout image, result;
    int outputs, inputs; /* channels; more than the op's: the rest are zero */
    struct cddpi_packed weight;
    int image_buffer, result_buffer; /* those of gradients, where the layouts differ */
    size_t lines;                    /* own: of columns at a time ... */
    int columns;                     /* ... in this buffer */
    int group_image, group_result;   /* own, of several groups: buffers for the parts of one */
};

struct cddpi_conv {
    struct cddpi_dnnl *dnnl;
    enum cddpi_factors factors;
    struct cddpi_conv_pass forward, data, weights;
    struct cddpi_nn_layout in, inner; /* the input's layout, and that in which it is read */
    struct cddpi_nn_layout out;       /* the output's */
    struct cddpi_nn_window window;    /* for our own products: channels last */
    bool keeps_input;                 /* the filters' gradient is made from the input itself ... */
    int inner_input;                  /* ... or else from this buffer, where inner is not in */
    int input_factor, grad_factor;    /* buffers, where factors are not float32 as it is */
    int weight_factor;                /* the plain weight, rounded */
    int parts;                        /* of the images, which the filters' gradient is made of */
    int lanes;                        /* how many of them are made at once */
    struct cddpi_primitive others[CDDPI_CONV_PARTS - 1]; /* as that of `weights`, for these */
    size_t image_bytes, result_bytes, made_bytes;        /* of a part */
    int part_made;               /* buffer: gradients of parts but the first; one if lanes is 1 */
    int plain_grad;              /* buffer, used when gradients are accumulated */
    int bias_partial, bias_sums; /* buffers: of the sum over the output's gradient */
    /* of the op, for oneDNN: src and any_weight have the factors' type, dst is the result */
    cddpi_md src, dst, plain_weight, any_weight, bias; /* bias: NULL: there is none */
    struct cddpi_dnnl_window steps;
};

/* Channels of a group. */
static inline int cddpi_conv_inputs(const struct cddpi_op *op)
{
    return op->in.channels / op->layer.groups;
}

static inline int cddpi_conv_outputs(const struct cddpi_op *op)
{
    return op->out.channels / op->layer.groups;
}

CDDP_CHECKED cddp_status cddpi_conv_plan(struct cddpi_plan *plan, int index, void **out);
void cddpi_conv_unplan(void *state);

/* Dimensions of filters for oneDNN: @p sizes has the groups, and of each of them @p outputs, @p
 * inputs, height and width; with one group oneDNN wants the last four. Returns how many there are,
 * of which the first is at @p out. */
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

/** How a gradient is made: what oneDNN has for the layouts as they are, unless that is a reference;
 *  else what is expected to be fastest of oneDNN's kernels for other layouts, with copies, and with
 *  channels added up to whole blocks, and of our own products. It follows from the shapes and from
 *  what oneDNN has here: every run chooses the same.
 *  @param as_is  What is wanted of the layouts as they are.
 *  @param pass   Its layouts and channels are set.
 *  @param out    NULL: our own products; else the caller releases it. */
CDDP_CHECKED cddp_status cddpi_conv_choose(const struct cddpi_conv *state, struct cddpi_plan *plan,
                                           int index, const struct cddpi_dnnl_request *as_is,
                                           struct cddpi_conv_pass *pass,
                                           struct cddpi_plan_part *part,
                                           dnnl_primitive_desc_t *out);
/** What a pass of @p op is expected to cost with the implementation @p name, for the plan. */
void cddpi_conv_cost(const struct cddpi_plan *plan, const struct cddpi_op *op, const char *name,
                     const struct cddpi_conv_pass *pass, struct cddpi_plan_part *part);

/* conv2d_columns.c: images are channels last, and filters outputs x height x width x inputs, where
 * inputs are those of a group. */

/** Memory for the columns of a pass. */
CDDP_CHECKED cddp_status cddpi_conv_columns_plan(struct cddpi_plan *plan, int index,
                                                 const struct cddpi_conv *state,
                                                 enum cddpi_lifetime lifetime,
                                                 struct cddpi_conv_pass *pass);
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
