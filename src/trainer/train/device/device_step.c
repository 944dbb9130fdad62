/* device_step.c - owns the few numbers that control the end of a step on a device, and their copies
 * back to the host. */
#include "train/device/device_step.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/group_info.h"
#include "kernels/cuda/cuda_kernels.h"
#include "train/batch_sizes.h"
#include "train/engines/engine.h"

#include <math.h>
#include <stddef.h>

enum { SLOTS = 4 }; /* updates whose results are under way, at most */

/* Their layout in device memory. */
struct step_scalars {
    struct cddpi_exact_sum squares; /* over all gradients, still scaled */
    double norm;
    float factor; /* the update multiplies gradients by this */
    float loss_scale;
    int32_t skip;
    int32_t good_steps;
};

/* When the parts of a step began in the compute stream. */
struct device_step_times {
    struct cddpi_event **begun; /* two per micro-batch: forward, backward */
    int marks;
    struct cddpi_event *updating, *ended;
    struct cddpi_step_mode mode;
};

struct cddpi_device_step {
    struct cddpi_trainer *trainer; /* borrowed */
    struct cddpi_device *device;
    bool scales;
    struct step_scalars *scalars;      /* in device memory */
    struct step_scalars *host_scalars; /* pinned: copies of SLOTS updates */
    struct cddpi_event *copied[SLOTS];
    bool has_norm[SLOTS];
    struct device_step_times times[SLOTS];
    int max_marks;
    uint64_t put, got; /* number of updates */
};

static cddp_status make_times(struct cddpi_device_step *step, struct device_step_times *times)
{
    const struct cddpi_device_ops *ops = step->device->ops;

    times->begun = cddpi_zalloc_array((size_t)step->max_marks, sizeof *times->begun);
    CDDPI_TRY_MEMORY(times->begun != NULL, "trainer: no memory for %d marks", step->max_marks);
    for (int i = 0; i < step->max_marks; i++) {
        CDDPI_TRY(ops->event_create(step->device, true, &times->begun[i]));
    }
    CDDPI_TRY(ops->event_create(step->device, true, &times->updating));
    return ops->event_create(step->device, true, &times->ended);
}

static void drop_times(struct cddpi_device_step *step, struct device_step_times *times)
{
    const struct cddpi_device_ops *ops = step->device->ops;

    for (int i = 0; times->begun != NULL && i < step->max_marks; i++) {
        ops->event_destroy(step->device, times->begun[i]);
    }
    ops->event_destroy(step->device, times->updating);
    ops->event_destroy(step->device, times->ended);
    cddpi_free(times->begun);
}

/* Let the update also write the parameter copies that matrix products read. It has each new value
 * in a register, so this moves 2 bytes per element, where a separate cast would move 6. With a
 * sharded optimizer, ranks all-gather these copies (ddp/copies.h). */
static cddp_status bind_copies(const struct cddpi_trainer *trainer)
{
    void **copies = cddpi_zalloc_array(trainer->params.count, sizeof *copies);

    CDDPI_TRY_MEMORY(copies != NULL, "optimizer: no memory for %zu parameters",
                     trainer->params.count);
    for (size_t i = 0; i < trainer->params.count; i++) {
        size_t own;
        const struct cddpi_model *model = cddpi_trainer_model_of(trainer, i, &own);

        copies[i] = cddpi_model_param_copy(model, own);
    }
    cddpi_optim_device_copies(trainer->step.optim, cddpi_model_copy_type(trainer->model), copies);
    cddpi_free(copies);
    return CDDP_OK;
}

static cddp_status init_step(struct cddpi_device_step *step)
{
    const struct cddpi_device_ops *ops = step->device->ops;
    void *memory = NULL;

    CDDPI_TRY(ops->alloc(step->device, sizeof *step->scalars, "the end of a step", &memory));
    step->scalars = memory;
    CDDPI_TRY(ops->pin(step->device, SLOTS * sizeof *step->host_scalars, &memory));
    step->host_scalars = memory;
    CDDPI_TRY(ops->clear(step->device, CDDPI_STREAM_COMPUTE, step->scalars, sizeof *step->scalars));
    for (int i = 0; i < SLOTS; i++) {
        CDDPI_TRY(ops->event_create(step->device, false, &step->copied[i]));
        CDDPI_TRY(make_times(step, &step->times[i]));
    }
    if (step->scales) {
        CDDPI_TRY(cddpi_device_step_send_scale(step));
    }
    return bind_copies(step->trainer);
}

cddp_status cddpi_device_step_create(struct cddpi_trainer *trainer, bool scales,
                                     struct cddpi_device_step **out)
{
    int chunks = trainer->models.count > 1 ? trainer->models.count : 1;
    int forwards = (trainer->engine->forwards > 0 ? trainer->engine->forwards : 1) * chunks *
                   (int)cddpi_trainer_micro_batches(trainer->config, trainer->replicas.count);
    struct cddpi_device_step *step = cddpi_zalloc(sizeof *step);
    cddp_status status;

    CDDPI_TRY_MEMORY(step != NULL, "trainer: no memory for %zu bytes", sizeof *step);
    *step = (struct cddpi_device_step){
        .trainer = trainer, .device = trainer->device, .scales = scales, .max_marks = 2 * forwards};
    status = init_step(step);
    if (status != CDDP_OK) {
        cddpi_device_step_destroy(step);
        return status;
    }
    *out = step;
    return CDDP_OK;
}

void cddpi_device_step_destroy(struct cddpi_device_step *step)
{
    if (step == NULL) {
        return;
    }
    for (int i = 0; i < SLOTS; i++) {
        step->device->ops->event_destroy(step->device, step->copied[i]);
        drop_times(step, &step->times[i]);
    }
    step->device->ops->release(step->device, step->scalars);
    step->device->ops->unpin(step->device, step->host_scalars);
    cddpi_free(step);
}

const float *cddpi_device_step_loss_scale(const struct cddpi_device_step *step)
{
    return step->scales ? &step->scalars->loss_scale : NULL;
}

cddp_status cddpi_device_step_send_scale(struct cddpi_device_step *step)
{
    const struct cddpi_device_ops *ops = step->device->ops;
    float scale = step->trainer->step.loss_scale.scale;
    int32_t good_steps = (int32_t)step->trainer->step.loss_scale.good_steps;

    CDDPI_TRY(ops->copy(step->device, CDDPI_STREAM_COMPUTE, &step->scalars->loss_scale, &scale,
                        sizeof scale));
    CDDPI_TRY(ops->copy(step->device, CDDPI_STREAM_COMPUTE, &step->scalars->good_steps, &good_steps,
                        sizeof good_steps));
    return ops->finish(step->device, cddpi_group_timeout_ms(step->trainer->group));
}

/* The ranks whose squares add up to the whole model's; NULL: this one alone. */
static cddp_group *norm_group(const struct cddpi_trainer *trainer)
{
    if (trainer->engine->norm_group != NULL) {
        return trainer->engine->norm_group(trainer);
    }
    return trainer->config->ddp.shard_optimizer ? trainer->group : NULL;
}

/* Compute the factor for the gradients, and whether they are finite. */
static cddp_status find_factor(struct cddpi_device_step *step)
{
    struct cddpi_trainer *trainer = step->trainer;
    struct step_scalars *scalars = step->scalars;
    cddp_group *group = norm_group(trainer);

    CDDPI_TRY(cddpi_optim_device_squares(trainer->step.optim, &scalars->squares));
    if (group != NULL) {
        CDDPI_TRY(cddp_all_reduce(group, scalars->squares.parts, scalars->squares.parts,
                                  CDDPI_EXACT_PARTS, CDDP_I64, CDDP_OP_SUM, NULL));
    }
    return step->device->kernels->clip(
        step->device, &scalars->squares, cddpi_device_step_loss_scale(step),
        trainer->config->train.clip_norm, &scalars->factor, &scalars->skip, &scalars->norm);
}

/* Start copying the results to the host. */
static cddp_status send_back(struct cddpi_device_step *step, bool has_norm)
{
    const struct cddpi_device_ops *ops = step->device->ops;
    int slot = (int)(step->put % SLOTS);
    cddp_status status;

    if (step->put - step->got == SLOTS) {
        return cddpi_fail(CDDP_ERR_STATE,
                          "trainer: the results of %d updates are not collected yet, and there is "
                          "no room for more",
                          SLOTS);
    }
    status = ops->copy(step->device, CDDPI_STREAM_COMPUTE, &step->host_scalars[slot], step->scalars,
                       sizeof *step->scalars);
    if (status == CDDP_OK) {
        status = ops->record(step->device, step->copied[slot], CDDPI_STREAM_COMPUTE);
    }
    step->has_norm[slot] = has_norm;
    step->put++;
    return status;
}

cddp_status cddpi_device_step_mark(struct cddpi_device_step *step, enum cddpi_mark mark)
{
    struct device_step_times *times;

    if (step == NULL) {
        return CDDP_OK;
    }
    times = &step->times[step->put % SLOTS];
    if (times->marks % 2 != (int)mark || times->marks == step->max_marks) {
        return CDDP_OK; /* this step began before, and failed */
    }
    return step->device->ops->record(step->device, times->begun[times->marks++],
                                     CDDPI_STREAM_COMPUTE);
}

cddp_status cddpi_device_step_begin_replay(struct cddpi_device_step *step)
{
    struct device_step_times *times = &step->times[step->put % SLOTS];

    times->marks = 1;
    return step->device->ops->record(step->device, times->begun[0], CDDPI_STREAM_COMPUTE);
}

bool cddpi_device_step_has_factor(const struct cddpi_device_step *step)
{
    return step->scales || step->trainer->config->train.clip_norm > 0;
}

cddp_status cddpi_device_step_prepare(struct cddpi_device_step *step, double lr)
{
    return cddpi_optim_device_rate(step->trainer->step.optim, step->trainer->step.grads, lr);
}

cddp_status cddpi_device_step_work(struct cddpi_device_step *step, bool wants_norm)
{
    const struct cddpi_loss_scale *rule = &step->trainer->step.loss_scale;
    struct step_scalars *scalars = step->scalars;
    bool has_factor = cddpi_device_step_has_factor(step);

    if (has_factor || wants_norm) {
        CDDPI_TRY(find_factor(step));
    }
    CDDPI_TRY(cddpi_optim_device_update(step->trainer->step.optim,
                                        has_factor ? &scalars->factor : NULL,
                                        step->scales ? &scalars->skip : NULL));
    if (!step->scales) {
        return CDDP_OK;
    }
    return step->device->kernels->scale_loss(step->device, &scalars->skip, rule->growth,
                                             rule->backoff, rule->least, (int32_t)rule->interval,
                                             &scalars->loss_scale, &scalars->good_steps);
}

cddp_status cddpi_device_step_end(struct cddpi_device_step *step, bool wants_norm,
                                  struct cddpi_step_mode mode)
{
    struct cddpi_trainer *trainer = step->trainer;
    struct device_step_times *times = &step->times[step->put % SLOTS];
    cddp_status status;

    times->mode = mode;
    CDDPI_TRY_GOTO(end, status,
                   step->device->ops->record(step->device, times->ended, CDDPI_STREAM_COMPUTE));
    CDDPI_TRY_GOTO(end, status, send_back(step, cddpi_device_step_has_factor(step) || wants_norm));
    if (trainer->config->ddp.shard_optimizer) {
        status = cddp_ddp_params_start(trainer->ddp);
    }
end:
    cddpi_trainer_params_changed(trainer, true);
    return status;
}

cddp_status cddpi_device_step_update(struct cddpi_device_step *step, double lr, bool wants_norm,
                                     bool timed)
{
    struct device_step_times *times = &step->times[step->put % SLOTS];

    CDDPI_TRY(step->device->ops->record(step->device, times->updating, CDDPI_STREAM_COMPUTE));
    CDDPI_TRY(cddpi_device_step_prepare(step, lr));
    CDDPI_TRY(cddpi_device_step_work(step, wants_norm));
    return cddpi_device_step_end(step, wants_norm, (struct cddpi_step_mode){.timed = timed});
}

/* Add the time between two events to @p sum. */
static cddp_status add_time(const struct cddpi_device_step *step, struct cddpi_event *from,
                            struct cddpi_event *to, int64_t *sum)
{
    float ms = 0;
    cddp_status status = step->device->ops->elapsed(step->device, from, to, &ms);

    *sum += (int64_t)((double)ms * 1e6);
    return status;
}

static cddp_status take_times(const struct cddpi_device_step *step, struct device_step_times *times,
                              struct cddpi_step_result *out)
{
    int parts = times->mode.replays ? 0 : times->marks;

    out->mode = times->mode;
    if (times->marks > 0) { /* otherwise this rank had no samples */
        CDDPI_TRY(add_time(step, times->begun[0], times->ended, &out->step_ns));
    }
    times->marks = 0;
    if (!times->mode.replays) {
        CDDPI_TRY(add_time(step, times->updating, times->ended, &out->optimizer_ns));
    }
    for (int i = 0; i < parts; i++) {
        struct cddpi_event *next = i + 1 < parts ? times->begun[i + 1] : times->updating;

        CDDPI_TRY(add_time(step, times->begun[i], next,
                           i % 2 == 0 ? &out->forward_ns : &out->backward_ns));
    }
    return CDDP_OK;
}

int cddpi_device_step_pending(const struct cddpi_device_step *step)
{
    return step != NULL ? (int)(step->put - step->got) : 0;
}

cddp_status cddpi_device_step_take(struct cddpi_device_step *step, struct cddpi_step_result *out)
{
    struct cddpi_trainer *trainer = step->trainer;
    int slot = (int)(step->got % SLOTS);
    const struct step_scalars *scalars = &step->host_scalars[slot];

    if (step->got == step->put) {
        return cddpi_fail(CDDP_ERR_STATE,
                          "trainer: the results of all updates are collected already");
    }
    CDDPI_TRY(step->device->ops->wait(step->device, step->copied[slot],
                                      cddpi_group_timeout_ms(trainer->group)));
    *out = (struct cddpi_step_result){0};
    CDDPI_TRY(take_times(step, &step->times[slot], out));
    step->got++;
    out->norm = step->has_norm[slot] ? scalars->norm : (double)NAN;
    out->skipped = step->scales && scalars->skip != 0;
    if (step->scales) {
        trainer->step.loss_scale.scale = scalars->loss_scale;
        trainer->step.loss_scale.good_steps = scalars->good_steps;
        trainer->step.loss_scale.skipped += out->skipped;
    }
    if (out->skipped) {
        cddpi_optim_skipped(trainer->step.optim, step->put - step->got);
    }
    return CDDP_OK;
}
