/* replicated_params.c - owns the list of a replicated model's parameters, as of a model on one
 * device. */
#include "base/alloc.h"
#include "base/error.h"
#include "parallel/replicated/replicated_state.h"

#include <string.h>

const cddp_param *cddpi_replicated_params(const struct cddpi_replicated *replicated,
                                          size_t *out_count)
{
    *out_count = replicated->param_count;
    return replicated->params;
}

const cddp_param *cddpi_replicated_buffers(const struct cddpi_replicated *replicated,
                                           size_t *out_count)
{
    *out_count = replicated->buffer_count;
    return replicated->buffers;
}

const size_t *cddpi_replicated_ready_order(const struct cddpi_replicated *replicated)
{
    return replicated->ready_order;
}

bool cddpi_replicated_param_decays(const struct cddpi_replicated *replicated, size_t index)
{
    size_t first = replicated->first_param;
    size_t behind = first + replicated->copied_params;
    size_t i = 0;

    if (index < first) {
        return cddpi_model_param_decays(cddpi_device_model_inside(replicated->head), index);
    }
    if (index < behind) {
        return cddpi_model_param_decays(cddpi_device_model_inside(replicated->replicas[0].model),
                                        index - first);
    }
    while (replicated->tail_numbers[i] != index) {
        i++;
    }
    return cddpi_model_param_decays(cddpi_device_model_inside(replicated->tail), i);
}

static void pick_tail(struct cddpi_replicated *replicated, void *const *all)
{
    size_t count;

    (void)cddpi_device_model_params(replicated->tail, &count);
    for (size_t i = 0; i < count; i++) {
        replicated->tail_places[i] = all[replicated->tail_numbers[i]];
    }
}

void cddpi_replicated_bind_grads(struct cddpi_replicated *replicated, void *const *grads)
{
    memcpy(replicated->grads, grads, replicated->param_count * sizeof *grads);
    if (replicated->head != NULL) {
        cddpi_device_model_bind_grads(replicated->head, replicated->grads);
    }
    pick_tail(replicated, replicated->grads);
    cddpi_device_model_bind_grads(replicated->tail, replicated->tail_places);
}

void cddpi_replicated_bind_params(struct cddpi_replicated *replicated, void *const *data)
{
    for (size_t i = 0; i < replicated->param_count; i++) {
        replicated->params[i].data = data[i];
    }
    if (replicated->head != NULL) {
        cddpi_device_model_bind_params(replicated->head, data);
    }
    cddpi_device_model_bind_params(replicated->replicas[0].model, data + replicated->first_param);
    pick_tail(replicated, data);
    cddpi_device_model_bind_params(replicated->tail, replicated->tail_places);
}

/* --- the list --- */

static cddp_status fail_shared(const cddp_param *param)
{
    return cddpi_fail(
        CDDP_ERR_CONFIG,
        "the weight %s is read by layers with copies and by others: name all of them, "
        "or none",
        param->name);
}

static cddp_status allocate(struct cddpi_replicated *replicated, size_t params, size_t buffers,
                            size_t tail)
{
    replicated->params = cddpi_zalloc_array(params + 1, sizeof *replicated->params);
    replicated->buffers = cddpi_zalloc_array(buffers + 1, sizeof *replicated->buffers);
    replicated->grads = cddpi_zalloc_array(params + 1, sizeof *replicated->grads);
    replicated->ready_order = cddpi_zalloc_array(params + 1, sizeof *replicated->ready_order);
    replicated->tail_numbers = cddpi_zalloc_array(tail + 1, sizeof *replicated->tail_numbers);
    replicated->tail_places = cddpi_zalloc_array(tail + 1, sizeof *replicated->tail_places);
    replicated->copied_data = cddpi_zalloc_array(params + 1, sizeof *replicated->copied_data);
    return replicated->params != NULL && replicated->buffers != NULL && replicated->grads != NULL &&
                   replicated->ready_order != NULL && replicated->tail_numbers != NULL &&
                   replicated->tail_places != NULL && replicated->copied_data != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu parameters", params);
}

static void add_buffers(struct cddpi_replicated *replicated, const struct cddpi_device_model *model)
{
    size_t count;
    const cddp_param *buffers = cddpi_device_model_buffers(model, &count);

    for (size_t i = 0; i < count; i++) {
        replicated->buffers[replicated->buffer_count++] = buffers[i];
    }
}

/* Append the tail's parameters. A parameter that the head shares is the head's. */
static cddp_status add_tail(struct cddpi_replicated *replicated)
{
    size_t others = replicated->param_count;
    size_t count;
    const cddp_param *params = cddpi_device_model_params(replicated->tail, &count);

    for (size_t i = 0; i < count; i++) {
        size_t owner = cddpi_tensors_find(replicated->params, others, params[i].name);

        if (owner == others) {
            replicated->tail_numbers[i] = (uint32_t)replicated->param_count;
            replicated->params[replicated->param_count++] = params[i];
        } else if (cddpi_device_model_is_on_gpu(replicated->tail) ||
                   (replicated->head != NULL && cddpi_device_model_is_on_gpu(replicated->head))) {
            return cddpi_fail(CDDP_ERR_CONFIG,
                              "the weight %s is read before and after the layers that have copies, "
                              "which GPUs do not support yet: copy all layers",
                              params[i].name);
        } else if (owner < replicated->first_param) {
            replicated->tail_numbers[i] = (uint32_t)owner;
            CDDPI_TRY(
                cddpi_device_model_share_param(replicated->tail, i, replicated->head, owner, true));
        } else {
            return fail_shared(&params[i]);
        }
    }
    return CDDP_OK;
}

/* Make the order in which backward completes the gradients. A parameter shared by head and tail is
 * completed by the head. */
static void order_params(struct cddpi_replicated *replicated)
{
    const size_t *order = cddpi_model_ready_order(cddpi_device_model_inside(replicated->tail));
    size_t first = replicated->first_param;
    size_t done = 0;
    size_t count;

    (void)cddpi_device_model_params(replicated->tail, &count);
    for (size_t i = 0; i < count; i++) {
        if (replicated->tail_numbers[order[i]] >= first) {
            replicated->ready_order[done++] = replicated->tail_numbers[order[i]];
        }
    }
    order = cddpi_model_ready_order(cddpi_device_model_inside(replicated->replicas[0].model));
    for (size_t i = 0; i < replicated->copied_params; i++) {
        replicated->ready_order[done++] = (size_t)first + order[i];
    }
    order = replicated->head != NULL
                ? cddpi_model_ready_order(cddpi_device_model_inside(replicated->head))
                : NULL;
    for (size_t i = 0; i < first; i++) {
        replicated->ready_order[done++] = order[i];
    }
}

static void count_tensors(const struct cddpi_replicated *replicated, size_t *out_params,
                          size_t *out_buffers)
{
    const struct cddpi_device_model *const models[] = {
        replicated->head, replicated->replicas[0].model, replicated->tail};

    *out_params = *out_buffers = 0;
    for (int m = 0; m < 3; m++) {
        size_t count = 0;

        if (models[m] != NULL) {
            (void)cddpi_device_model_params(models[m], &count);
            *out_params += count;
            (void)cddpi_device_model_buffers(models[m], &count);
            *out_buffers += count;
        }
    }
}

cddp_status cddpi_replicated_join_params(struct cddpi_replicated *replicated)
{
    const struct cddpi_device_model *copy = replicated->replicas[0].model;
    const cddp_param *params;
    size_t all, buffers, tail;

    count_tensors(replicated, &all, &buffers);
    (void)cddpi_device_model_params(replicated->tail, &tail);
    CDDPI_TRY(allocate(replicated, all, buffers, tail));
    if (replicated->head != NULL) {
        params = cddpi_device_model_params(replicated->head, &replicated->first_param);
        for (size_t i = 0; i < replicated->first_param; i++) {
            replicated->params[i] = params[i];
        }
        add_buffers(replicated, replicated->head);
    }
    params = cddpi_device_model_params(copy, &replicated->copied_params);
    for (size_t i = 0; i < replicated->copied_params; i++) {
        if (cddpi_tensors_find(replicated->params, replicated->first_param, params[i].name) <
            replicated->first_param) {
            return fail_shared(&params[i]);
        }
        replicated->params[replicated->first_param + i] = params[i];
    }
    replicated->param_count = replicated->first_param + replicated->copied_params;
    add_buffers(replicated, copy);
    CDDPI_TRY(add_tail(replicated));
    add_buffers(replicated, replicated->tail);
    order_params(replicated);
    return CDDP_OK;
}

void cddpi_replicated_release_params(struct cddpi_replicated *replicated)
{
    cddpi_free(replicated->params);
    cddpi_free(replicated->buffers);
    cddpi_free(replicated->grads);
    cddpi_free(replicated->ready_order);
    cddpi_free(replicated->tail_numbers);
    cddpi_free(replicated->tail_places);
    cddpi_free(replicated->copied_data);
}
