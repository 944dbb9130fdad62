/* auto_micro_batch.c - chooses train.micro_batch = "auto". The choice depends on the machine and on
 * the number of ranks, and the bits of results depend on the choice. So a run keeps the number that
 * it began with, which the train.conf in its folder has. */
#include "train/auto_micro_batch.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/memory_left.h"
#include "base/shape.h"
#include "group/group_info.h"
#include "group/join/group_agree.h"
#include "report/metrics.h"
#include "train/batch_sizes.h"
#include "train/engines/engine.h"

#include <string.h>
#include <unistd.h>

static uint64_t gradient_bytes(const struct cddpi_model *model)
{
    size_t count = 0;
    const cddp_param *params = cddpi_model_params(model, &count);
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += cddpi_elements(params[i].dims, params[i].shape) * cddp_type_bytes(params[i].type);
    }
    return bytes;
}

/* A rank that has one micro-batch needs no partial sums; else one for each bit of their number at
 * most, and as much again to exchange them with other ranks. */
uint64_t cddpi_micro_batch_sums_bytes(const struct cddpi_config *config,
                                      const struct cddpi_model *model, int replicas,
                                      int64_t samples)
{
    int64_t all = (config->train.batch_size + samples - 1) / samples;
    int64_t own = (all + replicas - 1) / replicas;
    uint64_t blocks = 0;

    if (own == 1) {
        return 0;
    }
    for (; own > 0; own /= 2) {
        blocks++;
    }
    return blocks * (replicas > 1 ? 2 : 1) * gradient_bytes(model);
}

cddp_status cddpi_auto_micro_batch_find(const struct cddpi_config *config,
                                        struct cddpi_model *model, int replicas, uint64_t budget,
                                        struct cddpi_auto_micro_batch *out)
{
    struct cddpi_model_estimate estimate;
    int64_t samples = 1;

    while (2 * samples <= config->train.batch_size / replicas) {
        samples *= 2;
    }
    for (;; samples /= 2) {
        CDDPI_TRY(cddpi_model_estimate(model, (int)samples, config->model.recompute, &estimate));
        out->samples = samples;
        out->bytes = estimate.activation_bytes +
                     cddpi_micro_batch_sums_bytes(config, model, replicas, samples);
        if (out->bytes <= budget || samples == 1) {
            return CDDP_OK;
        }
    }
}

/* On the processor, the caches of files and other programs need memory, too. */
uint64_t cddpi_auto_micro_batch_budget(bool on_device, uint64_t left, int sharers)
{
    uint64_t share = left / (uint64_t)sharers;

    return on_device ? share / 8 * 7 : share / 2;
}

/* Count the ranks that have this rank's device, among them itself. Collective. */
static cddp_status count_sharers(struct cddpi_trainer *trainer, int *out)
{
    const size_t bytes = sizeof trainer->device->unique;
    const char *own = trainer->device->unique;
    int sharers = 0;
    void *all = NULL;

    CDDPI_TRY(cddpi_all_gather_bytes(trainer->group, own, bytes, &all));
    for (int r = 0; r < cddp_group_world_size(trainer->group); r++) {
        sharers += strncmp((const char *)all + (size_t)r * bytes, own, bytes) == 0;
    }
    cddpi_free(all);
    *out = sharers;
    return CDDP_OK;
}

static cddp_status find_budget(struct cddpi_trainer *trainer, int sharers, uint64_t *out)
{
    struct cddpi_device_memory memory;
    struct cddpi_memory_left left;

    if (cddpi_device_is_async(trainer->device)) {
        CDDPI_TRY(trainer->device->ops->memory(trainer->device, &memory));
        *out = cddpi_auto_micro_batch_budget(true, memory.free_bytes, sharers);
        return CDDP_OK;
    }
    cddpi_memory_left(&left);
    *out = cddpi_auto_micro_batch_budget(false, left.bytes,
                                         cddpi_group_local_world_size(trainer->group));
    return CDDP_OK;
}

/* --- the number of the run that goes on --- */

/* Read the number in a run's train.conf; 0: it had none. @p out_found: there is such a file. */
static cddp_status read_number(const char *format, const char *folder, bool *out_found,
                               int64_t *out)
{
    char *path = cddpi_format(format, folder);
    struct cddpi_config earlier;
    cddp_status status;

    CDDPI_TRY_MEMORY(path != NULL, "train.micro_batch: no memory");
    *out_found = access(path, F_OK) == 0;
    if (!*out_found) {
        cddpi_free(path);
        return CDDP_OK;
    }
    status = cddpi_config_load(path, NULL, 0, &earlier);
    cddpi_free(path);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "train.micro_batch = \"auto\": the run's own number");
    }
    *out = earlier.train.micro_batch;
    cddpi_config_fini(&earlier);
    return CDDP_OK;
}

/* Rank 0: the number of the run that this one goes on with; 0: none. train.resume may name the run,
 * its checkpoints or one of them. */
static cddp_status find_earlier(const struct cddpi_trainer *trainer, int64_t *out)
{
    static const char *const places[] = {"%s/train.conf", "%s/../train.conf",
                                         "%s/../../train.conf"};
    const struct cddpi_config *config = trainer->config;
    const char *wanted = config->train.resume;
    struct cddpi_job_name names[CDDPI_JOB_NAMES];
    int count = cddpi_job_names(names);
    const struct cddpi_job_name *restarted = NULL;
    bool found = false;

    *out = 0;
    CDDPI_TRY(cddpi_metrics_find_job(config->train.run_dir, names, count, &restarted));
    if (restarted != NULL || strcmp(wanted, "auto") == 0) {
        CDDPI_TRY(read_number(places[0], config->train.run_dir, &found, out));
    }
    for (size_t i = 0;
         i < 3 && !found && strcmp(wanted, "auto") != 0 && strcmp(wanted, "none") != 0; i++) {
        CDDPI_TRY(read_number(places[i], wanted, &found, out));
    }
    return CDDP_OK;
}

/* --- */

static void tell(struct cddpi_trainer *trainer, const struct cddpi_auto_micro_batch *own,
                 uint64_t budget, bool is_earlier)
{
    char needed[CDDPI_SIZE_TEXT];
    char fits[CDDPI_SIZE_TEXT];

    if (is_earlier) {
        cddpi_progress_line(&trainer->records.progress,
                            "train.micro_batch = \"auto\" stays %lld, as the run began",
                            (long long)trainer->config->train.micro_batch);
        return;
    }
    cddpi_progress_line(&trainer->records.progress,
                        "train.micro_batch = \"auto\" is %lld: here, %lld need %s of %s",
                        (long long)trainer->config->train.micro_batch, (long long)own->samples,
                        cddpi_print_size(own->bytes, needed), cddpi_print_size(budget, fits));
}

cddp_status cddpi_trainer_choose_micro_batch(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_auto_micro_batch own = {.samples = 0};
    uint64_t budget = 0;
    int64_t earlier = 0;
    int sharers;
    cddp_status status;

    if (config->train.micro_batch != CDDPI_AUTO) {
        return CDDP_OK;
    }
    CDDPI_TRY(count_sharers(trainer, &sharers)); /* after it, all ranks hold their models */
    status = trainer->rank == 0 ? find_earlier(trainer, &earlier) : CDDP_OK;
    status = status == CDDP_OK ? find_budget(trainer, sharers, &budget) : status;
    if (status == CDDP_OK) {
        status = cddpi_auto_micro_batch_find(config, trainer->model, trainer->replicas.count,
                                             budget, &own);
    }
    CDDPI_TRY(cddpi_agree(trainer->group, status));
    CDDPI_TRY(cddp_broadcast(trainer->group, &earlier, 1, CDDP_I64, 0, NULL));
    trainer->choices->train.micro_batch = own.samples;
    CDDPI_TRY(cddp_all_reduce(trainer->group, &trainer->choices->train.micro_batch,
                              &trainer->choices->train.micro_batch, 1, CDDP_I64, CDDP_OP_MIN,
                              NULL));
    if (earlier > config->train.batch_size) { /* what resumes warns of the difference */
        earlier = config->train.batch_size;
    }
    if (earlier > 0) {
        trainer->choices->train.micro_batch = earlier;
    }
    tell(trainer, &own, budget, earlier > 0);
    return trainer->engine->check_batch(config, trainer->replicas.count);
}
