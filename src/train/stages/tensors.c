/* tensors.c - owns the checkpoint of a divided run: rank 0 has, of each other stage of its replica,
 * the same parts of the model and an optimizer over them, in the processor's memory, into which the
 * stages' tensors come before a file is written, or from which they go after one was read. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "train/stages/state.h"

#include <string.h>

void cddpi_stages_release_others(struct cddpi_stages *stages)
{
    for (int s = 0; stages->others != NULL && s < stages->count; s++) {
        struct cddpi_other_stage *other = &stages->others[s];

        cddpi_optim_destroy(other->optim);
        for (int c = 0; other->models != NULL && other->models[c] != NULL; c++) {
            cddpi_model_destroy(other->models[c]);
        }
        cddpi_free(other->models);
        cddpi_free(other->model);
    }
    cddpi_free(stages->others);
    stages->others = NULL;
}

static cddp_tensor tensor_of(const cddp_param *param)
{
    cddp_tensor tensor = {.name = param->name, .type = param->type, .dims = param->dims};

    memcpy(tensor.shape, param->shape, sizeof tensor.shape);
    tensor.data = param->data;
    return tensor;
}

static const cddp_param *list_of(const struct cddpi_model *model, bool buffers, size_t *out_count)
{
    return buffers ? cddpi_model_buffers(model, out_count) : cddpi_model_params(model, out_count);
}

/* In the order in which the stage has them: all parameters, then all buffers. */
static cddp_status list_tensors(struct cddpi_other_stage *other, int chunks)
{
    size_t all = 0;

    for (int pass = 0; pass < 2; pass++) {
        other->model_count = 0;
        for (int buffers = 0; buffers < 2; buffers++) {
            for (int c = 0; c < chunks; c++) {
                size_t count;
                const cddp_param *own = list_of(other->models[c], buffers != 0, &count);

                for (size_t i = 0; pass == 1 && i < count; i++) {
                    other->model[other->model_count + i] = tensor_of(&own[i]);
                }
                other->model_count += count;
            }
        }
        all = other->model_count;
        if (pass == 0) {
            other->model = cddpi_zalloc_array(all + 1, sizeof *other->model);
        }
        if (other->model == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %zu tensors", all);
        }
    }
    return CDDP_OK;
}

static cddp_status create_optimizer(const struct cddpi_trainer *trainer,
                                    struct cddpi_other_stage *other, int chunks)
{
    struct cddpi_optim_spec spec = cddpi_trainer_optim_spec(trainer->config);
    cddp_param *params = cddpi_zalloc_array(other->model_count + 1, sizeof *params);
    bool *decays = cddpi_zalloc_array(other->model_count + 1, sizeof *decays);
    size_t total = 0;
    cddp_status status;

    if (params == NULL || decays == NULL) {
        cddpi_free(params);
        cddpi_free(decays);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for an optimizer");
    }
    for (int c = 0; c < chunks; c++) {
        size_t count;
        const cddp_param *own = cddpi_model_params(other->models[c], &count);

        for (size_t i = 0; i < count; i++, total++) {
            params[total] = own[i];
            decays[total] = cddpi_model_param_decays(other->models[c], i);
        }
    }
    status = cddpi_optim_create(&spec, params, decays, total, &other->optim);
    cddpi_free(params);
    cddpi_free(decays);
    return status;
}

static cddp_status create_other(const struct cddpi_trainer *trainer, int stage,
                                struct cddpi_other_stage *other)
{
    const struct cddpi_stages *stages = trainer->stages;
    int chunks = trainer->model_count;
    cddp_status status = CDDP_OK;

    other->models = cddpi_zalloc_array((size_t)chunks + 1, sizeof(struct cddpi_model *));
    if (other->models == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for a stage");
    }
    for (int c = 0; status == CDDP_OK && c < chunks; c++) {
        struct cddpi_model_spec spec = stages->spec;

        spec.device = NULL;
        spec.part = stages->ranges[c * stages->count + stage];
        status = cddpi_model_create(&spec, 0, NULL, &other->models[c]);
    }
    if (status == CDDP_OK) {
        status = list_tensors(other, chunks);
    }
    return status == CDDP_OK ? create_optimizer(trainer, other, chunks) : status;
}

static cddp_status create_others(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = trainer->stages;
    cddp_status status = CDDP_OK;

    if (stages->others != NULL || trainer->rank != 0) {
        return CDDP_OK;
    }
    stages->others = cddpi_zalloc_array((size_t)stages->count, sizeof *stages->others);
    if (stages->others == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d stages", stages->count);
    }
    for (int s = 1; status == CDDP_OK && s < stages->count; s++) {
        status = create_other(trainer, s, &stages->others[s]);
    }
    return status;
}

static bool is_listed(const cddp_tensor *tensors, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

cddp_status cddpi_stages_tensors(struct cddpi_trainer *trainer, bool optimizer,
                                 const cddp_tensor *own, size_t own_count, cddp_tensor **out,
                                 size_t *out_count)
{
    struct cddpi_stages *stages = trainer->stages;
    cddp_status status = create_others(trainer);
    size_t most = own_count;
    cddp_tensor *all;

    for (int s = 1; status == CDDP_OK && s < stages->count; s++) {
        size_t count = stages->others[s].model_count;

        if (optimizer) {
            (void)cddpi_optim_tensors(stages->others[s].optim, &count);
        }
        most += count;
    }
    all = status == CDDP_OK ? cddpi_zalloc_array(most + 1, sizeof *all) : NULL;
    if (all == NULL) {
        return status != CDDP_OK
                   ? status
                   : cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory for %zu tensors", most);
    }
    if (own_count > 0) {
        memcpy(all, own, own_count * sizeof *all);
    }
    *out_count = own_count;
    for (int s = 1; s < stages->count; s++) {
        size_t count = stages->others[s].model_count;
        const cddp_tensor *tensors = optimizer
                                         ? cddpi_optim_tensors(stages->others[s].optim, &count)
                                         : stages->others[s].model;

        for (size_t i = 0; i < count; i++) {
            if (!is_listed(all, *out_count, tensors[i].name)) {
                all[(*out_count)++] = tensors[i];
            }
        }
    }
    if (optimizer) {
        status = cddpi_stages_join_steps(trainer, all, *out_count);
    }
    if (status != CDDP_OK) {
        cddpi_free(all);
        return status;
    }
    *out = all;
    return CDDP_OK;
}

/* --- to and from rank 0 --- */

static size_t bytes_of(const cddp_tensor *tensor)
{
    return cddpi_elements(tensor->dims, tensor->shape) * cddp_type_bytes(tensor->type);
}

static cddp_status move(cddp_group *group, const cddp_tensor *tensors, size_t count, int peer,
                        bool sends)
{
    cddp_status status = CDDP_OK;

    for (size_t i = 0; status == CDDP_OK && i < count; i++) {
        size_t bytes = bytes_of(&tensors[i]);

        status = sends ? cddp_send(group, tensors[i].data, bytes, CDDP_U8, peer, NULL)
                       : cddp_recv(group, tensors[i].data, bytes, CDDP_U8, peer, NULL);
    }
    return status;
}

/* @p optim NULL: the model alone. */
static cddp_status move_both(cddp_group *group, const cddp_tensor *model, size_t model_count,
                             struct cddpi_optim *optim, int peer, bool sends)
{
    size_t count = 0;
    const cddp_tensor *state = optim != NULL ? cddpi_optim_tensors(optim, &count) : NULL;
    cddp_status status = move(group, model, model_count, peer, sends);

    return status == CDDP_OK ? move(group, state, count, peer, sends) : status;
}

/* Tensors of one name but another size are each stage's own. */
static void copy_same(const cddp_tensor *to, const cddp_tensor *from)
{
    if (strcmp(to->name, from->name) == 0 && bytes_of(to) == bytes_of(from)) {
        memcpy(to->data, from->data, bytes_of(to));
    }
}

/* What a file has once, every stage gets that has it: rank 0 has read it into its own. */
static void copy_shared(struct cddpi_trainer *trainer, struct cddpi_other_stage *other, bool all)
{
    size_t count = 0;
    size_t own_count = 0;
    const cddp_tensor *state = all ? cddpi_optim_tensors(other->optim, &count) : NULL;
    const cddp_tensor *own = all ? cddpi_optim_tensors(trainer->optim, &own_count) : NULL;

    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < own_count; k++) {
            copy_same(&state[i], &own[k]);
        }
    }
    for (size_t i = 0; i < other->model_count; i++) {
        for (size_t k = 0; k < trainer->param_count; k++) {
            cddp_tensor param = tensor_of(&trainer->params[k]);

            copy_same(&other->model[i], &param);
        }
    }
}

static cddp_status exchange(struct cddpi_trainer *trainer, bool gathers, bool all)
{
    struct cddpi_stages *stages = trainer->stages;
    cddp_tensor *own = NULL;
    size_t count = trainer->param_count + trainer->buffer_count;
    cddp_status status = create_others(trainer);

    if (trainer->replica != 0 || status != CDDP_OK) {
        return status;
    }
    if (stages->stage > 0) {
        own = cddpi_zalloc_array(count + 1, sizeof *own);
        if (own == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory");
        }
        for (size_t i = 0; i < count; i++) {
            own[i] = tensor_of(i < trainer->param_count
                                   ? &trainer->params[i]
                                   : &trainer->buffers[i - trainer->param_count]);
        }
        status = move_both(stages->group, own, count, all ? trainer->optim : NULL, 0, gathers);
        cddpi_free(own);
        return status;
    }
    for (int s = 1; !gathers && s < stages->count; s++) {
        copy_shared(trainer, &stages->others[s], all);
    }
    if (!gathers && all) {
        status = cddpi_stages_split_steps(trainer);
    }
    for (int s = 1; status == CDDP_OK && s < stages->count; s++) {
        struct cddpi_other_stage *other = &stages->others[s];

        status = move_both(stages->group, other->model, other->model_count,
                           all ? other->optim : NULL, s, !gathers);
    }
    return status;
}

cddp_status cddpi_stages_gather(struct cddpi_trainer *trainer, enum cddpi_stages_what what)
{
    return exchange(trainer, true, what == CDDPI_STAGES_ALL);
}

cddp_status cddpi_stages_scatter(struct cddpi_trainer *trainer, enum cddpi_stages_what what)
{
    return exchange(trainer, false, what == CDDPI_STAGES_ALL);
}
