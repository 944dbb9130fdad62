/* loss_scale.c - owns the rules by which a loss scale grows and falls. */
#include "optim/loss_scale.h"

#include <math.h>

void cddpi_loss_scale_init(struct cddpi_loss_scale *out)
{
    *out = (struct cddpi_loss_scale){
        .scale = 65536.0f,
        .growth = 2.0,
        .backoff = 0.5,
        .least = 1.0f,
        .interval = 2000,
        .patience = 50,
    };
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

static void shrink(struct cddpi_loss_scale *scale)
{
    float shrunk = (float)((double)scale->scale * scale->backoff);

    if (scale->scale > scale->least) {
        scale->scale = shrunk > scale->least ? shrunk : scale->least;
    }
    scale->good_steps = (scale->good_steps < 0 ? scale->good_steps : 0) - 1;
    scale->skipped++;
}

void cddpi_loss_scale_update(struct cddpi_loss_scale *scale, bool allowed)
{
    if (!allowed) {
        shrink(scale);
        return;
    }
    scale->good_steps = (scale->good_steps < 0 ? 0 : scale->good_steps) + 1;
    if (scale->good_steps >= scale->interval) {
        float grown = (float)((double)scale->scale * scale->growth);

        scale->scale = isfinite(grown) ? grown : scale->scale;
        scale->good_steps = 0;
    }
}

bool cddpi_loss_scale_helps(const struct cddpi_loss_scale *scale)
{
    return scale->scale > scale->least || scale->good_steps > -scale->patience;
}

const cddp_param *cddpi_loss_scale_tensors(struct cddpi_loss_scale *scale, size_t *out_count)
{
    scale->state[0] = (cddp_param){.name = "loss_scale", .type = CDDP_F32, .data = &scale->scale};
    scale->state[1] = (cddp_param){
        .name = "loss_scale.good_steps", .type = CDDP_I64, .data = &scale->good_steps};
    scale->state[2] = (cddp_param){
        .name = "loss_scale.skipped", .type = CDDP_I64, .data = &scale->skipped};
    *out_count = sizeof scale->state / sizeof scale->state[0];
    return scale->state;
}
