/* conv2d.h - what the plan of a convolution holds: made by conv2d_plan.c, run by conv2d.c. */
#ifndef CDDPI_NN_OPS_CONV2D_H
#define CDDPI_NN_OPS_CONV2D_H

#include "kernels/cpu/nn_layout.h"
#include "nn/dnnl.h"

/* A weight in one of oneDNN's layouts: where it lies, and the copy from or to the plain one. */
struct cddpi_packed {
    struct cddpi_primitive copy; /* not made: oneDNN takes the plain one */
    int buffer;
};

/* What is multiplied: float32, float32 that bf16 can hold, or bf16. */
enum cddpi_factors { CDDPI_FACTORS_F32, CDDPI_FACTORS_ROUNDED, CDDPI_FACTORS_BF16 };

struct cddpi_conv {
    struct cddpi_dnnl *dnnl;
    enum cddpi_factors factors;
    struct cddpi_primitive forward, data, weights;
    struct cddpi_packed weight, data_weight, grad;
    struct cddpi_nn_layout in, inner; /* the input's layout, and that in which it is read */
    int inner_input, inner_grad;      /* buffers, where those differ */
    int input_factor, grad_factor;    /* buffers, where factors are not float32 as it is */
    int weight_factor;                /* the plain weight, rounded */
    int plain_grad, bias_grad;        /* buffers, used when gradients are accumulated */
    int dst_block;
    /* of the op, for oneDNN: src and any_weight have the factors' type, dst is the result */
    cddpi_md src, dst, plain_weight, any_weight, bias; /* bias: NULL: there is none */
    struct cddpi_dnnl_window window;
};

CDDP_CHECKED cddp_status cddpi_conv_plan(struct cddpi_plan *plan, int index, void **out);
void cddpi_conv_unplan(void *state);

#endif
