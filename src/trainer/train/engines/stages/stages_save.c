/* stages_save.c - brings a pipeline run's checkpoint to rank 0, which writes it: tensor by tensor
 * as the file is written, so that rank 0 never holds more than one tensor of another stage. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "train/checkpoint.h"
#include "train/engines/stages/stages_state.h"
#include "train/finite.h"

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

static size_t bytes_of(const cddp_tensor *tensor)
{
    return cddpi_elements(tensor->dims, tensor->shape) * cddp_type_bytes(tensor->type);
}

static cddp_status ask_stage(const struct cddpi_stages *stages, int stage, int kind,
                             enum cddpi_stages_file file, size_t index)
{
    struct stages_save_request request = {kind, file, index};

    return cddp_send(stages->group, &request, sizeof request, CDDP_U8, stage, NULL);
}

static cddp_status fetch_tensor(const struct cddpi_stages *stages, int stage,
                                enum cddpi_stages_file file, size_t index, void *out)
{
    size_t bytes = bytes_of(&stages->lists[file][stage].tensors[index]);
    cddp_status status = bytes > 0 ? ask_stage(stages, stage, ASK_TENSOR, file, index) : CDDP_OK;

    return status == CDDP_OK && bytes > 0
               ? cddp_recv(stages->group, out, bytes, CDDP_U8, stage, NULL)
               : status;
}

/* --- rank 0 --- */

/* Update the addresses of rank 0's own tensors: they have moved since the lists were made, and the
 * optimizer's are allocated for each checkpoint. */
static cddp_status refresh_own(struct cddpi_trainer *trainer, enum cddpi_stages_file file)
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
    CDDPI_TRY(refresh_own(trainer, CDDPI_STAGES_MODEL_FILE));
    return refresh_own(trainer, CDDPI_STAGES_OPTIMIZER_FILE);
}

static cddp_tensor *copy_tensors(const struct cddpi_stages_order *order, size_t *out_count)
{
    cddp_tensor *all = cddpi_zalloc_array(order->count + 1, sizeof *all);

    if (all != NULL && order->count > 0) {
        memcpy(all, order->tensors, order->count * sizeof *all);
    }
    *out_count = order->count;
    return all;
}

cddp_status cddpi_stages_list_tensors(struct cddpi_trainer *trainer, cddp_snapshot *out)
{
    const struct cddpi_stages_order *order = cddpi_stages_of(trainer)->order;

    CDDPI_TRY(cddpi_stages_refresh(trainer));
    *out = (cddp_snapshot)CDDP_SNAPSHOT_INIT;
    out->step = trainer->cursor.step;
    out->model = copy_tensors(&order[CDDPI_STAGES_MODEL_FILE], &out->model_count);
    out->optimizer = copy_tensors(&order[CDDPI_STAGES_OPTIMIZER_FILE], &out->optimizer_count);
    if (out->model == NULL || out->optimizer == NULL) {
        cddpi_checkpoint_release(out);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory");
    }
    return CDDP_OK;
}

/* Join all stages' update counts in one tensor. */
static cddp_status join_steps(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    cddp_status status = CDDP_OK;

    for (int s = stages->count - 1; status == CDDP_OK && s >= 0; s--) {
        const struct cddpi_stage_list *list = &stages->lists[CDDPI_STAGES_OPTIMIZER_FILE][s];

        for (size_t i = 0; status == CDDP_OK && i < list->count; i++) {
            int64_t *numbers = list->tensors[i].data; /* on rank 0; counters do not move */

            if (!cddpi_stages_is_steps(&list->tensors[i])) {
                continue;
            }
            if (s > 0) {
                numbers = cddpi_zalloc_array(bytes_of(&list->tensors[i]) + 1, 1);
                status = numbers != NULL
                             ? fetch_tensor(stages, s, CDDPI_STAGES_OPTIMIZER_FILE, i, numbers)
                             : cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory");
            }
            if (status == CDDP_OK) {
                cddpi_stages_move_steps(trainer, s, numbers, true);
            }
            if (s > 0) {
                cddpi_free(numbers);
            }
        }
    }
    return status;
}

/* Ask each stage to check its own parameters. */
static cddp_status check_finite(const struct cddpi_stages *stages)
{
    cddp_status status = CDDP_OK;

    for (int s = 1; status == CDDP_OK && s < stages->count; s++) {
        const struct cddpi_stage_list *list = &stages->lists[CDDPI_STAGES_MODEL_FILE][s];
        struct infinite found = {.index = list->count};

        status = ask_stage(stages, s, ASK_INFINITE, CDDPI_STAGES_MODEL_FILE, 0);
        if (status == CDDP_OK) {
            status = cddp_recv(stages->group, &found, sizeof found, CDDP_U8, s, NULL);
        }
        if (status == CDDP_OK && found.index < list->count) {
            status = cddpi_fail_infinite(&list->tensors[found.index], found.element, found.value);
        }
    }
    return status;
}

static cddp_status write_tensor(const struct cddpi_stages *stages, enum cddpi_stages_file file,
                                size_t index, struct cddpi_writer *writer)
{
    const struct cddpi_stages_order *order = &stages->order[file];
    const cddp_tensor *tensor = &order->tensors[index];
    size_t bytes = bytes_of(tensor);
    void *data;
    cddp_status status;

    if (order->places[index].stage == 0) {
        return cddpi_writer_put(writer, tensor->data, bytes);
    }
    data = cddpi_alloc_aligned(bytes + 1);
    if (data == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory for %s of stage %d",
                          tensor->name, order->places[index].stage);
    }
    status = fetch_tensor(stages, order->places[index].stage, file, order->places[index].index,
                          data);
    if (status == CDDP_OK) {
        status = cddpi_writer_put(writer, data, bytes);
    }
    cddpi_free(data);
    return status;
}

static cddp_status put_tensor(void *context, size_t index, struct cddpi_writer *writer)
{
    const struct cddpi_stages_written *written = context;

    return write_tensor(written->stages, written->file, index, writer);
}

/* Check that all parameters are finite, and fetch all update counts. Meanwhile, the other stages
 * are in cddpi_stages_end_save(). */
cddp_status cddpi_stages_prepare_save(struct cddpi_trainer *trainer,
                                      struct cddpi_snapshot_source *out)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);

    CDDPI_TRY(check_finite(stages));
    CDDPI_TRY(join_steps(trainer));
    out->put = put_tensor;
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
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && request.kind != ASK_END) {
        status = cddp_recv(group, &request, sizeof request, CDDP_U8, 0, NULL);
        if (status == CDDP_OK && request.kind == ASK_INFINITE) {
            status = tell_infinite(trainer, &own[CDDPI_STAGES_MODEL_FILE]);
        }
        if (status == CDDP_OK && request.kind == ASK_TENSOR) {
            const cddp_tensor *tensor = &own[request.file].tensors[request.index];

            status = cddp_send(group, tensor->data, bytes_of(tensor), CDDP_U8, 0, NULL);
        }
    }
    return status;
}

static cddp_status serve_own(const struct cddpi_trainer *trainer)
{
    struct cddpi_stage_list own[CDDPI_STAGES_FILES] = {{.count = 0}, {.count = 0}};
    cddp_status status = CDDP_OK;

    for (int file = 0; status == CDDP_OK && file < CDDPI_STAGES_FILES; file++) {
        status = cddpi_stages_list_own(trainer, (enum cddpi_stages_file)file, &own[file]);
    }
    if (status == CDDP_OK) {
        status = serve_requests(trainer, own);
    }
    for (int file = 0; file < CDDPI_STAGES_FILES; file++) {
        cddpi_stages_release_list(&own[file]);
    }
    return status;
}

cddp_status cddpi_stages_end_save(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);

    if (trainer->replica != 0) {
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
