/* sgd.c - owns stochastic gradient descent, as in torch.optim.SGD with dampening 0.
 *
 *     d = g + weight_decay p;  b = momentum b + d;  p -= lr (nesterov ? d + momentum b : b)
 *
 * PyTorch's first step sets b = d. That gives the same result, because b is initially zero. */
#include "optim/optim_impl.h"

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
