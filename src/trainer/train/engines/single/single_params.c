/* single_params.c - makes one list of the parameters of a rank's model, or of several model parts
 * one after the other. */
#include "train/engines/single/single.h"

void cddpi_single_bind_grads(struct cddpi_trainer *trainer)
{
    for (int m = 0; m < trainer->model_count; m++) {
        cddpi_model_bind_grads(trainer->models[m].model, trainer->grads + trainer->models[m].first);
    }
}

static cddp_status param_wait(void *context, size_t index)
{
    const struct cddpi_trainer_model *own = context;

    return cddp_ddp_param_wait(own->trainer->ddp, own->first + index);
}

void cddpi_single_bind_params(struct cddpi_trainer *trainer, void *const *data, void *const *copies)
{
    for (int m = 0; m < trainer->model_count; m++) {
        struct cddpi_trainer_model *own = &trainer->models[m];

        cddpi_model_bind_params(own->model, data + own->first);
        cddpi_model_bind_copies(own->model, copies + own->first);
        cddpi_model_on_param(own->model, param_wait, own);
    }
}

bool cddpi_single_param_decays(const struct cddpi_trainer *trainer, size_t index)
{
    int m = trainer->model_count - 1;

    while (trainer->models[m].first > index) {
        m--;
    }
    return cddpi_model_param_decays(trainer->models[m].model, index - trainer->models[m].first);
}

/* The last model's parameters come first. */
void cddpi_single_ready_order(const struct cddpi_trainer *trainer, uint32_t *out)
{
    for (int m = trainer->model_count - 1; m >= 0; m--) {
        const struct cddpi_trainer_model *own = &trainer->models[m];
        const uint32_t *inside = cddpi_model_ready_order(own->model);
        size_t count;

        cddpi_model_params(own->model, &count);
        for (size_t i = 0; i < count; i++) {
            *out++ = (uint32_t)(own->first + inside[i]);
        }
    }
}
