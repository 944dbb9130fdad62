/* checkpoint.c - writes where a run is. Only rank 0 touches files. */
#include "train/checkpoint.h"

#include "base/alloc.h"
#include "base/at_work.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/shape.h"
#include "group/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *cddpi_checkpoint_order(const struct cddpi_trainer *trainer)
{
    static const char *const names[] = {"random", "torch", "sequential"};

    return names[trainer->config->data.order];
}

/* The same text in every run of the same configuration: no times, no names. */
static char *state_text(const struct cddpi_trainer *trainer)
{
    json_t *state = json_pack(
        "{s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:s}", "step", (json_int_t)trainer->at.step, "epoch",
        (json_int_t)trainer->at.epoch, "position", (json_int_t)trainer->at.position, "seed",
        (json_int_t)trainer->config->train.seed, "order", cddpi_checkpoint_order(trainer),
        "batch_size", (json_int_t)trainer->config->train.batch_size, "samples",
        (json_int_t)trainer->train_data.count, "cddp", cddp_version());
    char *text = NULL;

    /* no shape tells how many heads there are: for who reads the parameters elsewhere */
    if (state != NULL && (trainer->heads == 0 ||
                          json_object_set_new(state, "heads", json_integer(trainer->heads)) == 0)) {
        text = json_dumps(state, JSON_SORT_KEYS | JSON_INDENT(1));
    }
    json_decref(state);
    return text;
}

bool cddpi_checkpoint_has_scale(const struct cddpi_trainer *trainer)
{
    return trainer->config->train.precision == CDDPI_PRECISION_FP16;
}

void cddpi_checkpoint_release(cddp_snapshot *snapshot)
{
    cddpi_free((void *)(uintptr_t)snapshot->model);
    cddpi_free((void *)(uintptr_t)snapshot->optimizer);
}

/* The optimizer's tensors, and the loss scale's where losses are scaled; cddpi_free(). */
static cddp_tensor *optimizer_tensors(struct cddpi_trainer *trainer, size_t *out_count)
{
    size_t count = 0;
    size_t scales = 0;
    const cddp_tensor *tensors = cddpi_optim_tensors(trainer->optim, &count);
    const cddp_tensor *scale = cddpi_loss_scale_tensors(&trainer->loss_scale, &scales);
    cddp_tensor *all = cddpi_zalloc_array(count + scales, sizeof *all);

    if (all != NULL) {
        memcpy(all, tensors, count * sizeof *all);
        memcpy(all + count, scale, scales * sizeof *all);
        *out_count = count + (cddpi_checkpoint_has_scale(trainer) ? scales : 0);
    }
    return all;
}

cddp_status cddpi_checkpoint_tensors(struct cddpi_trainer *trainer, cddp_snapshot *out)
{
    memset(out, 0, sizeof *out);
    out->step = trainer->at.step;
    out->model = cddpi_trainer_model_tensors(trainer);
    out->model_count = trainer->param_count + trainer->buffer_count;
    out->optimizer = optimizer_tensors(trainer, &out->optimizer_count);
    if (out->model == NULL || out->optimizer == NULL) {
        cddpi_checkpoint_release(out);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory");
    }
    return CDDP_OK;
}

/* A rank or a device that fails ends reductions early, and what the update made of them must not
 * become a file. That it did is known by now, but nobody may have asked. */
static cddp_status check_done(const struct cddpi_trainer *trainer)
{
    return cddpi_is_cuda(trainer->device) ? cddpi_group_verify(trainer->group) : CDDP_OK;
}

cddp_status cddpi_trainer_assemble(struct cddpi_trainer *trainer, bool everywhere)
{
    cddp_status status = cddpi_trainer_settle(trainer, 0, NULL); /* which steps were skipped */

    if (status == CDDP_OK && trainer->config->ddp.shard_optimizer) {
        status = cddp_ddp_params_wait(trainer->ddp);
    }
    if (status == CDDP_OK && (everywhere || trainer->rank == 0)) {
        status = cddpi_trainer_fetch(trainer);
    }
    if (status == CDDP_OK && (trainer->config->ddp.shard_optimizer || trainer->rank == 0)) {
        status = cddpi_optim_fetch(trainer->optim);
    }
    if (status == CDDP_OK) {
        status = check_done(trainer);
    }
    return status == CDDP_OK ? cddpi_optim_assemble(trainer->optim) : status;
}

/* A step may leave numbers in the parameters that no later one can use: whoever goes on from them
 * would fail for ever. The loss tells of it only in the next step. */
static cddp_status check_finite(const cddp_snapshot *snapshot)
{
    for (size_t t = 0; t < snapshot->model_count; t++) {
        const cddp_tensor *tensor = &snapshot->model[t];
        const float *values = tensor->data;
        size_t count = cddpi_elements(tensor->dims, tensor->shape);
        size_t i = 0;

        while (tensor->type == CDDP_F32 && i < count && isfinite(values[i])) {
            i++;
        }
        if (tensor->type == CDDP_F32 && i < count) {
            return cddpi_fail(CDDP_ERR_STATE,
                              "%s has become %g (element %zu of %zu), so nothing is written: the "
                              "learning rate may be too high",
                              tensor->name, (double)values[i], i, count);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_trainer_save(struct cddpi_trainer *trainer)
{
    char *text = state_text(trainer);
    cddp_snapshot snapshot;
    cddp_status status;

    trainer->saved_ns = cddpi_now_ns();
    if (text == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "checkpoint: no memory");
    }
    status = cddpi_checkpoint_tensors(trainer, &snapshot);
    if (status == CDDP_OK) {
        snapshot.state_json = text;
        status = check_finite(&snapshot);
        if (status == CDDP_OK) {
            status = cddp_snapshot_write(trainer->checkpoints, &snapshot,
                                         (unsigned)trainer->config->train.keep);
        }
        cddpi_checkpoint_release(&snapshot);
    }
    if (status == CDDP_OK) {
        trainer->saved_step = trainer->at.step;
        cddpi_at_work_saved();
    } else {
        (void)cddpi_fail_prefix(status, "checkpoint of step %llu",
                                (unsigned long long)trainer->at.step);
    }
    cddpi_optim_drop_whole(trainer->optim);
    free(text);
    return status;
}
