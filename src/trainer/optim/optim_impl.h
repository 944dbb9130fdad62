/* optim_impl.h - what the optimizers of src/trainer/optim share. */
#ifndef CDDPI_OPTIM_IMPL_H
#define CDDPI_OPTIM_IMPL_H

#include "kernels/cpu/cpu_optim.h"
#include "optim/optim.h"

/* A trainable parameter, or the span of one that this rank updates. */
struct cddpi_optim_slot {
    size_t index; /* of the parameter among those given to create */
    size_t first; /* the span's first element in the parameter */
    float *data;
    size_t count;
    bool decays;
    float *moments[CDDPI_OPTIM_MOMENTS]; /* sgd: momentum; adamw: mean and mean square */
    const int64_t *steps;                /* adamw: updates of this parameter so far */
};

/* A trainable parameter, whole. */
struct cddpi_optim_trainable {
    size_t index;
    size_t count;
    size_t offset; /* of its elements in each moment of `full_state` */
};

struct cddpi_optim;

/* Where updates keep the state: in the CPU's tensors, or also on a device. */
struct cddpi_optim_placement {
    /* Copy the device's state to the CPU's tensors, or back. */
    cddp_status (*fetch)(struct cddpi_optim *optim);
    cddp_status (*send)(struct cddpi_optim *optim);
    void (*leave)(struct cddpi_optim *optim); /* release what is on the device; from then on, the
                                                 CPU's tensors are used */
};

extern const struct cddpi_optim_placement cddpi_optim_on_cpu;

struct cddpi_optim {
    struct cddpi_optim_spec spec;
    const struct cddpi_optim_placement *placement;
    struct cddpi_optim_slot *slots;
    size_t slot_count;
    struct cddpi_optim_trainable *trainable; /* parameters that are not frozen */
    size_t trainable_count;
    int64_t *step;  /* updates so far; then, for adamw, one for each parameter. Part of the state */
    float *moments; /* one block for all moments, initially zero; on a device, its copy in CPU
                       memory */
    size_t moment_elements;            /* in the block */
    struct cddpi_optim_device *device; /* its state on a device; NULL: it is on the CPU */
    cddp_param *tensors;               /* their names are allocated */
    size_t tensor_count;
    const struct cddpi_optim_kernels *kernels;

    /* sharded only */
    cddp_group *group; /* NULL: not sharded */
    cddp_ddp *ddp;
    /* one moment after the other, each `full_elements` long; NULL: not allocated */
    float *full_state;
    size_t full_elements;
};

/** cddpi_optim_moments_of() this optimizer. */
size_t cddpi_optim_moment_count(const struct cddpi_optim *optim);

/* One kind of optimizer. */
struct cddpi_optim_ops {
    size_t moment_count;
    const char *moment_names[CDDPI_OPTIM_MOMENTS];
    bool counts_steps; /* counts updates of each parameter, because the update depends on it */
    void (*update)(const struct cddpi_optim *optim, const struct cddpi_optim_slot *slot,
                   const float *grad, double lr, double grad_scale);
};

void cddpi_sgd_update(const struct cddpi_optim *optim, const struct cddpi_optim_slot *slot,
                      const float *grad, double lr, double grad_scale);
void cddpi_adamw_update(const struct cddpi_optim *optim, const struct cddpi_optim_slot *slot,
                        const float *grad, double lr, double grad_scale);

/** @p base to the power @p exponent >= 0 by squaring. The bits are the same on every machine; pow()
 *  does not guarantee that. */
double cddpi_power(double base, int64_t exponent);

#endif
