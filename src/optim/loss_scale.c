/* loss_scale.c - owns the rules by which a loss scale grows and falls. */
#include "optim/loss_scale.h"

#include <math.h>

void cddpi_loss_scale_init(struct cddpi_loss_scale *out)
{
    *out = (struct cddpi_loss_scale){
        .scale = 65536.0f, .growth = 2.0, .backoff = 0.5, .interval = 2000};
}

bool cddpi_loss_scale_allows(const struct cddpi_loss_scale *scale, double norm,
                             double *out_grad_scale)
{
    if (!isfinite(norm)) {
        return false;
    }
    *out_grad_scale = 1.0 / (double)scale->scale;
    return true;
}

void cddpi_loss_scale_update(struct cddpi_loss_scale *scale, bool allowed)
{
    if (!allowed) {
        scale->scale = (float)((double)scale->scale * scale->backoff);
        scale->good_steps = 0;
        scale->skipped++;
    } else if (++scale->good_steps >= scale->interval) {
        float grown = (float)((double)scale->scale * scale->growth);

        scale->scale = isfinite(grown) ? grown : scale->scale;
        scale->good_steps = 0;
    }
}

const cddp_tensor *cddpi_loss_scale_tensors(struct cddpi_loss_scale *scale, size_t *out_count)
{
    scale->state[0] = (cddp_tensor){.name = "loss_scale", .type = CDDP_F32, .data = &scale->scale};
    scale->state[1] = (cddp_tensor){
        .name = "loss_scale.good_steps", .type = CDDP_I64, .data = &scale->good_steps};
    scale->state[2] = (cddp_tensor){
        .name = "loss_scale.skipped", .type = CDDP_I64, .data = &scale->skipped};
    *out_count = sizeof scale->state / sizeof scale->state[0];
    return scale->state;
}
