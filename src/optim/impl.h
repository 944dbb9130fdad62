/* impl.h - what the optimizers of src/optim share. */
#ifndef CDDPI_OPTIM_IMPL_H
#define CDDPI_OPTIM_IMPL_H

#include "kernels/cpu/optim.h"
#include "optim/optim.h"

enum { CDDPI_OPTIM_MOMENTS = 2 }; /* state tensors of a parameter's shape, at most */

/* A parameter that is not frozen. */
struct cddpi_optim_slot {
    size_t index; /* in what create was given */
    float *data;
    size_t count;
    bool decays;
    float *moments[CDDPI_OPTIM_MOMENTS]; /* sgd: momentum; adamw: mean and mean square */
    int64_t *steps;                      /* adamw: updates of this parameter so far */
};

struct cddpi_optim {
    struct cddpi_optim_spec spec;
    struct cddpi_optim_slot *slots;
    size_t slot_count;
    int64_t *step;  /* updates so far; then, for adamw, the slots' own. Part of the state */
    float *moments; /* one block for all, zeros at first */
    cddp_tensor *tensors;
    char **names; /* of the tensors, `tensor_count` */
    size_t tensor_count;
    const struct cddpi_optim_kernels *kernels;
};

/* One kind of optimizer. */
struct cddpi_optim_ops {
    size_t moment_count;
    const char *moment_names[CDDPI_OPTIM_MOMENTS];
    bool counts_steps; /* of each parameter, since the update depends on it */
    void (*update)(const struct cddpi_optim *optim, const struct cddpi_optim_slot *slot,
                   const float *grad, double lr, double grad_scale);
};

void cddpi_sgd_update(const struct cddpi_optim *optim, const struct cddpi_optim_slot *slot,
                      const float *grad, double lr, double grad_scale);
void cddpi_adamw_update(const struct cddpi_optim *optim, const struct cddpi_optim_slot *slot,
                        const float *grad, double lr, double grad_scale);

/** @p base to the power @p exponent >= 0 by squaring: the same bits on every machine, which pow()
 * does not promise. */
double cddpi_power(double base, int64_t exponent);

#endif
