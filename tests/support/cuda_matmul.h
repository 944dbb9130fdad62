/* cuda_matmul.h - one linear layer on a CUDA device and in float64: its outputs, the gradients of
 * its inputs and weights, and the allowed difference. */
#ifndef CDDP_TESTS_SUPPORT_CUDA_MATMUL_H
#define CDDP_TESTS_SUPPORT_CUDA_MATMUL_H

#include "fake_cuda/fake_cublaslt.h"
#include "support/cuda.h"

/* --- in float64 --- */

double *zeros(size_t count);

/* One layer's arrays, on the device and on the host, and the expected sums. */
struct layer {
    struct cddpi_cuda_linear shape;
    struct numbers x, weight, bias, y, aux;
    struct numbers dy, dx, dweight, dbias;
    double *sum; /* rows x outputs: x W^T (+ bias) */
};

void layer_make(struct layer *l, cddp_type type, const size_t *shape);
void layer_free(struct layer *l);
void find_sum(struct layer *l, bool bias);

/* The allowed error of float32 sums and, for 16-bit types, of the values that our own epilogue
 * rounds in between. */
double slack(const struct layer *l);

/* --- y --- */

void check_forward(struct layer *l, enum cddpi_cuda_epilogue epilogue, bool bias, bool aux);
void check_all_forward(void);

/* --- dx --- */

void check_all_inputs(void);

/* --- dweight, dbias --- */

void check_all_weights(bool replaces);

#endif
