/* resume.c - takes up where an earlier run was. Only rank 0 touches files; the others get what it
 * read by broadcast. */
#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/shape.h"
#include "train/checkpoint.h"
#include "train/device_step.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* The key that says which data are trained on. */
static const char *data_key(const struct cddpi_config *config)
{
    return config->data.type == CDDPI_DATA_IDX         ? "data.train_images"
           : config->data.type == CDDPI_DATA_SYNTHETIC ? "data.samples"
                                                       : "data.train";
}

static cddp_status check_same(struct cddpi_trainer *trainer, const json_t *state, const char *path)
{
    const struct cddpi_config *config = trainer->config;
    json_int_t seed = json_integer_value(json_object_get(state, "seed"));
    json_int_t samples = json_integer_value(json_object_get(state, "samples"));
    json_int_t batch = json_integer_value(json_object_get(state, "batch_size"));
    const char *order = json_string_value(json_object_get(state, "order"));

    if (seed != config->train.seed) {
        return cddpi_config_fail(config, "train.seed", "is %lld, but %s was made with %lld",
                                 (long long)config->train.seed, path, (long long)seed);
    }
    if (order == NULL || strcmp(order, cddpi_checkpoint_order(trainer)) != 0) {
        return cddpi_config_fail(config, "data.order", "is %s, but %s was made with %s",
                                 cddpi_checkpoint_order(trainer), path,
                                 order != NULL ? order : "none");
    }
    if (samples < 0 || (uint64_t)samples != trainer->train_data.count) {
        return cddpi_config_fail(config, data_key(config), "%llu samples, but %s was made of %lld",
                                 (unsigned long long)trainer->train_data.count, path,
                                 (long long)samples);
    }
    if (batch != config->train.batch_size) {
        cddpi_trainer_warn(trainer, "train.batch_size is %lld, but %s was made with %lld",
                           (long long)config->train.batch_size, path, (long long)batch);
    }
    return CDDP_OK;
}

static cddp_status read_cursor(struct cddpi_trainer *trainer, const char *path,
                               struct cddpi_cursor *out)
{
    char *text = NULL;
    uint64_t step = 0;
    json_int_t epoch;
    json_int_t position;
    json_t *state;
    cddp_status status = cddp_snapshot_read_state(path, &text, &step);

    if (status != CDDP_OK) {
        return status;
    }
    state = json_loads(text, 0, NULL);
    epoch = json_integer_value(json_object_get(state, "epoch"));
    position = json_integer_value(json_object_get(state, "position"));
    if (!json_is_object(state) || !json_is_integer(json_object_get(state, "epoch")) ||
        !json_is_integer(json_object_get(state, "position")) || epoch < 0 || position < 0) {
        status = cddpi_fail(CDDP_ERR_FORMAT,
                            "%s/state.json: epoch and position are missing or "
                            "negative",
                            path);
    } else {
        status = check_same(trainer, state, path);
    }
    if (status == CDDP_OK && (uint64_t)position >= trainer->train_data.count) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s/state.json: position %lld is beyond the data",
                            path, (long long)position);
    }
    if (status == CDDP_OK) {
        *out = (struct cddpi_cursor){step, (uint64_t)epoch, (uint64_t)position};
    }
    json_decref(state);
    cddp_free(text);
    return status;
}

static bool holds_snapshots(const char *dir)
{
    DIR *folder = opendir(dir);
    struct dirent *entry;
    bool found = false;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        found = found || strncmp(entry->d_name, "step-", 5) == 0;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return found;
}

/* The newest snapshot in @p dir, or *out NULL if there is none at all. That all of them are broken
 * is an error: starting anew would hide it. */
static cddp_status find_newest_in(struct cddpi_trainer *trainer, const char *dir, char **out)
{
    char *skipped = NULL;
    cddp_status status;

    *out = NULL;
    if (!holds_snapshots(dir)) {
        return CDDP_OK;
    }
    status = cddp_snapshot_find(dir, out, &skipped);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "train.resume");
    }
    if (skipped != NULL && skipped[0] != '\0') {
        cddpi_trainer_warn(trainer, "passed over: %s", skipped);
    }
    cddp_free(skipped);
    return CDDP_OK;
}

cddp_status cddpi_trainer_find_newest(struct cddpi_trainer *trainer, char **out)
{
    return find_newest_in(trainer, trainer->checkpoints, out);
}

cddp_status cddpi_trainer_find_named(struct cddpi_trainer *trainer, char **out)
{
    const char *named = trainer->config->train.resume;
    char *inside = cddpi_format("%s/checkpoints", named);
    cddp_status status = CDDP_OK;

    *out = NULL;
    if (named[0] == '\0') {
        status = cddpi_config_fail(
            trainer->config, "train.resume",
            "is empty: it is none, auto, or the folder of a checkpoint or run");
    } else if (inside != NULL) {
        status = find_newest_in(trainer, inside, out); /* a run's folder */
        if (status == CDDP_OK && *out == NULL) {
            status = find_newest_in(trainer, named, out);
        }
    }
    if (status == CDDP_OK && *out == NULL) {
        *out = inside != NULL ? cddpi_strdup(named) : NULL;
        status = *out != NULL ? CDDP_OK : cddpi_fail(CDDP_ERR_NO_MEMORY, "train.resume: no memory");
    }
    cddpi_free(inside);
    return status;
}

/* Whether @p path is one of the run's own checkpoints. */
static bool is_own(const struct cddpi_trainer *trainer, const char *path)
{
    char *own = realpath(trainer->checkpoints, NULL);
    char *other = realpath(path, NULL);
    size_t length = own != NULL ? strlen(own) : 0;
    bool same = own != NULL && other != NULL && strncmp(own, other, length) == 0 &&
                other[length] == '/';

    free(own);
    free(other);
    return same;
}

static cddp_status load(struct cddpi_trainer *trainer, const char *path)
{
    cddp_snapshot snapshot;
    cddp_status status = cddpi_optim_hold_whole(trainer->optim);

    if (status == CDDP_OK) {
        status = cddpi_trainer_hold_mirror(trainer);
    }
    if (status == CDDP_OK) {
        status = cddpi_checkpoint_tensors(trainer, &snapshot);
    }
    if (status == CDDP_OK) {
        status = cddp_snapshot_load(path, &snapshot);
        cddpi_checkpoint_release(&snapshot);
        if (status == CDDP_ERR_FORMAT) {
            status = cddpi_fail(status, "%s; was it made with another model or another optimizer?",
                                cddp_last_error());
        }
    }
    return status;
}

/* Whether cddp-run has started this job again after it had come as far as to train: then what the
 * run's folder holds is its own, and beginning anew would throw that away. */
static bool is_restarted(const struct cddpi_trainer *trainer)
{
    const char *job = cddpi_env(CDDPI_ENV_JOB);

    return cddp_group_generation(trainer->group) > 0 && job != NULL &&
           cddpi_metrics_has_job(trainer->config->train.run_dir, job);
}

/* Rank 0: find, check, load. @p out_found  Whether there was one. */
static cddp_status take_up(struct cddpi_trainer *trainer, bool *out_found)
{
    const struct cddpi_config *config = trainer->config;
    bool automatic = strcmp(config->train.resume, "auto") == 0 || is_restarted(trainer);
    char *path = NULL;
    cddp_status status = cddpi_run_dir_hold(config->train.run_dir, &trainer->run_dir_held);

    if (status != CDDP_OK) {
        return status;
    }
    if (automatic) {
        status = cddpi_trainer_find_newest(trainer, &path);
    }
    if (status == CDDP_OK && path == NULL && strcmp(config->train.resume, "auto") != 0 &&
        strcmp(config->train.resume, "none") != 0) {
        automatic = false;
        status = cddpi_trainer_find_named(trainer, &path);
    }
    if (status == CDDP_OK && path != NULL) {
        status = read_cursor(trainer, path, &trainer->at);
    }
    if (status == CDDP_OK && path != NULL) {
        status = load(trainer, path);
    }
    if (status != CDDP_OK && !automatic && status != CDDP_ERR_CONFIG) {
        (void)cddpi_fail_prefix(status, "train.resume");
    }
    if (status == CDDP_OK) {
        status = cddpi_run_dir_prepare(config, path != NULL && is_own(trainer, path),
                                       &trainer->run_dir_held, &trainer->progress);
    }
    if (status == CDDP_OK && path != NULL) {
        cddpi_progress_line(&trainer->progress, "going on from %s: step %llu, epoch %llu", path,
                            (unsigned long long)trainer->at.step,
                            (unsigned long long)trainer->at.epoch + 1);
        trainer->saved_step = is_own(trainer, path) ? trainer->at.step : trainer->saved_step;
    }
    if (status == CDDP_OK) {
        *out_found = path != NULL;
    }
    cddpi_free(path);
    return status;
}

static cddp_status broadcast_tensors(cddp_group *group, const cddp_tensor *tensors, size_t count)
{
    cddp_status status = CDDP_OK;

    for (size_t i = 0; status == CDDP_OK && i < count; i++) {
        size_t elements = cddpi_elements(tensors[i].dims, tensors[i].shape);

        status = cddp_broadcast(group, tensors[i].data, elements, tensors[i].type, 0, NULL);
    }
    return status;
}

/* Where losses are scaled, everyone gets rank 0's scale. */
static cddp_status share_scale(struct cddpi_trainer *trainer)
{
    size_t count = 0;
    const cddp_tensor *tensors = cddpi_loss_scale_tensors(&trainer->loss_scale, &count);
    cddp_status status = CDDP_OK;

    if (cddpi_checkpoint_has_scale(trainer)) {
        status = broadcast_tensors(trainer->group, tensors, count);
        if (status == CDDP_OK) {
            status = cddpi_device_step_send_scale(trainer->device_step);
        }
    }
    return status;
}

static cddp_status share(struct cddpi_trainer *trainer)
{
    size_t count = 0;
    const cddp_tensor *optimizer = cddpi_optim_tensors(trainer->optim, &count);
    cddp_status status = cddpi_trainer_hold_mirror(trainer);
    cddp_tensor *model = status == CDDP_OK ? cddpi_trainer_model_tensors(trainer) : NULL;

    if (status == CDDP_OK && model == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "train.resume: no memory");
    }
    if (status == CDDP_OK) {
        status = broadcast_tensors(trainer->group, model,
                                   trainer->param_count + trainer->buffer_count);
    }
    cddpi_free(model);
    if (trainer->config->ddp.shard_optimizer) {
        count = cddpi_optim_counters(trainer->optim);
    }
    if (status == CDDP_OK) {
        status = broadcast_tensors(trainer->group, optimizer, count);
    }
    if (status == CDDP_OK) {
        status = cddpi_optim_disperse(trainer->optim);
    }
    cddpi_optim_drop_whole(trainer->optim);
    if (status == CDDP_OK) {
        status = cddpi_optim_send(trainer->optim);
    }
    if (status == CDDP_OK) {
        status = share_scale(trainer);
    }
    return status == CDDP_OK ? cddpi_trainer_send(trainer) : status;
}

cddp_status cddpi_trainer_resume(struct cddpi_trainer *trainer)
{
    struct {
        struct cddpi_cursor at;
        uint64_t found;
    } message = {{0, 0, 0}, 0};
    bool found = false;
    cddp_status status;

    if (trainer->rank == 0) {
        status = take_up(trainer, &found);
        if (status != CDDP_OK) {
            return status;
        }
        message.at = trainer->at;
        message.found = found;
    }
    status = cddp_broadcast(trainer->group, &message, sizeof message, CDDP_U8, 0, NULL);
    if (status != CDDP_OK || message.found == 0) {
        return status;
    }
    trainer->at = message.at;
    return share(trainer);
}
