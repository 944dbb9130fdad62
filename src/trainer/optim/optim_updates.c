/* optim_updates.c - owns the rules by which optimizers update a parameter. */
#include "optim/optim_impl.h"

#include <math.h>

/* Stochastic gradient descent, as in torch.optim.SGD with dampening 0.
 *
 *     d = g + weight_decay p;  b = momentum b + d;  p -= lr (nesterov ? d + momentum b : b)
 *
 * PyTorch's first step sets b = d. That gives the same result, because b is initially zero. */
void cddpi_sgd_update(const struct cddpi_optim *optim, const struct cddpi_optim_slot *slot,
                      const float *grad, double lr, double grad_scale)
{
    const struct cddpi_optim_spec *spec = &optim->spec;
    const struct cddpi_sgd_step step = {
        .lr = (float)lr,
        .momentum = (float)spec->momentum,
        .weight_decay = slot->decays ? (float)spec->weight_decay : 0.0f,
        .grad_scale = (float)grad_scale,
        .nesterov = spec->nesterov,
    };

    optim->kernels->sgd(slot->data, grad, slot->moments[0], slot->count, &step);
}

/* Adam with decoupled weight decay, as in torch.optim.AdamW.
 *
 *     p *= 1 - lr weight_decay
 *     m += (g - m)(1 - beta1);  v = beta2 v + (1 - beta2) g g
 *     p -= lr / (1 - beta1^t)  m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
 *
 * t counts the updates of each parameter separately, as in PyTorch: a parameter without a gradient
 * in the first steps starts with its own step 1. */
void cddpi_adamw_update(const struct cddpi_optim *optim, const struct cddpi_optim_slot *slot,
                        const float *grad, double lr, double grad_scale)
{
    const struct cddpi_optim_spec *spec = &optim->spec;
    int64_t t = *slot->steps;
    const struct cddpi_adamw_step step = {
        .keep = slot->decays ? (float)(1.0 - lr * spec->weight_decay) : 1.0f,
        .beta1_left = (float)(1.0 - spec->beta1),
        .beta2 = (float)spec->beta2,
        .beta2_left = (float)(1.0 - spec->beta2),
        .step_size = (float)(lr / (1.0 - cddpi_power(spec->beta1, t))),
        .correction2 = (float)sqrt(1.0 - cddpi_power(spec->beta2, t)),
        .epsilon = (float)spec->epsilon,
        .grad_scale = (float)grad_scale,
    };

    optim->kernels->adamw(slot->data, grad, slot->moments[0], slot->moments[1], slot->count, &step);
}
