/* resume.c - resumes an earlier run, from what its ranks have kept in memory or from a checkpoint.
 * Only rank 0 uses files, and broadcasts what it read. */
#include "train/resume.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "checkpoint/snapshot.h"
#include "report/metrics.h"
#include "report/run_generations.h"
#include "train/batch_sizes.h"
#include "train/checkpoint.h"
#include "train/device/device_step.h"
#include "train/device/host_copy.h"
#include "train/engines/engine.h"
#include "train/kept_state.h"
#include "train/run_dir.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Whether @p dir is the folder of this run's checkpoints, locked against other runs. */
static bool is_held(const struct cddpi_trainer *trainer, const char *dir)
{
    struct stat own, other;

    return trainer->folder.held != NULL && stat(trainer->folder.checkpoints, &own) == 0 &&
           stat(dir, &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

/* If all checkpoints are broken or unreadable now, that is an error: starting anew would hide
 * it. */
cddp_status cddpi_trainer_find_newest_in(struct cddpi_trainer *trainer, const char *dir,
                                         bool to_train, char **out)
{
    char *skipped = NULL;
    bool has_some = false;
    cddp_status status = cddpi_snapshot_any(dir, &has_some);

    *out = NULL;
    if (status == CDDP_OK && is_held(trainer, dir)) { /* also removes leftovers of a killed run */
        status = cddp_snapshot_recover(dir, out, &skipped);
    } else if (status == CDDP_OK && has_some) {
        status = to_train ? cddp_snapshot_find(dir, out, &skipped)
                          : cddpi_snapshot_find_model(dir, out, &skipped);
    }
    if (status == CDDP_ERR_NOT_FOUND && !has_some) {
        return CDDP_OK;
    }
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "train.resume");
    }
    if (skipped != NULL && skipped[0] != '\0') {
        cddpi_trainer_warn(trainer, "passed over: %s", skipped);
    }
    cddp_free(skipped);
    return CDDP_OK;
}

/* Whether @p path is one of the run's own checkpoints. */
static bool is_own(const struct cddpi_trainer *trainer, const char *path)
{
    char *own = realpath(trainer->folder.checkpoints, NULL);
    char *other = realpath(path, NULL);
    size_t length = own != NULL ? strlen(own) : 0;
    bool same = own != NULL && other != NULL && strncmp(own, other, length) == 0 &&
                other[length] == '/';

    free(own);
    free(other);
    return same;
}

static cddp_status load_checkpoint(struct cddpi_trainer *trainer, const char *path)
{
    cddp_status status;

    for (struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        CDDPI_TRY(cddpi_optim_alloc_full_state(each->step.optim));
    }
    CDDPI_TRY(cddpi_trainer_create_host_copy(trainer));
    status = trainer->engine->load(trainer, path);
    return status == CDDP_ERR_FORMAT
               ? cddpi_fail_suffix(status, "; was it made with another model or another optimizer?")
               : status;
}

/* Find out whether a launcher has restarted this job after it began to train. Then the run folder
 * is this job's own, and starting anew would lose its work. */
static cddp_status find_restart(struct cddpi_trainer *trainer, bool *out)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_job_name names[CDDPI_JOB_NAMES];
    int count = cddpi_job_names(names);
    const struct cddpi_job_name *found = NULL;
    cddp_status status = cddpi_metrics_find_job(config->train.run_dir, names, count, &found);

    *out = found != NULL;
    if (found != NULL && strcmp(config->train.resume, "auto") != 0) {
        cddpi_progress_line(
            &trainer->records.progress,
            "the job that began the run in %s (%s) was restarted, so the run continues",
            config->train.run_dir, found->text);
    }
    return status;
}

static void say_where(struct cddpi_trainer *trainer, const char *path)
{
    const struct cddpi_config *config = trainer->config;
    unsigned long long step = trainer->cursor.step;
    uint64_t most = (uint64_t)config->train.max_steps;
    uint64_t left = cddpi_trainer_steps_left(config, trainer->data.train.data.count,
                                             &trainer->cursor);

    if (left == 0 || (most > 0 && trainer->cursor.step >= most)) {
        cddpi_progress_line(
            &trainer->records.progress,
            "continuing from %s: step %llu: the run is already complete; a larger %s "
            "(now %lld) would train longer",
            path, step, left == 0 ? "train.epochs" : "train.max_steps",
            (long long)(left == 0 ? config->train.epochs : config->train.max_steps));
        return;
    }
    cddpi_progress_line(&trainer->records.progress, "continuing from %s: step %llu, epoch %llu",
                        path, step, (unsigned long long)trainer->cursor.epoch + 1);
}

/* Find the checkpoint to go on from; *@p out NULL: there is none. @p out_named: train.resume names
 * it. */
static cddp_status find_checkpoint(struct cddpi_trainer *trainer, char **out, bool *out_named)
{
    const char *wanted = trainer->config->train.resume;
    bool automatic = strcmp(wanted, "auto") == 0;
    bool is_restart = false;

    CDDPI_TRY(find_restart(trainer, &is_restart));
    if (automatic || is_restart) {
        CDDPI_TRY(cddpi_trainer_find_newest_in(trainer, trainer->folder.checkpoints, true, out));
    }
    if (*out == NULL && !automatic && strcmp(wanted, "none") != 0) {
        *out_named = true;
        CDDPI_TRY(cddpi_trainer_find_named(trainer, true, out));
    }
    return CDDP_OK;
}

/* The checkpoint from which rank 0 may go on. */
struct found {
    char *path;    /* NULL: there is none */
    bool is_named; /* train.resume names it */
    struct cddpi_cursor at;
};

static cddp_status name_checkpoint(const struct found *found, cddp_status status)
{
    return status != CDDP_OK && found->is_named && status != CDDP_ERR_CONFIG
               ? cddpi_fail_prefix(status, "train.resume")
               : status;
}

/* Rank 0: find and check a checkpoint. */
static cddp_status look_for_checkpoint(struct cddpi_trainer *trainer, struct found *out)
{
    const struct cddpi_config *config = trainer->config;

    CDDPI_TRY(cddpi_run_dir_hold(config->train.run_dir, &trainer->folder.held));
    if (config->data.type != CDDPI_DATA_SYNTHETIC) {
        cddpi_dataset_digest(&trainer->data.train.data, trainer->data.digests);
    }
    CDDPI_TRY(find_checkpoint(trainer, &out->path, &out->is_named));
    return out->path != NULL ? name_checkpoint(out, cddpi_cursor_read(trainer, out->path, &out->at))
                             : CDDP_OK;
}

/* Rank 0: load the checkpoint, unless the state is there already (@p is_restored), and prepare the
 * run's folder. */
static cddp_status take_up(struct cddpi_trainer *trainer, const struct found *found,
                           bool is_restored)
{
    bool own = found->path != NULL && is_own(trainer, found->path);

    if (found->path != NULL && !is_restored) {
        trainer->cursor = found->at;
        CDDPI_TRY(name_checkpoint(found, load_checkpoint(trainer, found->path)));
    }
    CDDPI_TRY(cddpi_run_dir_prepare(trainer->config, own || is_restored, &trainer->folder.held,
                                    &trainer->records.progress));
    if (found->path != NULL || is_restored) {
        say_where(trainer, is_restored ? "memory" : found->path);
    }
    if (own) {
        trainer->folder.saved_step = found->at.step;
    }
    return CDDP_OK;
}

static cddp_status broadcast_tensors(cddp_group *group, const cddp_param *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t elements = cddpi_elements(tensors[i].dims, tensors[i].shape);

        CDDPI_TRY(cddp_broadcast(group, tensors[i].data, elements, tensors[i].type, 0, NULL));
    }
    return CDDP_OK;
}

/* If the loss is scaled, send rank 0's scale to all ranks. */
static cddp_status share_scale(struct cddpi_trainer *trainer)
{
    size_t count = 0;
    const cddp_param *tensors = cddpi_loss_scale_tensors(&trainer->step.loss_scale, &count);

    if (!cddpi_checkpoint_has_scale(trainer)) {
        return CDDP_OK;
    }
    CDDPI_TRY(broadcast_tensors(trainer->group, tensors, count)); /* rank 0 alone has loaded it */
    return cddpi_device_step_send_scale(trainer->step.device);
}

static cddp_status share_optimizer(struct cddpi_trainer *trainer)
{
    size_t count = 0;
    const cddp_param *optimizer = cddpi_optim_tensors(trainer->step.optim, &count);
    cddp_status status;

    if (trainer->config->ddp.shard_optimizer) {
        count = cddpi_optim_counters(trainer->step.optim);
    }
    status = broadcast_tensors(trainer->replicas.group, optimizer, count);
    if (status == CDDP_OK) {
        status = cddpi_optim_scatter_full_state(trainer->step.optim);
    }
    cddpi_optim_free_full_state(trainer->step.optim);
    return status == CDDP_OK ? cddpi_optim_send(trainer->step.optim) : status;
}

static cddp_status share_model(struct cddpi_trainer *trainer)
{
    cddp_param *model = cddpi_trainer_model_tensors(trainer);
    cddp_status status;

    CDDPI_TRY_MEMORY(model != NULL, "train.resume: no memory");
    status = broadcast_tensors(trainer->replicas.group, model,
                               cddpi_trainer_model_tensor_count(trainer));
    cddpi_free(model);
    return status;
}

static cddp_status share_run(struct cddpi_trainer *trainer)
{
    CDDPI_TRY(cddpi_trainer_create_host_copy(trainer));
    CDDPI_TRY(cddpi_engine_call(trainer->engine->scatter, trainer));
    CDDPI_TRY(share_model(trainer));
    for (struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        CDDPI_TRY(share_optimizer(each));
    }
    CDDPI_TRY(share_scale(trainer));
    return cddpi_trainer_copy_to_device(trainer);
}

/* Go on from what earlier ranks have kept, or from the checkpoint that rank 0 has @p found. */
static cddp_status go_on(struct cddpi_trainer *trainer, const struct found *found)
{
    struct {
        struct cddpi_cursor at;
        uint64_t is_loaded;
    } message = {.is_loaded = 0};
    bool is_restored = false;

    CDDPI_TRY(cddpi_kept_state_open(trainer));
    if (cddpi_generation() > 0 && cddpi_kept_state_is_possible(trainer)) {
        CDDPI_TRY(cddpi_kept_state_restore(trainer, found->at.step, &is_restored));
    }
    if (trainer->rank == 0) {
        CDDPI_TRY(take_up(trainer, found, is_restored));
        message.at = trainer->cursor;
        message.is_loaded = found->path != NULL && !is_restored;
    }
    CDDPI_TRY(cddp_broadcast(trainer->group, &message, sizeof message, CDDP_U8, 0, NULL));
    CDDPI_TRY(cddpi_kept_state_begin(trainer));
    if (message.is_loaded == 0) {
        return CDDP_OK;
    }
    trainer->cursor = message.at;
    return share_run(trainer);
}

cddp_status cddpi_trainer_resume(struct cddpi_trainer *trainer)
{
    struct found found = {.path = NULL};
    cddp_status status = trainer->rank == 0 ? look_for_checkpoint(trainer, &found) : CDDP_OK;

    status = status == CDDP_OK ? go_on(trainer, &found) : status;
    cddpi_free(found.path);
    return status;
}
