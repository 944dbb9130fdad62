/* cpu_optim.h - fused optimizer updates, with one pass over memory for each tensor, and sums of
 * squares. The best instruction set of this CPU is chosen at run time. All choices give the same
 * bits: each element's arithmetic is written out, nothing is contracted to FMA, and a block has one
 * order of summation. Any thread. */
#ifndef CDDPI_KERNELS_CPU_OPTIM_H
#define CDDPI_KERNELS_CPU_OPTIM_H

#include "base/exact_sum.h"

#include <stdbool.h>
#include <stddef.h>

/* Squares are added up in float64 in blocks of this many elements, from a parameter's first on, and
 * the blocks' sums without rounding. So a parameter that is cut between blocks has the same sum. */
enum { CDDPI_OPTIM_BLOCK = 16 };

struct cddpi_sgd_step {
    float lr;
    float momentum; /* unused without a momentum buffer */
    float weight_decay;
    float grad_scale;
    bool nesterov;
};

struct cddpi_adamw_step {
    float keep;        /* 1 - lr x weight decay */
    float beta1_left;  /* 1 - beta1 */
    float beta2;       /* its complement is: */
    float beta2_left;  /* 1 - beta2 */
    float step_size;   /* lr / (1 - beta1^step) */
    float correction2; /* sqrt(1 - beta2^step) */
    float epsilon;
    float grad_scale;
};

struct cddpi_optim_kernels {
    const char *name; /* "generic", "avx2", "avx512" */
    /* p, g and m have @p n elements and do not overlap; m NULL: no momentum. */
    void (*sgd)(float *p, const float *g, float *m, size_t n, const struct cddpi_sgd_step *step);
    void (*adamw)(float *p, const float *g, float *m, float *v, size_t n,
                  const struct cddpi_adamw_step *step);
    /* Add the squares of @p x, which begins a block. */
    void (*add_squares)(const float *x, size_t n, struct cddpi_exact_sum *sum);
};

/** The fastest table that this CPU can run. */
const struct cddpi_optim_kernels *cddpi_optim_kernels(void);

/** All tables that this CPU can run, slowest first; for tests and benchmarks. Returns their number,
 *  at most 3. */
size_t cddpi_optim_kernels_all(const struct cddpi_optim_kernels *out[3]);

#endif
