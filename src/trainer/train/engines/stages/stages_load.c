/* stages_load.c - loads a checkpoint, or weights, into a pipeline run: rank 0 opens the files and
 * copies its own tensors; then it sends the other stages theirs, one after the other, from the
 * mapped file. */
#include "base/alloc.h"
#include "base/error.h"
#include "checkpoint/snapshot.h"
#include "nn/weights/weights.h"
#include "train/device/host_copy.h"
#include "train/engines/stages/stages_state.h"

struct cddpi_stages_source {
    cddp_safetensors *files[CDDPI_STAGES_FILES];
    struct cddpi_weights *weights; /* of a GPT-2 in any format; used instead of the model file */
};

void cddpi_stages_close_source(struct cddpi_stages *stages)
{
    struct cddpi_stages_source *source = stages->source;

    if (source != NULL) {
        for (int file = 0; file < CDDPI_STAGES_FILES; file++) {
            cddp_safetensors_close(source->files[file]);
        }
        cddpi_weights_close(source->weights);
        cddpi_free(source);
    }
    stages->source = NULL;
}

static cddp_status create_source(struct cddpi_stages *stages)
{
    cddpi_stages_close_source(stages);
    stages->source = cddpi_zalloc(sizeof *stages->source);
    return stages->source != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %zu bytes",
                            sizeof *stages->source);
}

static cddp_status fill_tensor(const struct cddpi_stages_source *source, int file,
                               const cddp_param *tensor)
{
    return source->weights != NULL ? cddpi_weights_fill(source->weights, tensor)
                                   : cddpi_safetensors_copy(source->files[file], tensor, 1);
}

/* Fill rank 0's own tensors of an ordered list. */
static cddp_status fill_own(const struct cddpi_stages_source *source, int file,
                            const cddp_param *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].data != NULL) {
            CDDPI_TRY(fill_tensor(source, file, &tensors[i]));
        }
    }
    return CDDP_OK;
}

/* Copy rank 0's part of the tensor of update counts. */
static void take_own_steps(const struct cddpi_trainer *trainer)
{
    const struct cddpi_stage_list *own =
        cddpi_stages_of(trainer)->lists[CDDPI_STAGES_OPTIMIZER_FILE];

    for (size_t i = 0; i < own->count; i++) {
        if (cddpi_stages_is_steps(&own->tensors[i])) {
            cddpi_stages_move_steps(trainer, 0, own->tensors[i].data, false);
        }
    }
}

cddp_status cddpi_stages_load(struct cddpi_trainer *trainer, const char *path)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    const struct cddpi_stages_order *model = &stages->order[CDDPI_STAGES_MODEL_FILE];
    const struct cddpi_stages_order *optimizer = &stages->order[CDDPI_STAGES_OPTIMIZER_FILE];
    const struct cddpi_snapshot_params into = {model->tensors, model->count, optimizer->tensors,
                                               optimizer->count};

    CDDPI_TRY(cddpi_stages_refresh(trainer));
    CDDPI_TRY(create_source(stages));
    CDDPI_TRY(cddpi_snapshot_open(path, &into, stages->source->files));
    CDDPI_TRY(fill_own(stages->source, CDDPI_STAGES_MODEL_FILE, into.model, into.model_count));
    CDDPI_TRY(fill_own(stages->source, CDDPI_STAGES_OPTIMIZER_FILE, into.optimizer,
                       into.optimizer_count));
    take_own_steps(trainer);
    return CDDP_OK;
}

static cddp_status open_weights(struct cddpi_trainer *trainer)
{
    const char *path = trainer->config->model.weights;
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    const struct cddpi_stages_order *order = &stages->order[CDDPI_STAGES_MODEL_FILE];

    CDDPI_TRY(cddpi_stages_refresh_file(trainer, CDDPI_STAGES_MODEL_FILE));
    CDDPI_TRY(create_source(stages));
    if (trainer->models.heads > 0) {
        CDDPI_TRY(cddpi_weights_open(path, &stages->source->weights));
        CDDPI_TRY(cddpi_weights_match(stages->source->weights, path, trainer->models.heads,
                                      order->tensors, order->count));
    } else {
        cddp_safetensors **file = &stages->source->files[CDDPI_STAGES_MODEL_FILE];

        CDDPI_TRY(cddp_safetensors_open(path, file));
        CDDPI_TRY(cddpi_safetensors_match(*file, path, order->tensors, order->count));
    }
    return fill_own(stages->source, CDDPI_STAGES_MODEL_FILE, order->tensors, order->count);
}

static cddp_status send_tensor(const struct cddpi_trainer *trainer, int file, int stage,
                               cddp_param tensor)
{
    size_t bytes = cddpi_stages_bytes_of(&tensor);
    cddp_status status;

    tensor.data = cddpi_alloc_aligned(bytes + 1);
    CDDPI_TRY_MEMORY(tensor.data != NULL, "pipeline: no memory for %s of stage %d", tensor.name,
                     stage);
    if (file == CDDPI_STAGES_OPTIMIZER_FILE && cddpi_stages_is_steps(&tensor)) {
        cddpi_stages_move_steps(trainer, stage, tensor.data, false);
        status = CDDP_OK;
    } else {
        status = fill_tensor(cddpi_stages_of(trainer)->source, file, &tensor);
    }
    if (status == CDDP_OK && bytes > 0) {
        status = cddp_send(cddpi_stages_of(trainer)->group, tensor.data, bytes, CDDP_U8, stage,
                           NULL);
    }
    cddpi_free(tensor.data);
    return status;
}

static cddp_status receive_list(struct cddpi_trainer *trainer, int file)
{
    struct cddpi_stage_list own = {.count = 0};
    cddp_status status = cddpi_stages_list_own(trainer, (enum cddpi_stages_file)file, &own);

    for (size_t i = 0; status == CDDP_OK && i < own.count; i++) {
        size_t bytes = cddpi_stages_bytes_of(&own.tensors[i]);

        if (bytes > 0) {
            status = cddp_recv(cddpi_stages_of(trainer)->group, own.tensors[i].data, bytes, CDDP_U8,
                               0, NULL);
        }
    }
    cddpi_stages_release_list(&own);
    return status;
}

/* Send the first replica's other stages their parts of the first @p files files. */
static cddp_status scatter_files(struct cddpi_trainer *trainer, int files)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    cddp_status status = CDDP_OK;

    if (trainer->replicas.rank != 0) {
        return CDDP_OK;
    }
    for (int file = 0; status == CDDP_OK && stages->stage > 0 && file < files; file++) {
        status = receive_list(trainer, file);
    }
    for (int file = 0; stages->stage == 0 && file < files; file++) {
        for (int s = 1; s < stages->count; s++) {
            const struct cddpi_stage_list *list = &stages->lists[file][s];

            for (size_t i = 0; status == CDDP_OK && i < list->count; i++) {
                status = send_tensor(trainer, file, s, list->tensors[i]);
            }
        }
    }
    cddpi_stages_close_source(stages);
    return status;
}

cddp_status cddpi_stages_load_weights(struct cddpi_trainer *trainer)
{
    cddp_status status = CDDP_OK;

    if (trainer->replicas.rank == 0) {
        CDDPI_TRY(cddpi_trainer_copy_to_host(trainer));
    }
    if (trainer->rank == 0) {
        status = open_weights(trainer);
    }
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "model.weights");
    }
    CDDPI_TRY(scatter_files(trainer, CDDPI_STAGES_OPTIMIZER_FILE));
    return trainer->replicas.rank == 0 ? cddpi_trainer_copy_to_device(trainer) : CDDP_OK;
}

cddp_status cddpi_stages_scatter(struct cddpi_trainer *trainer)
{
    if (trainer->replicas.rank == 0) {
        CDDPI_TRY(cddpi_optim_alloc_full_state(trainer->step.optim));
    }
    return scatter_files(trainer, CDDPI_STAGES_FILES);
}
