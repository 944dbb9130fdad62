/* lists.c - owns rank 0's knowledge of all stages' tensors: names, types, shapes, and their order
 * in a checkpoint of the whole model. The data stay on their ranks, but for the optimizer's tensor
 * that covers all parameters: the number of updates of each. Each stage has the counts of its own
 * parameters, a checkpoint has one tensor for all, in the order of the whole model's layers, with
 * tied parameters once. */
#include "base/alloc.h"
#include "base/error.h"
#include "train/checkpoint.h"
#include "train/engines/stages/stages_state.h"

#include <string.h>

/* A tensor's entry in a message. The names follow after all entries. */
struct lists_line {
    int64_t shape[CDDP_MAX_DIMS];
    int32_t type, dims;
    int32_t chunk; /* of the model; -1: the optimizer's */
    int32_t is_buffer;
};

void cddpi_stages_release_list(struct cddpi_stage_list *list)
{
    cddpi_free(list->tensors);
    cddpi_free(list->chunks);
    cddpi_free(list->is_buffer);
    cddpi_free(list->names);
    *list = (struct cddpi_stage_list){.count = 0};
}

void cddpi_stages_release_lists(struct cddpi_stages *stages)
{
    for (int what = 0; what < CDDPI_STAGES_FILES; what++) {
        for (int s = 0; stages->lists[what] != NULL && s < stages->count; s++) {
            cddpi_stages_release_list(&stages->lists[what][s]);
        }
        cddpi_free(stages->lists[what]);
        cddpi_free(stages->order[what].tensors);
        cddpi_free(stages->order[what].places);
    }
    cddpi_free(stages->steps);
}

static cddp_status allocate_list(struct cddpi_stage_list *list, size_t count, size_t name_bytes)
{
    list->count = count;
    list->tensors = cddpi_zalloc_array(count + 1, sizeof *list->tensors);
    list->chunks = cddpi_zalloc_array(count + 1, sizeof *list->chunks);
    list->is_buffer = cddpi_zalloc_array(count + 1, sizeof *list->is_buffer);
    list->names = cddpi_zalloc_array(name_bytes + 1, 1);
    return list->tensors != NULL && list->chunks != NULL && list->is_buffer != NULL &&
                   list->names != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for a list of %zu tensors",
                            count);
}

/* --- this rank's own --- */

static void list_param(struct cddpi_stage_list *list, size_t at, const cddp_param *param, int chunk,
                       bool is_buffer)
{
    list->tensors[at] = *param;
    list->chunks[at] = chunk;
    list->is_buffer[at] = is_buffer;
}

/* List the parameters of all chunks, then the buffers, as host_copy.h has them: on a device, the
 * copies if there are any. The names are the models' own. */
static cddp_status list_model(const struct cddpi_trainer *trainer, struct cddpi_stage_list *out)
{
    void **copies = trainer->models.host_copy;
    size_t done = 0;

    CDDPI_TRY(allocate_list(out, trainer->params.count + trainer->buffers.count, 0));
    for (int buffers = 0; buffers < 2; buffers++) {
        for (int c = 0; c < trainer->models.count; c++) {
            const struct cddpi_model *model = trainer->models.list[c].model;
            size_t count;
            const cddp_param *all = buffers != 0 ? cddpi_model_buffers(model, &count)
                                                 : cddpi_model_params(model, &count);

            for (size_t i = 0; i < count; i++) {
                list_param(out, done, &all[i], c, buffers != 0);
                out->tensors[done].data = copies != NULL ? copies[done] : all[i].data;
                done++;
            }
        }
    }
    return CDDP_OK;
}

/* All ranks have the same loss scale: rank 0 lists it. */
static cddp_status list_optimizer(struct cddpi_trainer *trainer, struct cddpi_stage_list *out)
{
    bool has_scale = trainer->rank == 0 && cddpi_checkpoint_has_scale(trainer);
    size_t count;
    const cddp_param *tensors = cddpi_optim_tensors(trainer->step.optim, &count);
    size_t scale_count = 0;
    const cddp_param *scale = has_scale ? cddpi_loss_scale_tensors(&trainer->step.loss_scale,
                                                                   &scale_count)
                                        : NULL;

    CDDPI_TRY(allocate_list(out, count + scale_count, 0));
    for (size_t i = 0; i < out->count; i++) {
        out->tensors[i] = i < count ? tensors[i] : scale[i - count];
        out->chunks[i] = -1;
    }
    return CDDP_OK;
}

cddp_status cddpi_stages_list_own(struct cddpi_trainer *trainer, enum cddpi_stages_file file,
                                  struct cddpi_stage_list *out)
{
    return file == CDDPI_STAGES_MODEL_FILE ? list_model(trainer, out)
                                           : list_optimizer(trainer, out);
}

/* --- to rank 0 --- */

static cddp_status send_list(cddp_group *group, const struct cddpi_stage_list *list)
{
    struct lists_line *lines = cddpi_zalloc_array(list->count + 1, sizeof *lines);
    int64_t head[2] = {(int64_t)list->count, 0};
    char *names;
    size_t used = 0;
    cddp_status status;

    for (size_t i = 0; i < list->count; i++) {
        head[1] += (int64_t)strlen(list->tensors[i].name) + 1;
    }
    names = cddpi_zalloc_array((size_t)head[1] + 1, 1);
    if (lines == NULL || names == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for a list of %zu tensors",
                            list->count);
        goto end;
    }
    for (size_t i = 0; i < list->count; i++) {
        const cddp_param *tensor = &list->tensors[i];

        lines[i] = (struct lists_line){.type = (int32_t)tensor->type,
                                       .dims = tensor->dims,
                                       .chunk = list->chunks[i],
                                       .is_buffer = list->is_buffer[i]};
        memcpy(lines[i].shape, tensor->shape, sizeof lines[i].shape);
        memcpy(names + used, tensor->name, strlen(tensor->name) + 1);
        used += strlen(tensor->name) + 1;
    }
    CDDPI_TRY_GOTO(end, status, cddp_send(group, head, 2, CDDP_I64, 0, NULL));
    if (list->count > 0) {
        CDDPI_TRY_GOTO(end, status,
                       cddp_send(group, lines, list->count * sizeof *lines, CDDP_U8, 0, NULL));
        status = cddp_send(group, names, used, CDDP_U8, 0, NULL); /* each has a byte at least */
    }
end:
    cddpi_free(lines);
    cddpi_free(names);
    return status;
}

static cddp_status receive_list(cddp_group *group, int stage, struct cddpi_stage_list *out)
{
    int64_t head[2] = {0, 0};
    struct lists_line *lines;
    const char *name;
    cddp_status status;

    CDDPI_TRY(cddp_recv(group, head, 2, CDDP_I64, stage, NULL));
    CDDPI_TRY(allocate_list(out, (size_t)head[0], (size_t)head[1]));
    lines = cddpi_zalloc_array(out->count + 1, sizeof *lines);
    CDDPI_TRY_MEMORY(lines != NULL, "pipeline: no memory for lists");
    if (out->count > 0) {
        CDDPI_TRY_GOTO(end, status,
                       cddp_recv(group, lines, out->count * sizeof *lines, CDDP_U8, stage, NULL));
    }
    if (head[1] > 0) {
        CDDPI_TRY_GOTO(end, status,
                       cddp_recv(group, out->names, (size_t)head[1], CDDP_U8, stage, NULL));
    }
    name = out->names;
    for (size_t i = 0; i < out->count; i++) {
        cddp_param *tensor = &out->tensors[i];

        *tensor = (cddp_param){
            .name = name, .type = (cddp_type)lines[i].type, .dims = lines[i].dims};
        memcpy(tensor->shape, lines[i].shape, sizeof tensor->shape);
        out->chunks[i] = lines[i].chunk;
        out->is_buffer[i] = lines[i].is_buffer != 0;
        name += strlen(name) + 1;
    }
    status = CDDP_OK;
end:
    cddpi_free(lines);
    return status;
}

/* --- the order of the whole model's files --- */

/* The place of the tensor @p name in a file; order->count: it is not there. */
static size_t place_of(const struct cddpi_stages_order *order, const char *name)
{
    size_t place = 0;

    while (place < order->count && strcmp(order->tensors[place].name, name) != 0) {
        place++;
    }
    return place;
}

/* A tied parameter is listed once, at the first stage that has it. */
static void append_tensor(struct cddpi_stages_order *order, const struct cddpi_stage_list *list,
                          int stage, size_t index)
{
    if (place_of(order, list->tensors[index].name) == order->count) {
        order->tensors[order->count] = list->tensors[index];
        order->places[order->count++] = (struct cddpi_stages_place){stage, index};
    }
}

static void order_model(const struct cddpi_trainer *trainer, struct cddpi_stages_order *out)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);

    for (int buffers = 0; buffers < 2; buffers++) {
        for (int c = 0; c < trainer->models.count; c++) {
            for (int s = 0; s < stages->count; s++) {
                const struct cddpi_stage_list *list = &stages->lists[CDDPI_STAGES_MODEL_FILE][s];

                for (size_t i = 0; i < list->count; i++) {
                    if (list->chunks[i] == c && list->is_buffer[i] == (buffers != 0)) {
                        append_tensor(out, list, s, i);
                    }
                }
            }
        }
        out->params = buffers == 0 ? out->count : out->params;
    }
}

static bool is_scale(const cddp_param *tensor)
{
    return strncmp(tensor->name, "loss_scale", strlen("loss_scale")) == 0;
}

/* The counters, which all stages have, come first; then the tensors of each parameter, named
 * "KIND.NAME"; then the loss scale. */
static void order_optimizer(const struct cddpi_trainer *trainer, struct cddpi_stages_order *out)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    const struct cddpi_stages_order *model = &stages->order[CDDPI_STAGES_MODEL_FILE];
    const struct cddpi_stage_list *lists = stages->lists[CDDPI_STAGES_OPTIMIZER_FILE];

    for (size_t i = 0; i < lists[0].count; i++) {
        if (strchr(lists[0].tensors[i].name, '.') == NULL && !is_scale(&lists[0].tensors[i])) {
            append_tensor(out, &lists[0], 0, i);
        }
    }
    for (size_t p = 0; p < model->params; p++) {
        int stage = model->places[p].stage;

        for (size_t i = 0; i < lists[stage].count; i++) {
            const char *dot = strchr(lists[stage].tensors[i].name, '.');

            if (dot != NULL && strcmp(dot + 1, model->tensors[p].name) == 0) {
                append_tensor(out, &lists[stage], stage, i);
            }
        }
    }
    for (size_t i = 0; i < lists[0].count; i++) {
        if (is_scale(&lists[0].tensors[i])) {
            append_tensor(out, &lists[0], 0, i);
        }
    }
}

bool cddpi_stages_is_steps(const cddp_param *tensor)
{
    return strcmp(tensor->name, "param_steps") == 0;
}

/* Allocate the tensor of all update counts. In the order of the file it replaces rank 0's own. */
static cddp_status create_steps(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    struct cddpi_stages_order *order = &stages->order[CDDPI_STAGES_OPTIMIZER_FILE];
    size_t params = stages->order[CDDPI_STAGES_MODEL_FILE].params;

    stages->steps = cddpi_zalloc_array(params + 1, sizeof *stages->steps);
    CDDPI_TRY_MEMORY(stages->steps != NULL, "checkpoint: no memory for %zu numbers", params);
    for (size_t i = 0; i < order->count; i++) {
        if (cddpi_stages_is_steps(&order->tensors[i])) {
            order->tensors[i].shape[0] = (int64_t)params;
            order->tensors[i].data = stages->steps;
        }
    }
    return CDDP_OK;
}

static cddp_status make_order(struct cddpi_trainer *trainer, enum cddpi_stages_file file)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    struct cddpi_stages_order *order = &stages->order[file];
    size_t most = 0;

    for (int s = 0; s < stages->count; s++) {
        most += stages->lists[file][s].count;
    }
    order->tensors = cddpi_zalloc_array(most + 1, sizeof *order->tensors);
    order->places = cddpi_zalloc_array(most + 1, sizeof *order->places);
    CDDPI_TRY_MEMORY(order->tensors != NULL && order->places != NULL,
                     "pipeline: no memory for %zu tensors", most);
    if (file == CDDPI_STAGES_MODEL_FILE) {
        order_model(trainer, order);
        return CDDP_OK;
    }
    order_optimizer(trainer, order);
    return create_steps(trainer);
}

cddp_status cddpi_stages_exchange_lists(struct cddpi_trainer *trainer, enum cddpi_stages_file file)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    struct cddpi_stage_list own = {.count = 0};
    cddp_status status;

    if (trainer->replicas.rank != 0) {
        return CDDP_OK;
    }
    status = cddpi_stages_list_own(trainer, file, &own);
    if (stages->stage > 0) {
        status = status == CDDP_OK ? send_list(stages->group, &own) : status;
        cddpi_stages_release_list(&own);
        return status;
    }
    stages->lists[file] = cddpi_zalloc_array((size_t)stages->count, sizeof *stages->lists[file]);
    if (stages->lists[file] == NULL) {
        cddpi_stages_release_list(&own);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d lists", stages->count);
    }
    stages->lists[file][0] = own;
    for (int s = 1; status == CDDP_OK && s < stages->count; s++) {
        status = receive_list(stages->group, s, &stages->lists[file][s]);
    }
    return status == CDDP_OK ? make_order(trainer, file) : status;
}

void cddpi_stages_move_steps(const struct cddpi_trainer *trainer, int stage, int64_t *own,
                             bool joins)
{
    const struct cddpi_stages *stages = cddpi_stages_of(trainer);
    const struct cddpi_stage_list *list = &stages->lists[CDDPI_STAGES_MODEL_FILE][stage];
    size_t next = 0;

    for (size_t i = 0; i < list->count; i++) {
        size_t place;

        if (list->is_buffer[i]) {
            continue;
        }
        place = place_of(&stages->order[CDDPI_STAGES_MODEL_FILE], list->tensors[i].name);
        if (stages->table.is_tied &&
            stages->order[CDDPI_STAGES_MODEL_FILE].places[place].stage != stage) {
            continue; /* another stage updates it */
        }
        if (joins) {
            stages->steps[place] = own[next++];
        } else {
            own[next++] = stages->steps[place];
        }
    }
}
