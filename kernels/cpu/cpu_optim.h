/* cpu_optim.h - fused updates of optimizers, one pass over memory for each tensor, and sums of
 * squares. The best instructions of this processor are chosen at run time; every choice gives the
 * same bits: each element's arithmetic is spelled out, nothing is contracted, and sums have a fixed
 * number of lanes. Any thread. */
#ifndef CDDPI_KERNELS_CPU_OPTIM_H
#define CDDPI_KERNELS_CPU_OPTIM_H

#include <stdbool.h>
#include <stddef.h>

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
    float beta2;       /* and what is left of 1: */
    float beta2_left;  /* 1 - beta2 */
    float step_size;   /* lr / (1 - beta1^step) */
    float correction2; /* sqrt(1 - beta2^step) */
    float epsilon;
    float grad_scale;
};

struct cddpi_optim_kernels {
    const char *name; /* "generic", "avx2", "avx512" */
    /* p, g and m are @p n elements that do not overlap; m NULL: no momentum. */
    void (*sgd)(float *p, const float *g, float *m, size_t n, const struct cddpi_sgd_step *step);
    void (*adamw)(float *p, const float *g, float *m, float *v, size_t n,
                  const struct cddpi_adamw_step *step);
    double (*square_sum)(const float *x, size_t n);
};

/** The fastest table that this processor can run. */
const struct cddpi_optim_kernels *cddpi_optim_kernels(void);

/** All tables that this processor can run, slowest first; for tests and benchmarks. Returns how
 * many there are, at most 3. */
size_t cddpi_optim_kernels_all(const struct cddpi_optim_kernels *out[3]);

#endif
