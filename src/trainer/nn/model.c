/* model.c - owns the model's life: creation from a description, the cache of plans, the arena that
 * plans share, and the smaller functions of model.h. */
#include "nn/model.h"
#include "nn/cpu/dnnl.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "group/group_info.h"
#include "nn/model_state.h"

static cddp_status declare_params(struct cddpi_model *model)
{
    struct cddpi_graph *graph = &model->graph;

    for (int i = 0; i < graph->op_count; i++) {
        struct cddpi_op *op = &graph->ops[i];

        if (op->ops->declare != NULL) {
            cddp_status status = op->ops->declare(model, op);

            if (status != CDDP_OK) {
                return cddpi_fail_prefix(status, "layer \"%s\"", op->layer.name);
            }
        }
        if (op->output >= 0) {
            bool needs = op->params[0] >= 0;

            for (int k = 0; k < op->input_count; k++) {
                needs = needs || graph->values[op->inputs[k]].needs_grad;
            }
            graph->values[op->output].needs_grad = needs;
        }
    }
    if (model->params.count == 0) {
        return cddpi_fail(CDDP_ERR_CONFIG, "model: no layer has parameters to train");
    }
    return CDDP_OK;
}

/* The order of backward: ops in reverse, and within an op the bias before the weight. A parameter
 * that several ops use comes with the last of them. */
static void order_params(struct cddpi_model *model)
{
    struct cddpi_graph *graph = &model->graph;
    size_t *next = model->ready_order;

    for (int i = 0; i < graph->op_count; i++) {
        for (int k = 0; k < CDDPI_OP_PARAMS; k++) {
            if (graph->ops[i].params[k] >= 0) {
                model->param_states[graph->ops[i].params[k]].grads_expected++;
            }
        }
    }
    for (int i = graph->op_count - 1; i >= 0; i--) {
        for (int k = CDDPI_OP_PARAMS - 1; k >= 0; k--) {
            int param = graph->ops[i].params[k];

            if (param >= 0 && ++model->param_states[param].grads_arrived ==
                                  model->param_states[param].grads_expected) {
                *next++ = (size_t)param;
            }
        }
    }
}

static cddp_status build(struct cddpi_model *model, const struct cddpi_model_spec *spec)
{
    CDDPI_TRY(cddpi_layers_expand(spec, &model->list));
    CDDPI_TRY(cddpi_graph_build(spec, &model->list, &model->graph));
    CDDPI_TRY(declare_params(model));
    if (spec->part.end > 0) {
        CDDPI_TRY(cddpi_model_cut(model, spec));
    }
    model->title = cddpi_strdup(spec->preset != NULL ? spec->preset : "layers");
    model->ready_order = cddpi_zalloc_array(model->params.count, sizeof *model->ready_order);
    CDDPI_TRY_MEMORY(model->title != NULL && model->ready_order != NULL,
                     "model: no memory for %zu parameters", model->params.count);
    order_params(model);
    CDDPI_TRY(cddpi_model_alloc_params(model));
    if (!spec->no_values) {
        cddpi_model_make_first_values(model);
    }
    return CDDP_OK;
}

static cddp_status check_kind(const struct cddpi_model_spec *spec,
                              const struct cddpi_model_ops *ops)
{
    if (spec->precision == CDDPI_PRECISION_FP16 && !ops->takes_fp16) {
        return cddpi_fail(CDDP_ERR_CONFIG, "model: fp16 is for CUDA devices; the CPU computes "
                                           "in f32 or bf16");
    }
    if (spec->split && spec->device->ops->kind != CDDPI_DEVICE_CPU) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "model: gradients of parameters are made apart from backward on the "
                          "processor only");
    }
    return CDDP_OK;
}

cddp_status cddpi_model_create(const struct cddpi_model_spec *given, uint64_t seed,
                               cddp_group *group, struct cddpi_model **out)
{
    static const struct cddpi_model_ops *const rows[CDDPI_DEVICE_KINDS] = {
        [CDDPI_DEVICE_CPU] = &cddpi_model_on_cpu, [CDDPI_DEVICE_CUDA] = &cddpi_model_on_cuda};
    struct cddpi_model_spec complete = *given;
    const struct cddpi_model_spec *spec = &complete;
    struct cddpi_model *model;
    cddp_status status;

    CDDPI_TRY(cddpi_model_spec_complete(&complete));
    model = cddpi_zalloc(sizeof *model);
    CDDPI_TRY_MEMORY(model != NULL, "model: no memory for %zu bytes", sizeof *model);
    complete.device = cddpi_device_or_cpu(given->device);
    model->device = spec->device;
    model->ops = rows[spec->device->ops->kind];
    model->timeout_ms = group != NULL ? cddpi_group_timeout_ms(group) : cddpi_env_timeout_ms();
    model->seed = seed;
    model->group = group;
    model->classes = spec->classes;
    model->recompute = spec->recompute;
    model->split = spec->split;
    model->invariant = spec->invariant;
    model->tokens_in = spec->vocab > 0;
    model->real_targets = spec->real_targets;
    model->predictions = spec->vocab > 0 ? spec->context : 1;
    model->loss = spec->loss;
    model->precision = spec->precision;
    CDDPI_TRY_GOTO(fail, status, check_kind(spec, model->ops));
    CDDPI_TRY_GOTO(fail, status, build(model, spec));
    CDDPI_TRY_GOTO(fail, status, model->ops->create(model, spec));
    CDDPI_TRY_GOTO(fail, status, cddpi_model_create_outputs(model));
    CDDPI_TRY_GOTO(fail, status, cddpi_compute_begin());
    *out = model;
    return CDDP_OK;

fail:
    cddpi_model_destroy(model);
    return status;
}

void cddpi_model_destroy(struct cddpi_model *model)
{
    if (model == NULL) {
        return;
    }
    for (int i = 0; i < CDDPI_MODEL_PLANS; i++) {
        cddpi_plan_destroy(model->plans[i]);
    }
    for (size_t i = 0; i < model->params.count; i++) {
        if (model->params_bound || model->param_states[i].is_shared) {
            model->params.items[i].data = NULL;
        }
    }
    cddpi_model_release_outputs(model);
    if (model->ops->destroy != NULL) {
        model->ops->destroy(model);
    }
    cddpi_dnnl_destroy(model->dnnl);
    cddpi_tensors_fini(&model->params);
    cddpi_tensors_fini(&model->buffers);
    cddpi_model_release_slots(model);
    cddpi_model_release_part(model);
    cddpi_graph_fini(&model->graph);
    cddpi_layer_list_fini(&model->list);
    cddpi_free(model->title);
    cddpi_free(model->param_states);
    cddpi_free(model->first_values);
    cddpi_free(model->ready_order);
    model->device->ops->release(model->device, model->regions[CDDPI_REGION_BATCH].data);
    cddpi_free(model);
}

void cddpi_model_bind_params(struct cddpi_model *model, void *const *data)
{
    if (!model->params_bound) {
        model->ops->release_params(model);
    }
    for (size_t i = 0; i < model->params.count; i++) {
        model->params.items[i].data = data[i];
    }
    model->params_bound = true;
    model->memory_version++;
}

void cddpi_model_on_param(struct cddpi_model *model, cddpi_param_wait_fn wait, void *context)
{
    model->param_wait = wait;
    model->param_wait_context = context;
}

const cddp_param *cddpi_model_params(const struct cddpi_model *model, size_t *out_count)
{
    *out_count = model->params.count;
    return model->params.items;
}

const cddp_param *cddpi_model_buffers(const struct cddpi_model *model, size_t *out_count)
{
    *out_count = model->buffers.count;
    return model->buffers.items;
}

bool cddpi_model_param_decays(const struct cddpi_model *model, size_t index)
{
    return model->param_states[index].info.decays;
}

const size_t *cddpi_model_ready_order(const struct cddpi_model *model)
{
    return model->ready_order;
}

void cddpi_model_bind_grads(struct cddpi_model *model, void *const *grads)
{
    for (size_t i = 0; i < model->params.count; i++) {
        void **grad = &model->param_states[i].grad;

        model->memory_version += *grad != grads[i] ? 1 : 0;
        *grad = grads[i];
    }
}

int cddpi_model_predictions(const struct cddpi_model *model)
{
    return model->predictions;
}

int cddpi_model_labels(const struct cddpi_model *model)
{
    return model->real_targets ? model->classes : model->predictions;
}

const float *cddpi_model_outputs(const struct cddpi_model *model)
{
    return model->device->ops->owns(model->device, model->last.outputs) ? NULL
                                                                        : model->last.outputs;
}

uint64_t cddpi_model_memory_version(const struct cddpi_model *model)
{
    return model->memory_version;
}

size_t cddpi_model_arena_bytes(const struct cddpi_model *model)
{
    size_t bytes = 0;

    for (int r = 0; r < CDDPI_REGIONS; r++) {
        bytes += model->regions[r].bytes;
    }
    for (int i = 0; model->slots != NULL && i < CDDPI_MODEL_SLOTS; i++) {
        /* the rows of the current slots are out of date */
        for (int r = 0; r < CDDPI_REGION_SCRATCH; r++) {
            bytes += i != model->places[r] ? model->slots[i].memory[r].bytes : 0;
        }
    }
    return bytes;
}

double cddpi_model_work(const struct cddpi_model *model)
{
    double work = 0;

    for (int i = 0; i < model->graph.op_count; i++) {
        const struct cddpi_op *op = &model->graph.ops[i];

        work += op->ops->work != NULL ? op->ops->work(op) : 0;
    }
    return work;
}

/* The place for a new plan: an empty one, or that of the least recently used plan. NULL: all plans
 * wait for a backward in other slots. */
static struct cddpi_plan **free_place(struct cddpi_model *model)
{
    struct cddpi_plan **oldest = NULL;

    for (int i = 0; i < CDDPI_MODEL_PLANS; i++) {
        struct cddpi_plan **place = &model->plans[i];

        if (*place == NULL) {
            return place;
        }
        if (!cddpi_model_waits_for(model, *place) &&
            (oldest == NULL || (*place)->used < (*oldest)->used)) {
            oldest = place;
        }
    }
    if (oldest == NULL) {
        return NULL;
    }
    if (model->last.pending == *oldest) {
        cddpi_model_forget_forward(model);
    }
    cddpi_plan_destroy(*oldest);
    *oldest = NULL;
    return oldest;
}

static cddp_status grow_arena(struct cddpi_model *model, const struct cddpi_plan *plan)
{
    if (plan->arena.bytes[CDDPI_REGION_BATCH] <= model->regions[CDDPI_REGION_BATCH].bytes) {
        return CDDP_OK;
    }
    model->memory_version++;
    return model->ops->grow_arena(model, plan->arena.bytes[CDDPI_REGION_BATCH], plan->count,
                                  plan->training);
}

cddp_status cddpi_model_plan(struct cddpi_model *model, int count, bool training,
                             struct cddpi_plan **out)
{
    struct cddpi_plan **place;
    struct cddpi_plan *plan = NULL;

    for (int i = 0; i < CDDPI_MODEL_PLANS && plan == NULL; i++) {
        struct cddpi_plan *candidate = model->plans[i];

        if (candidate != NULL && candidate->count == count && candidate->training == training) {
            plan = candidate;
        }
    }
    if (plan == NULL) {
        CDDPI_TRY(cddpi_plan_create(model, count, training, &plan));
        place = free_place(model);
        if (place == NULL) {
            cddpi_plan_destroy(plan);
            return cddpi_fail(CDDP_ERR_STATE,
                              "model: batches of %d other sizes wait for their backward",
                              CDDPI_MODEL_PLANS);
        }
        *place = plan;
    }
    plan->used = ++model->runs;
    CDDPI_TRY(grow_arena(model, plan));
    CDDPI_TRY(cddpi_model_grow_region(model, plan, CDDPI_REGION_KEPT));
    *out = plan;
    return CDDP_OK;
}

cddp_status cddpi_model_prepare(struct cddpi_model *model, int count, bool training)
{
    struct cddpi_plan *plan;

    CDDPI_TRY(cddpi_check_count(count, 1));
    return cddpi_model_plan(model, count, training, &plan);
}

cddp_status cddpi_model_estimate(struct cddpi_model *model, int count, bool recompute,
                                 struct cddpi_model_estimate *out)
{
    bool kept = model->recompute;
    struct cddpi_plan *plan = NULL;
    cddp_status status;

    CDDPI_TRY(cddpi_check_count(count, 1));
    model->recompute = recompute;
    status = cddpi_plan_create(model, count, true, &plan);
    model->recompute = kept;
    CDDPI_TRY(status);
    *out = (struct cddpi_model_estimate){cddpi_arena_total(&plan->arena),
                                         cddpi_plan_extra_work(plan)};
    cddpi_plan_destroy(plan);
    return CDDP_OK;
}
