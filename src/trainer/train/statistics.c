/* statistics.c - owns the reducer of a step's statistics, and their memory. */
#include "train/statistics.h"

#include "base/alloc.h"
#include "base/error.h"
#include "ddp/copies.h"

#include <cddp/sampler.h>

struct cddpi_statistics {
    cddp_ddp *ddp; /* its parameters are the running statistics */
    int rank, replicas;
    size_t count;   /* of running statistics, of all models one after the other */
    float **memory; /* one for each: of a micro-batch, then the step's sums */
    struct cddpi_model *models[CDDPI_TRAINER_CHUNKS];
    size_t first[CDDPI_TRAINER_CHUNKS + 1]; /* of each model; then the end */
    int model_count;
    /* in a pipeline's run: whether there is any micro-batch, and forwards that are left */
    bool has_run;
    uint64_t left[CDDPI_TRAINER_CHUNKS];
};

/* The models compute with the buffers that the trainer has, and not with copies on a device. */
static cddp_status take_models(const struct cddpi_trainer *trainer, struct cddpi_statistics *out)
{
    size_t next = 0;

    for (int m = 0; m < trainer->models.count; m++) {
        struct cddpi_model *model = trainer->models.list[m].model;
        size_t count;
        const cddp_param *own = cddpi_model_buffers(model, &count);

        for (size_t i = 0; i < count; i++) {
            if (own[i].data != trainer->buffers.list[next + i].data) {
                return cddpi_config_fail(trainer->config, "train.micro_batch",
                                         "%s would be updated on a GPU beside other devices of the "
                                         "rank, which is not possible: start a rank for each GPU",
                                         own[i].name);
            }
        }
        out->models[m] = model;
        out->first[m] = next;
        next += count;
        out->first[m + 1] = next;
    }
    out->model_count = trainer->models.count;
    return CDDP_OK;
}

static cddp_status create_reducer(const struct cddpi_trainer *trainer, struct cddpi_statistics *out)
{
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;

    options.bucket_bytes = (size_t)25 << 20; /* nearly always one bucket, however slow the link */
    options.first_bucket_bytes = options.bucket_bytes;
    out->memory = cddpi_zalloc_array(out->count, sizeof *out->memory);
    CDDPI_TRY_MEMORY(out->memory != NULL, "trainer: no memory for running statistics");
    CDDPI_TRY(cddp_ddp_create(trainer->replicas.group, trainer->buffers.list, out->count, NULL, 0,
                              &options, &out->ddp));
    for (size_t i = 0; i < out->count; i++) {
        out->memory[i] = cddp_ddp_grad(out->ddp, i);
    }
    return CDDP_OK;
}

cddp_status cddpi_statistics_create(struct cddpi_trainer *trainer, struct cddpi_statistics **out)
{
    struct cddpi_statistics *statistics;
    cddp_status status;

    *out = NULL;
    if (!cddpi_trainer_has_same_bits(trainer) || trainer->buffers.count == 0) {
        return CDDP_OK;
    }
    statistics = cddpi_zalloc(sizeof *statistics);
    CDDPI_TRY_MEMORY(statistics != NULL, "trainer: no memory for running statistics");
    statistics->rank = trainer->replicas.rank;
    statistics->replicas = trainer->replicas.count;
    statistics->count = trainer->buffers.count;
    status = take_models(trainer, statistics);
    status = status == CDDP_OK ? create_reducer(trainer, statistics) : status;
    if (status != CDDP_OK) {
        cddpi_statistics_destroy(statistics);
        return status;
    }
    cddpi_statistics_bind(statistics);
    *out = statistics;
    return CDDP_OK;
}

void cddpi_statistics_destroy(struct cddpi_statistics *statistics)
{
    if (statistics == NULL) {
        return;
    }
    cddp_ddp_destroy(statistics->ddp);
    cddpi_free(statistics->memory);
    cddpi_free(statistics);
}

void cddpi_statistics_bind(const struct cddpi_statistics *statistics)
{
    for (int m = 0; statistics != NULL && m < statistics->model_count; m++) {
        cddpi_model_bind_statistics(statistics->models[m],
                                    statistics->memory + statistics->first[m]);
    }
}

static cddp_status blend(const struct cddpi_statistics *statistics)
{
    for (int m = 0; m < statistics->model_count; m++) {
        CDDPI_TRY(cddpi_model_blend_statistics(statistics->models[m],
                                               statistics->memory + statistics->first[m]));
    }
    return CDDP_OK;
}

cddp_status cddpi_statistics_add(struct cddpi_statistics *statistics, const cddp_step *step)
{
    cddp_share own;

    if (statistics == NULL) {
        return CDDP_OK;
    }
    own = cddp_share_of(0, step->micro_batches, statistics->rank, statistics->replicas);
    CDDPI_TRY(cddp_ddp_begin(statistics->ddp, step));
    if (own.count > 0) {
        CDDPI_TRY(cddp_ddp_grads_ready(statistics->ddp, 0, statistics->count));
    }
    CDDPI_TRY(cddp_ddp_wait(statistics->ddp));
    return own.count > 0 && step->micro_batch + 1 < own.first + own.count ? CDDP_OK
                                                                          : blend(statistics);
}

cddp_status cddpi_statistics_begin_run(struct cddpi_statistics *statistics, const cddp_step *step)
{
    cddp_share own;

    if (statistics == NULL) {
        return CDDP_OK;
    }
    own = cddp_share_of(0, step->micro_batches, statistics->rank, statistics->replicas);
    for (int m = 0; m < statistics->model_count; m++) {
        statistics->left[m] = own.count;
    }
    statistics->has_run = own.count > 0;
    return cddpi_ddp_begin_run(statistics->ddp, step);
}

/* What the last forward of model @p m has written is complete. */
static cddp_status model_ready(const struct cddpi_statistics *statistics, int m)
{
    for (size_t i = statistics->first[m]; i < statistics->first[m + 1]; i++) {
        CDDPI_TRY(cddpi_ddp_run_grad_ready(statistics->ddp, i));
    }
    return CDDP_OK;
}

/* What the run's last forward has written stays where it is until the end, as it would start the
 * collectives. */
cddp_status cddpi_statistics_forwarded(struct cddpi_statistics *statistics, int model)
{
    return statistics == NULL || --statistics->left[model] == 0 ? CDDP_OK
                                                                : model_ready(statistics, model);
}

cddp_status cddpi_statistics_end_run(struct cddpi_statistics *statistics)
{
    if (statistics == NULL) {
        return CDDP_OK;
    }
    for (int m = 0; m < statistics->model_count && statistics->has_run; m++) {
        CDDPI_TRY(model_ready(statistics, m));
    }
    CDDPI_TRY(cddp_ddp_wait(statistics->ddp));
    return blend(statistics);
}
