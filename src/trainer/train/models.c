/* models.c - owns what is done to each of a rank's models: one, or the chunks of its stage. */
#include "train/models.h"

#include "base/alloc.h"
#include "base/error.h"
#include "ddp/copies.h"
#include "nn/weights/weights.h"
#include "train/device/host_copy.h"
#include "train/engines/placed/placed_engine.h"
#include "train/engines/stages/stages.h"

#include <string.h>

cddp_status cddpi_trainer_forward(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                                  bool training, struct cddpi_loss_result *out)
{
    return trainer->placed != NULL
               ? cddpi_trainer_placed_forward(trainer->placed, batch, training, out)
               : cddpi_model_forward(trainer->model, batch, training, out);
}

cddp_status cddpi_trainer_backward(struct cddpi_trainer *trainer, double scale, bool accumulate,
                                   cddpi_grad_ready_fn ready, void *context)
{
    return trainer->placed != NULL
               ? cddpi_trainer_placed_backward(trainer->placed, scale, accumulate, ready, context)
               : cddpi_model_backward(trainer->model, scale, accumulate, ready, context);
}

double cddpi_trainer_work(const struct cddpi_trainer *trainer)
{
    double work = 0;

    for (int m = 0; m < trainer->model_count; m++) {
        work += cddpi_model_work(trainer->models[m].model);
    }
    return work;
}

void cddpi_trainer_bind_grads(struct cddpi_trainer *trainer)
{
    if (trainer->placed != NULL) {
        cddpi_trainer_placed_bind_grads(trainer->placed, trainer->grads);
        return;
    }
    for (int m = 0; m < trainer->model_count; m++) {
        cddpi_model_bind_grads(trainer->models[m].model, trainer->grads + trainer->models[m].first);
    }
}

static cddp_status param_wait(void *context, size_t index)
{
    const struct cddpi_trainer_model *own = context;

    return cddp_ddp_param_wait(own->trainer->ddp, own->first + index);
}

static cddp_status any_param_wait(void *context, size_t index)
{
    return cddp_ddp_param_wait(context, index);
}

cddp_status cddpi_trainer_bind_params(struct cddpi_trainer *trainer)
{
    void **data = cddpi_zalloc_array(2 * trainer->param_count + 1, sizeof *data);
    void **copies = data != NULL ? data + trainer->param_count : NULL;

    if (data == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory");
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        data[i] = cddp_ddp_param(trainer->ddp, i);
        copies[i] = cddpi_ddp_param_copy(trainer->ddp, i);
    }
    if (trainer->placed != NULL) { /* on processors, where there are no copies */
        cddpi_trainer_placed_bind_params(trainer->placed, data, any_param_wait, trainer->ddp);
    }
    for (int m = 0; trainer->placed == NULL && m < trainer->model_count; m++) {
        struct cddpi_trainer_model *own = &trainer->models[m];

        cddpi_model_bind_params(own->model, data + own->first);
        cddpi_model_bind_copies(own->model, copies + own->first);
        cddpi_model_on_param(own->model, param_wait, own);
    }
    cddpi_free(data);
    cddpi_stages_params_moved(trainer);
    return CDDP_OK;
}

/* The model that has parameter @p index of the rank's. */
static const struct cddpi_trainer_model *owner_of(const struct cddpi_trainer *trainer, size_t index)
{
    int m = trainer->model_count - 1;

    while (trainer->models[m].first > index) {
        m--;
    }
    return &trainer->models[m];
}

bool cddpi_trainer_param_decays(const struct cddpi_trainer *trainer, size_t index)
{
    const struct cddpi_trainer_model *own;

    if (trainer->placed != NULL) {
        return cddpi_trainer_placed_param_decays(trainer->placed, index);
    }
    own = owner_of(trainer, index);
    return cddpi_model_param_decays(own->model, index - own->first);
}

/* Those of a rank's chunks that other stages have, too (@p tied), or the others. */
static size_t add_ready(const struct cddpi_trainer *trainer, bool tied, uint32_t *order,
                        size_t done)
{
    for (int m = trainer->model_count - 1; m >= 0; m--) {
        const struct cddpi_trainer_model *own = &trainer->models[m];
        const uint32_t *inside = cddpi_model_ready_order(own->model);
        size_t count;

        cddpi_model_params(own->model, &count);
        for (size_t i = 0; i < count; i++) {
            size_t param = own->first + inside[i];

            if (cddpi_stages_is_tied(trainer, param) == tied) {
                order[done++] = (uint32_t)param;
            }
        }
    }
    return done;
}

/* The last chunk's come first; tied ones last, for they get their sum behind the pipeline, and
 * buckets start in order. */
uint32_t *cddpi_trainer_ready_order(const struct cddpi_trainer *trainer)
{
    uint32_t *order = cddpi_zalloc_array(trainer->param_count + 1, sizeof *order);

    if (order != NULL && trainer->placed != NULL) {
        for (size_t i = 0; i < trainer->param_count; i++) {
            order[i] = cddpi_trainer_placed_ready_order(trainer->placed)[i];
        }
    } else if (order != NULL) {
        add_ready(trainer, true, order, add_ready(trainer, false, order, 0));
    }
    return order;
}

static cddp_status read_weights(const struct cddpi_trainer *trainer, cddp_tensor *tensors,
                                size_t count)
{
    const char *path = trainer->config->model.weights;

    return trainer->heads > 0 ? cddpi_weights_load(path, trainer->heads, tensors, count)
                              : cddp_safetensors_load(path, tensors, count);
}

static cddp_status load_on_rank_0(struct cddpi_trainer *trainer)
{
    size_t count = cddpi_trainer_model_tensor_count(trainer);
    cddp_status status = cddpi_trainer_copy_to_host(trainer);
    cddp_tensor *tensors = status == CDDP_OK ? cddpi_trainer_model_tensors(trainer) : NULL;

    if (status != CDDP_OK) {
        return status;
    }
    if (tensors == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory");
    }
    status = trainer->stages != NULL
                 ? cddpi_stages_open_weights(trainer, trainer->config->model.weights)
                 : read_weights(trainer, tensors, count);
    cddpi_free(tensors);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "model.weights");
    }
    return cddpi_trainer_copy_to_device(trainer);
}

cddp_status cddpi_trainer_load_weights(struct cddpi_trainer *trainer)
{
    cddp_status status = trainer->rank == 0 ? load_on_rank_0(trainer) : CDDP_OK;

    return status == CDDP_OK && trainer->stages != NULL
               ? cddpi_stages_scatter(trainer, CDDPI_STAGES_MODEL)
               : status;
}
