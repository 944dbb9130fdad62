/* register.c - owns what a rank can check alone: that parameters and buffers are well formed, in
 * which memory they are, and in which order, by the caller, gradients become ready. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/types.h"
#include "ddp/ddp_create.h"
#include "ddp/ddp_step.h"

#include <stdlib.h>
#include <string.h>

cddp_status cddpi_ddp_no_memory(size_t count)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory to register %zu parameters", count);
}

/* Check that @p memory is a multiple of the element's size, as C requires of every access to one.
 */
static cddp_status check_alignment(const char *what, size_t index, const cddp_param *tensor,
                                   const char *part, const void *memory)
{
    size_t element = cddp_type_bytes(tensor->type);

    if ((uintptr_t)memory % element != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp: the %s of %s %zu (%.200s) lies at %p, which is not a multiple of "
                          "the %zu bytes of %s",
                          part, what, index, tensor->name, memory, element,
                          cddp_type_name(tensor->type));
    }
    return CDDP_OK;
}

/* @p known: the flags that a tensor of this kind may have. */
static cddp_status check_flags(const char *what, size_t index, const cddp_param *tensor,
                               uint32_t known)
{
    cddp_status status = cddpi_flags_check(tensor->flags & ~known, CDDPI_RESERVED_OF(tensor));

    return status == CDDP_OK
               ? CDDP_OK
               : cddpi_fail_prefix(status, "ddp: %s %zu (%.200s)", what, index, tensor->name);
}

/* Count the elements. A failure names @p what ("parameter", "buffer") and @p index. */
static cddp_status check_tensor(const char *what, size_t index, const cddp_param *tensor,
                                size_t *out_count)
{
    size_t element = cddp_type_bytes(tensor->type);
    size_t count = 1;

    if (tensor->name == NULL || tensor->name[0] == '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %s %zu has no name", what, index);
    }
    if (tensor->dims < 0 || tensor->dims > CDDP_MAX_DIMS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %s %zu (%.200s) has %d dimensions", what, index,
                          tensor->name, tensor->dims);
    }
    if (element == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %s %zu (%.200s) has an unknown type %d", what,
                          index, tensor->name, (int)tensor->type);
    }
    for (int d = 0; d < tensor->dims; d++) {
        if (tensor->shape[d] < 0 ||
            __builtin_mul_overflow(count, (size_t)tensor->shape[d], &count) ||
            count > (size_t)PTRDIFF_MAX / element) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %s %zu (%.200s): dimension %d is %lld", what,
                              index, tensor->name, d, (long long)tensor->shape[d]);
        }
    }
    if (tensor->data == NULL && count > 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %s %zu (%.200s) has no data", what, index,
                          tensor->name);
    }
    *out_count = count;
    return check_alignment(what, index, tensor, "data", tensor->data);
}

static cddp_status check_type(size_t index, const cddp_param *param)
{
    switch (param->type) {
    case CDDP_F32:
    case CDDP_F64:
    case CDDP_F16:
    case CDDP_BF16:
        return check_alignment("parameter", index, param, "gradient", param->grad);
    default:
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: parameter %zu (%.200s) has the type %s", index,
                          param->name, cddp_type_name(param->type));
    }
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;

    return strcmp(*x, *y);
}

static cddp_status check_unique(const char *what, const cddp_param *tensors, size_t count)
{
    const char **names = cddpi_zalloc_array(count + 1, sizeof *names);
    cddp_status status = CDDP_OK;

    if (names == NULL) {
        return cddpi_ddp_no_memory(count);
    }
    for (size_t i = 0; i < count; i++) {
        names[i] = tensors[i].name;
    }
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 1; i < count && status == CDDP_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: two %ss have the name %.200s", what,
                                names[i]);
        }
    }
    cddpi_free(names);
    return status;
}

static cddp_status describe(struct cddpi_param *out, const cddp_param *from)
{
    out->name = cddpi_strdup(from->name);
    out->data = out->home = from->data;
    out->type = from->type;
    out->slot = UINT32_MAX;
    return out->name != NULL ? CDDP_OK : cddpi_ddp_no_memory(1);
}

/* Check the buffers, and keep what broadcasts need. */
static cddp_status register_buffers(cddp_ddp *ddp, const cddp_param *buffers, size_t count)
{
    if (buffers == NULL && count > 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: buffers is NULL, but %zu are given", count);
    }
    ddp->buffers = cddpi_zalloc_array(count, sizeof *ddp->buffers);
    if (ddp->buffers == NULL) {
        return cddpi_ddp_no_memory(count);
    }
    for (size_t i = 0; i < count; i++) {
        struct cddpi_param *buffer = &ddp->buffers[i];

        CDDPI_TRY(check_tensor("buffer", i, &buffers[i], &buffer->count));
        CDDPI_TRY(check_flags("buffer", i, &buffers[i], 0));
        CDDPI_TRY(describe(buffer, &buffers[i]));
        ddp->buffer_count++;
    }
    return check_unique("buffer", buffers, count);
}

static cddp_status alloc_params(cddp_ddp *ddp, size_t count)
{
    ddp->params = cddpi_zalloc_array(count, sizeof *ddp->params);
    ddp->slots = cddpi_zalloc_array(count, sizeof *ddp->slots);
    ddp->planning.tensors = cddpi_zalloc_array(count, sizeof *ddp->planning.tensors);
    ddp->backward.arrivals = cddpi_zalloc_array(count, sizeof *ddp->backward.arrivals);
    ddp->backward.ready_s = cddpi_zalloc_array(count, sizeof *ddp->backward.ready_s);
    ddp->end.used_map = cddpi_zalloc_array(count, sizeof *ddp->end.used_map);
    ddp->end.statuses = cddpi_zalloc_array((size_t)ddp->world_size, sizeof *ddp->end.statuses);
    if (ddp->params == NULL || ddp->slots == NULL || ddp->planning.tensors == NULL ||
        ddp->backward.arrivals == NULL || ddp->backward.ready_s == NULL ||
        ddp->end.used_map == NULL || ddp->end.statuses == NULL) {
        return cddpi_ddp_no_memory(count);
    }
    ddp->param_count = count;
    return CDDP_OK;
}

static cddp_status register_param(cddp_ddp *ddp, const cddp_param *params, size_t index)
{
    const cddp_param *from = &params[index];
    struct cddpi_param *param = &ddp->params[index];
    struct cddpi_ddp_slot *slot = &ddp->slots[ddp->slot_count];

    CDDPI_TRY(check_tensor("parameter", index, from, &param->count));
    CDDPI_TRY(check_flags("parameter", index, from, CDDP_PARAM_FROZEN));
    CDDPI_TRY(check_type(index, from));
    CDDPI_TRY(describe(param, from));
    if ((from->flags & CDDP_PARAM_FROZEN) != 0) {
        return CDDP_OK;
    }
    param->slot = (uint32_t)ddp->slot_count;
    slot->param = (uint32_t)index;
    slot->bytes = param->count * cddp_type_bytes(param->type);
    slot->grad = from->grad;
    slot->owned = from->grad == NULL;
    slot->copied = from->grad != NULL && ddp->flat == NULL && !ddp->in_place;
    ddp->planning.tensors[ddp->slot_count].bytes = slot->bytes;
    ddp->planning.tensors[ddp->slot_count].type = param->type;
    ddp->slot_count++;
    return CDDP_OK;
}

static cddp_status register_params(cddp_ddp *ddp, const cddp_param *params, size_t count)
{
    if (count == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: there are no parameters");
    }
    if (params == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: params is NULL, but %zu are given", count);
    }
    if (count >= UINT32_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %zu parameters are too many", count);
    }
    CDDPI_TRY(alloc_params(ddp, count));
    for (size_t i = 0; i < count; i++) {
        CDDPI_TRY(register_param(ddp, params, i));
    }
    if (ddp->slot_count == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: all %zu parameters are frozen", count);
    }
    return check_unique("parameter", params, count);
}

/* Check that the caller's block is laid out as the plan assumes. */
static cddp_status check_flat(const cddp_ddp *ddp)
{
    const unsigned char *expected = ddp->flat;

    for (size_t s = 0; s < ddp->slot_count && ddp->flat != NULL; s++) {
        const struct cddpi_ddp_slot *slot = &ddp->slots[s];
        const struct cddpi_param *param = &ddp->params[slot->param];

        if (param->type != ddp->planning.tensors[0].type) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "ddp: flat_grads: parameter %u (%.200s) is %s, those before are %s",
                              slot->param, param->name, cddp_type_name(param->type),
                              cddp_type_name(ddp->planning.tensors[0].type));
        }
        if (slot->grad != expected) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "ddp: flat_grads: the gradient of parameter %u (%.200s) is not at "
                              "byte %td of the block",
                              slot->param, param->name, expected - ddp->flat);
        }
        expected += slot->bytes;
    }
    return CDDP_OK;
}

/* Translate the caller's order of parameters to the plan's order of slots. */
static cddp_status read_order(cddp_ddp *ddp, const size_t *ready_order)
{
    for (size_t i = 0; i < ddp->slot_count && ready_order != NULL; i++) {
        size_t param = ready_order[i];

        if (param >= ddp->param_count || ddp->params[param].slot == UINT32_MAX) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: ready_order: entry %zu is %zu, which is %s",
                              i, param,
                              param >= ddp->param_count ? "no parameter" : "a frozen parameter");
        }
        ddp->backward.arrivals[i] =
            ddp->params[param].slot; /* `arrivals` keeps the order until the first backward */
    }
    return CDDP_OK;
}

/* The parameters of @p model, then its buffers. */
static const cddp_param *tensor_at(const struct cddpi_manifest *model, size_t index)
{
    return index < model->param_count ? &model->params[index]
                                      : &model->buffers[index - model->param_count];
}

static cddp_status keep_shapes(cddp_ddp *ddp, const struct cddpi_manifest *model)
{
    size_t count = model->param_count + model->buffer_count;
    size_t next = 0;

    ddp->dims = cddpi_zalloc_array(count, sizeof *ddp->dims);
    for (size_t i = 0; i < count && ddp->dims != NULL; i++) {
        ddp->dims[i] = (unsigned char)tensor_at(model, i)->dims;
        next += ddp->dims[i];
    }
    ddp->shapes = cddpi_zalloc_array(next + 1, sizeof *ddp->shapes);
    if (ddp->dims == NULL || ddp->shapes == NULL) {
        return cddpi_ddp_no_memory(count);
    }
    next = 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(&ddp->shapes[next], tensor_at(model, i)->shape, ddp->dims[i] * sizeof *ddp->shapes);
        next += ddp->dims[i];
    }
    return CDDP_OK;
}

cddp_status cddpi_ddp_register(cddp_ddp *ddp, const struct cddpi_manifest *model)
{
    CDDPI_TRY(register_params(ddp, model->params, model->param_count));
    CDDPI_TRY(register_buffers(ddp, model->buffers, model->buffer_count));
    CDDPI_TRY(keep_shapes(ddp, model));
    CDDPI_TRY(check_flat(ddp));
    CDDPI_TRY(cddpi_ddp_check_memory(ddp, model->options->shard));
    return read_order(ddp, model->options->ready_order);
}
