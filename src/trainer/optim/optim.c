/* optim.c - owns the optimizer's state: the list of trainable parameters, and their tensors for
 * checkpoints. */
#include "optim/optim.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "ddp/copies.h"
#include "optim/optim_impl.h"

#include <math.h>
#include <string.h>

static const struct cddpi_optim_ops ops_table[] = {
    [CDDPI_OPTIM_SGD] = {1, {"momentum", NULL}, false, cddpi_sgd_update},
    [CDDPI_OPTIM_ADAMW] = {2, {"exp_avg", "exp_avg_sq"}, true, cddpi_adamw_update},
};

static const struct cddpi_optim_ops *ops_of(const struct cddpi_optim *optim)
{
    return &ops_table[optim->spec.type];
}

/* SGD without momentum has no state. */
size_t cddpi_optim_moments_of(const struct cddpi_optim_spec *spec)
{
    return spec->type == CDDPI_OPTIM_SGD && spec->momentum == 0.0
               ? 0
               : ops_table[spec->type].moment_count;
}

size_t cddpi_optim_moment_count(const struct cddpi_optim *optim)
{
    return cddpi_optim_moments_of(&optim->spec);
}

static bool is_fraction(double value)
{
    return value >= 0.0 && value < 1.0;
}

static cddp_status check_spec(const struct cddpi_optim_spec *spec)
{
    if (!isfinite(spec->weight_decay) || spec->weight_decay < 0.0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "optimizer: weight_decay %g is not >= 0",
                          spec->weight_decay);
    }
    switch (spec->type) {
    case CDDPI_OPTIM_SGD:
        if (!isfinite(spec->momentum) || spec->momentum < 0.0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "optimizer: momentum %g is not >= 0",
                              spec->momentum);
        }
        if (spec->nesterov && spec->momentum == 0.0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "optimizer: nesterov needs a momentum");
        }
        return CDDP_OK;
    case CDDPI_OPTIM_ADAMW:
        if (!is_fraction(spec->beta1) || !is_fraction(spec->beta2)) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "optimizer: beta1 %g and beta2 %g must be >= 0 and below 1",
                              spec->beta1, spec->beta2);
        }
        if (!isfinite(spec->epsilon) || spec->epsilon < 0.0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "optimizer: epsilon %g is not >= 0",
                              spec->epsilon);
        }
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT, "optimizer: there is no type %d", (int)spec->type);
}

static cddp_status find_moved(struct cddpi_optim *optim, const cddp_param *params, size_t count)
{
    optim->trainable = cddpi_zalloc_array(count, sizeof *optim->trainable);
    CDDPI_TRY_MEMORY(optim->trainable != NULL, "optimizer: no memory for %zu parameters", count);
    for (size_t i = 0; i < count; i++) {
        if ((params[i].flags & CDDP_PARAM_FROZEN) != 0) {
            continue;
        }
        if (params[i].type != CDDP_F32) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "optimizer: parameter \"%s\" is %s, but only f32 can be trained",
                              params[i].name, cddp_type_name(params[i].type));
        }
        optim->trainable[optim->trainable_count++] = (struct cddpi_optim_trainable){
            .index = i,
            .count = cddpi_elements(params[i].dims, params[i].shape),
            .offset = optim->full_elements};
        optim->full_elements += cddpi_elements(params[i].dims, params[i].shape);
    }
    return CDDP_OK;
}

/* One slot for each parameter, or for each span of this rank; both in the order of parameters. */
static cddp_status fill_slots(struct cddpi_optim *optim, const cddp_param *params,
                              const bool *decays)
{
    size_t spans = optim->trainable_count;
    size_t next = 0;
    const cddp_span *span = optim->group == NULL
                                ? NULL
                                : cddp_ddp_spans(optim->ddp, cddp_group_rank(optim->group), &spans);

    optim->step = cddpi_zalloc_array(1 + optim->trainable_count, sizeof *optim->step);
    optim->slots = cddpi_zalloc_array(spans, sizeof *optim->slots);
    CDDPI_TRY_MEMORY(optim->slots != NULL && optim->step != NULL,
                     "optimizer: no memory for %zu parameters", optim->trainable_count);
    for (size_t i = 0; i < optim->trainable_count; i++) {
        const struct cddpi_optim_trainable *param = &optim->trainable[i];
        cddp_span own = {param->index, 0, param->count};
        struct cddpi_optim_slot *slot = &optim->slots[optim->slot_count];

        if (optim->group != NULL) {
            if (next == spans || span[next].param != param->index) {
                continue; /* another rank updates this parameter */
            }
            own = span[next++];
        }
        slot->index = own.param;
        slot->first = own.first;
        slot->data = (float *)params[own.param].data + own.first;
        slot->count = own.count;
        slot->decays = optim->spec.decay_all || decays == NULL || decays[own.param];
        slot->steps = &optim->step[1 + i];
        optim->slot_count++;
    }
    return CDDP_OK;
}

/* Round up, so that the next tensor begins on a cache line. */
static size_t padded(size_t count)
{
    return cddpi_align_to(count, CDDPI_ALIGNMENT / sizeof(float));
}

static cddp_status make_state(struct cddpi_optim *optim)
{
    size_t moments = cddpi_optim_moment_count(optim);
    size_t each = 0;
    size_t at = 0;

    for (size_t i = 0; i < optim->slot_count; i++) {
        each += padded(optim->slots[i].count);
    }
    optim->moments = cddpi_alloc_aligned(each * moments * sizeof(float));
    CDDPI_TRY_MEMORY(optim->moments != NULL, "optimizer: no memory for %zu bytes of state",
                     each * moments * sizeof(float));
    memset(optim->moments, 0, each * moments * sizeof(float));
    optim->moment_elements = each * moments;
    for (size_t i = 0; i < optim->slot_count; i++) {
        struct cddpi_optim_slot *slot = &optim->slots[i];

        for (size_t moment = 0; moment < moments; moment++) {
            slot->moments[moment] = optim->moments + at;
            at += padded(slot->count);
        }
    }
    return CDDP_OK;
}

size_t cddpi_optim_state_bytes(const struct cddpi_optim *optim, size_t index)
{
    size_t bytes = 0;

    for (size_t i = 0; i < optim->slot_count; i++) {
        if (optim->slots[i].index == index) {
            bytes += padded(optim->slots[i].count) * cddpi_optim_moment_count(optim) *
                     sizeof(float);
        }
    }
    return bytes;
}

/* Add a tensor to the state, with the name "prefix.name". False: out of memory. */
static bool add_tensor(struct cddpi_optim *optim, const char *prefix, const char *name,
                       cddp_param tensor)
{
    tensor.name = cddpi_format("%s%s%s", prefix, name[0] != '\0' ? "." : "", name);
    if (tensor.name == NULL) {
        return false;
    }
    optim->tensors[optim->tensor_count++] = tensor;
    return true;
}

static bool add_counters(struct cddpi_optim *optim)
{
    int64_t count = (int64_t)optim->trainable_count;

    return add_tensor(optim, "step", "", (cddp_param){.type = CDDP_I64, .data = optim->step}) &&
           (!ops_of(optim)->counts_steps || add_tensor(optim, "param_steps", "",
                                                       (cddp_param){.type = CDDP_I64,
                                                                    .dims = 1,
                                                                    .shape = {count},
                                                                    .data = optim->step + 1}));
}

/* Set the data pointers if they are known; if sharded, they are set once full tensors are
 * allocated. */
static bool add_moments(struct cddpi_optim *optim, size_t index, const cddp_param *param,
                        size_t moments)
{
    for (size_t moment = 0; moment < moments; moment++) {
        cddp_param tensor = {.type = CDDP_F32,
                             .dims = param->dims,
                             .data = optim->group == NULL ? optim->slots[index].moments[moment]
                                                          : NULL};

        memcpy(tensor.shape, param->shape, sizeof tensor.shape);
        if (!add_tensor(optim, ops_of(optim)->moment_names[moment], param->name, tensor)) {
            return false;
        }
    }
    return true;
}

static cddp_status make_tensors(struct cddpi_optim *optim, const cddp_param *params)
{
    size_t moments = cddpi_optim_moment_count(optim);
    size_t most = 2 + moments * optim->trainable_count;
    bool made;

    optim->tensors = cddpi_zalloc_array(most, sizeof *optim->tensors);
    made = optim->tensors != NULL && add_counters(optim);
    for (size_t i = 0; i < optim->trainable_count && made; i++) {
        made = add_moments(optim, i, &params[optim->trainable[i].index], moments);
    }
    return made ? CDDP_OK
                : cddpi_fail(CDDP_ERR_NO_MEMORY, "optimizer: no memory for %zu tensors", most);
}

/* On the CPU, updates use the CPU's tensors directly. */
static cddp_status nothing_to_move(struct cddpi_optim *optim)
{
    (void)optim;
    return CDDP_OK;
}

static void nothing_to_leave(struct cddpi_optim *optim)
{
    (void)optim;
}

const struct cddpi_optim_placement cddpi_optim_on_cpu = {
    .fetch = nothing_to_move, .send = nothing_to_move, .leave = nothing_to_leave};

cddp_status cddpi_optim_fetch(struct cddpi_optim *optim)
{
    return optim->placement->fetch(optim);
}

cddp_status cddpi_optim_send(struct cddpi_optim *optim)
{
    return optim->placement->send(optim);
}

cddp_status cddpi_optim_create(const struct cddpi_optim_spec *spec, const cddp_param *params,
                               const bool *decays, size_t count, cddp_group *group, cddp_ddp *ddp,
                               struct cddpi_optim **out)
{
    struct cddpi_optim *optim;
    cddp_status status;

    CDDPI_TRY(check_spec(spec));
    optim = cddpi_zalloc(sizeof *optim);
    CDDPI_TRY_MEMORY(optim != NULL, "optimizer: no memory for %zu bytes", sizeof *optim);
    optim->spec = *spec;
    optim->placement = &cddpi_optim_on_cpu;
    optim->kernels = cddpi_optim_kernels();
    optim->group = group;
    optim->ddp = ddp;
    CDDPI_TRY_GOTO(fail, status, find_moved(optim, params, count));
    CDDPI_TRY_GOTO(fail, status, fill_slots(optim, params, decays));
    CDDPI_TRY_GOTO(fail, status, make_state(optim));
    CDDPI_TRY_GOTO(fail, status, make_tensors(optim, params));
    *out = optim;
    return CDDP_OK;

fail:
    cddpi_optim_destroy(optim);
    return status;
}

void cddpi_optim_destroy(struct cddpi_optim *optim)
{
    if (optim == NULL) {
        return;
    }
    cddpi_optim_free_full_state(optim); /* of which tensors tell where it is */
    for (size_t i = 0; i < optim->tensor_count; i++) {
        cddpi_free((char *)(uintptr_t)optim->tensors[i].name);
    }
    cddpi_free(optim->tensors);
    cddpi_free(optim->moments);
    cddpi_free(optim->step);
    cddpi_free(optim->slots);
    cddpi_free(optim->trainable);
    optim->placement->leave(optim);
    cddpi_free(optim);
}

/* Elements of a piece: its gradients, moments and parameters stay in or near the L1 cache. It has
 * whole blocks, as each slot but for its end. */
enum { PIECE = 2048 };
_Static_assert(PIECE % CDDPI_OPTIM_BLOCK == 0, "a piece ends within a block");

/* Call @p use with the gradient of every slot, piece by piece, which may be reduced only now. */
typedef void (*use_fn)(const struct cddpi_optim *optim, const struct cddpi_optim_slot *piece,
                       const float *grad, void *context);

static void for_each_piece(const struct cddpi_optim *optim, void *const *grads, use_fn use,
                           void *context)
{
    _Alignas(CDDPI_ALIGNMENT) float scratch[PIECE];

    for (size_t i = 0; i < optim->slot_count; i++) {
        const struct cddpi_optim_slot *slot = &optim->slots[i];
        const float *whole = grads[slot->index];

        for (size_t at = 0; whole != NULL && at < slot->count; at += PIECE) {
            struct cddpi_optim_slot piece = *slot;
            const float *grad = whole + at;

            piece.data += at;
            piece.count = slot->count - at < PIECE ? slot->count - at : PIECE;
            for (int m = 0; m < CDDPI_OPTIM_MOMENTS; m++) {
                piece.moments[m] = slot->moments[m] != NULL ? slot->moments[m] + at : NULL;
            }
            if (optim->group != NULL) {
                grad = cddpi_ddp_mean(optim->ddp, slot->index, slot->first + at, piece.count,
                                      scratch);
            }
            use(optim, &piece, grad, context);
        }
    }
}

struct optim_step {
    double lr, grad_scale;
    struct cddpi_exact_sum *squares; /* NULL: not needed */
};

static void add_squares(const struct cddpi_optim *optim, const struct cddpi_optim_slot *piece,
                        const float *grad, void *sum)
{
    optim->kernels->add_squares(grad, piece->count, sum);
}

static void update(const struct cddpi_optim *optim, const struct cddpi_optim_slot *piece,
                   const float *grad, void *context)
{
    const struct optim_step *step = context;

    if (step->squares != NULL) {
        add_squares(optim, piece, grad, step->squares);
    }
    ops_of(optim)->update(optim, piece, grad, step->lr, step->grad_scale);
}

void cddpi_optim_step(struct cddpi_optim *optim, void *const *grads, double lr, double grad_scale,
                      struct cddpi_exact_sum *squares)
{
    struct optim_step step = {lr, grad_scale, squares};

    for (size_t i = 0; i < optim->trainable_count; i++) {
        optim->step[1 + i] += grads[optim->trainable[i].index] != NULL;
    }
    for_each_piece(optim, grads, update, &step);
    ++*optim->step;
}

void cddpi_optim_add_squares(const struct cddpi_optim *optim, void *const *grads,
                             struct cddpi_exact_sum *sum)
{
    for_each_piece(optim, grads, add_squares, sum);
}

const cddp_param *cddpi_optim_tensors(struct cddpi_optim *optim, size_t *out_count)
{
    *out_count = optim->tensor_count;
    return optim->tensors;
}

size_t cddpi_optim_part_count(const struct cddpi_optim *optim)
{
    return optim->slot_count;
}

struct cddpi_optim_part cddpi_optim_part(const struct cddpi_optim *optim, size_t index)
{
    const struct cddpi_optim_slot *slot = &optim->slots[index];
    struct cddpi_optim_part part = {
        .param = slot->index, .first = slot->first, .count = slot->count, .data = slot->data};

    memcpy(part.moments, slot->moments, sizeof part.moments);
    return part;
}
