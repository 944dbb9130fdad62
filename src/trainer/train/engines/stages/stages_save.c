/* stages_save.c - brings a pipeline run's checkpoint to rank 0, which writes it: tensor by tensor
 * as the file is written, or as the copy is made that a thread writes (train.checkpoint_async).
 * Without such a copy, rank 0 never holds more than one tensor of another stage. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "train/checkpoint.h"
#include "train/engines/stages/stages_state.h"

#include <string.h>

/* A request of rank 0 to another stage. */
enum { ASK_END, ASK_TENSOR, ASK_INFINITE };

struct stages_save_request {
    int32_t kind;
    int32_t file;   /* enum cddpi_stages_file */
    uint64_t index; /* of a tensor in the stage's list */
};

/* The first NaN or Inf in a stage's model. */
struct infinite {
    uint64_t index; /* of a tensor in the stage's list; the list's count: none was found */
    uint64_t element;
    float value;
    int32_t unused;
};

static cddp_status ask_stage(const struct cddpi_stages *stages, int stage, int kind,
                             enum cddpi_stages_file file, size_t index)
{
    struct stages_save_request request = {kind, file, index};

    return cddp_send(stages->group, &request, sizeof request, CDDP_U8, stage, NULL);
}

static cddp_status fetch_tensor(const struct cddpi_stages *stages, int stage,
                                enum cddpi_stages_file file, size_t index, void *out)
{
    size_t bytes = cddpi_stages_bytes_of(&stages->lists[file][stage].tensors[index]);

    if (bytes == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(ask_stage(stages, stage, ASK_TENSOR, file, index));
    return cddp_recv(stages->group, out, bytes, CDDP_U8, stage, NULL);
}

/* --- rank 0 --- */

/* Update the addresses of rank 0's own tensors: they have moved since the lists were made, and the
 * optimizer's are allocated for each checkpoint. */
cddp_status cddpi_stages_refresh_file(struct cddpi_trainer *trainer, enum cddpi_stages_file file)
{
    struct cddpi_stages_order *order = &cddpi_stages_of(trainer)->order[file];
    struct cddpi_stage_list own = {.count = 0};
    cddp_status status = cddpi_stages_list_own(trainer, file, &own);

    for (size_t i = 0; status == CDDP_OK && i < order->count; i++) {
        if (order->places[i].stage == 0 && !cddpi_stages_is_steps(&order->tensors[i])) {
            order->tensors[i].data = own.tensors[order->places[i].index].data;
        }
    }
    cddpi_stages_release_list(&own);
    return status;
}

cddp_status cddpi_stages_refresh(struct cddpi_trainer *trainer)
{
    CDDPI_TRY(cddpi_stages_refresh_file(trainer, CDDPI_STAGES_MODEL_FILE));
    return cddpi_stages_refresh_file(trainer, CDDPI_STAGES_OPTIMIZER_FILE);
}

static cddp_param *copy_tensors(const struct cddpi_stages_order *order, size_t *out_count)
{
    cddp_param *all = cddpi_zalloc_array(order->count + 1, sizeof *all);

    if (all != NULL && order->count > 0) {
        memcpy(all, order->tensors, order->count * sizeof *all);
    }
    *out_count = order->count;
    return all;
}

cddp_status cddpi_stages_list_tensors(struct cddpi_trainer *trainer,
                                      struct cddpi_snapshot_params *out)
{
    const struct cddpi_stages_order *order = cddpi_stages_of(trainer)->order;

    CDDPI_TRY(cddpi_stages_refresh(trainer));
    out->model = copy_tensors(&order[CDDPI_STAGES_MODEL_FILE], &out->model_count);
    out->optimizer = copy_tensors(&order[CDDPI_STAGES_OPTIMIZER_FILE], &out->optimizer_count);
    if (out->model == NULL || out->optimizer == NULL) {
        cddpi_checkpoint_release(out);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory");
    }
    return CDDP_OK;
}

/* Add the update counts in tensor @p index of stage @p stage to the tensor of all. */
static cddp_status join_stage(const struct cddpi_trainer *trainer, int stage, size_t index)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    const cddp_param *tensor = &stages->lists[CDDPI_STAGES_OPTIMIZER_FILE][stage].tensors[index];
    int64_t *numbers;
    cddp_status status;

    if (stage == 0) { /* on this rank; counters do not move */
        cddpi_stages_move_steps(trainer, 0, tensor->data, true);
        return CDDP_OK;
    }
    numbers = cddpi_zalloc_array(cddpi_stages_bytes_of(tensor) + 1, 1);
    CDDPI_TRY_MEMORY(numbers != NULL, "checkpoint: no memory");
    status = fetch_tensor(stages, stage, CDDPI_STAGES_OPTIMIZER_FILE, index, numbers);
    if (status == CDDP_OK) {
        cddpi_stages_move_steps(trainer, stage, numbers, true);
    }
    cddpi_free(numbers);
    return status;
}

/* Join all stages' update counts in one tensor. */
static cddp_status join_steps(struct cddpi_trainer *trainer)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);

    for (int s = stages->count - 1; s >= 0; s--) {
        const struct cddpi_stage_list *list = &stages->lists[CDDPI_STAGES_OPTIMIZER_FILE][s];

        for (size_t i = 0; i < list->count; i++) {
            if (cddpi_stages_is_steps(&list->tensors[i])) {
                CDDPI_TRY(join_stage(trainer, s, i));
            }
        }
    }
    return CDDP_OK;
}

/* Ask each stage to check its own parameters. */
static cddp_status check_finite(const struct cddpi_stages *stages)
{
    for (int s = 1; s < stages->count; s++) {
        const struct cddpi_stage_list *list = &stages->lists[CDDPI_STAGES_MODEL_FILE][s];
        struct infinite found = {.index = list->count};

        CDDPI_TRY(ask_stage(stages, s, ASK_INFINITE, CDDPI_STAGES_MODEL_FILE, 0));
        CDDPI_TRY(cddp_recv(stages->group, &found, sizeof found, CDDP_U8, s, NULL));
        if (found.index < list->count) {
            return cddpi_fail_infinite(&list->tensors[found.index], found.element, found.value);
        }
    }
    return CDDP_OK;
}

/* Fetch a tensor of another stage: only these have no data here. */
static cddp_status fetch_placed(void *context, size_t index, void *out)
{
    const struct cddpi_stages_written *written = context;
    const struct cddpi_stages_place *place = &written->stages->order[written->file].places[index];

    return fetch_tensor(written->stages, place->stage, written->file, place->index, out);
}

/* Check that all parameters are finite, and fetch all update counts. Meanwhile, the other stages
 * are in cddpi_stages_end_save(). */
cddp_status cddpi_stages_prepare_save(struct cddpi_trainer *trainer,
                                      struct cddpi_snapshot_source *out)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);

    CDDPI_TRY(check_finite(stages));
    CDDPI_TRY(join_steps(trainer));
    out->fetch = fetch_placed;
    for (int file = 0; file < CDDPI_STAGES_FILES; file++) {
        stages->written[file] = (struct cddpi_stages_written){stages, (enum cddpi_stages_file)file};
        out->contexts[file] = &stages->written[file];
    }
    return CDDP_OK;
}

/* --- the others --- */

static cddp_status tell_infinite(const struct cddpi_trainer *trainer,
                                 const struct cddpi_stage_list *own)
{
    struct infinite found = {.index = own->count};

    for (size_t i = 0; found.index == own->count && i < own->count; i++) {
        size_t element = cddpi_find_infinite(&own->tensors[i]);

        if (element < cddpi_elements(own->tensors[i].dims, own->tensors[i].shape)) {
            found = (struct infinite){i, element, ((const float *)own->tensors[i].data)[element],
                                      0};
        }
    }
    return cddp_send(cddpi_stages_of(trainer)->group, &found, sizeof found, CDDP_U8, 0, NULL);
}

static cddp_status serve_requests(const struct cddpi_trainer *trainer,
                                  const struct cddpi_stage_list *own)
{
    cddp_group *group = cddpi_stages_of(trainer)->group;
    struct stages_save_request request = {.kind = ASK_TENSOR};

    while (request.kind != ASK_END) {
        CDDPI_TRY(cddp_recv(group, &request, sizeof request, CDDP_U8, 0, NULL));
        if (request.kind == ASK_INFINITE) {
            CDDPI_TRY(tell_infinite(trainer, &own[CDDPI_STAGES_MODEL_FILE]));
        }
        if (request.kind == ASK_TENSOR) {
            const cddp_param *tensor = &own[request.file].tensors[request.index];

            CDDPI_TRY(
                cddp_send(group, tensor->data, cddpi_stages_bytes_of(tensor), CDDP_U8, 0, NULL));
        }
    }
    return CDDP_OK;
}

static cddp_status serve_own(struct cddpi_trainer *trainer)
{
    struct cddpi_stage_list own[CDDPI_STAGES_FILES] = {{.count = 0}, {.count = 0}};
    cddp_status status;

    for (int file = 0; file < CDDPI_STAGES_FILES; file++) {
        CDDPI_TRY_GOTO(end, status,
                       cddpi_stages_list_own(trainer, (enum cddpi_stages_file)file, &own[file]));
    }
    status = serve_requests(trainer, own);
end:
    for (int file = 0; file < CDDPI_STAGES_FILES; file++) {
        cddpi_stages_release_list(&own[file]);
    }
    return status;
}

cddp_status cddpi_stages_end_save(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);

    if (trainer->replicas.rank != 0) {
        return CDDP_OK;
    }
    if (stages->stage > 0) {
        return serve_own(trainer);
    }
    for (int s = 1; s < stages->count; s++) {
        CDDPI_TRY(ask_stage(stages, s, ASK_END, CDDPI_STAGES_MODEL_FILE, 0));
    }
    return CDDP_OK;
}
