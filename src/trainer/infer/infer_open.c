/* infer_open.c - opens and closes models: finds the weights and the train.conf that a path
 * stands for. */
#include "infer/infer.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/types.h"
#include "checkpoint/snapshot.h"
#include "data/normalization.h"
#include "nn/cpu/threads.h"
#include "train/weights_sizes.h"

#include <errno.h>
#include <sys/stat.h>

enum { MOST_THREADS = 1024, MOST_BATCH = 1 << 20, MOST_SIDE = 1 << 14, MOST_CHANNELS = 4 };

/* Where a model's files are. */
struct model_place {
    char *checkpoint; /* the folder; NULL: the weights are the path itself */
    char *config;     /* the run's train.conf; NULL: it has none */
};

/* Read the caller's options, and check them as far as they stand alone. */
static cddp_status read_options(const cddp_model_options *options, cddp_model_options *out)
{
    cddp_model_options read = CDDP_MODEL_OPTIONS_INIT;
    bool has_image;

    if (options != NULL) {
        CDDPI_TRY(cddpi_struct_read("model_open", "CDDP_MODEL_OPTIONS_INIT", options, sizeof read,
                                    &read));
    }
    has_image = read.image[0] != 0 || read.image[1] != 0 || read.image[2] != 0;
    if (has_image &&
        (read.image[0] < 1 || read.image[0] > MOST_CHANNELS || read.image[1] < 1 ||
         read.image[1] > MOST_SIDE || read.image[2] < 1 || read.image[2] > MOST_SIDE)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "model_open: image is %u x %u x %u, but must be 1 to %d channels, and 1 "
                          "to %d pixels high and wide",
                          read.image[0], read.image[1], read.image[2], MOST_CHANNELS, MOST_SIDE);
    }
    if (read.threads > MOST_THREADS || read.max_batch > MOST_BATCH) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "model_open: threads is %u and max_batch %u, but they may be at most %d "
                          "and %d",
                          read.threads, read.max_batch, MOST_THREADS, MOST_BATCH);
    }
    if (read.threads == 0) {
        read.threads = (uint32_t)cddpi_env_integer(CDDPI_ENV_THREADS, 1, MOST_THREADS, 1);
    }
    CDDPI_TRY(cddpi_reserved_check("model_open", &read.reserved, sizeof read.reserved));
    *out = read;
    return CDDP_OK;
}

/* A handle with everything closed; NULL: no memory. */
static struct cddp_model *create(const cddp_model_options *options)
{
    struct cddp_model *model = cddpi_zalloc(sizeof *model);

    if (model != NULL) {
        cddpi_handle_init(&model->handle, CDDPI_HANDLE_MODEL);
        model->options = *options;
        model->device = cddpi_device_cpu();
    }
    return model;
}

static void destroy(struct cddp_model *model)
{
    const struct cddpi_device_ops *ops = model->device->ops;

    cddpi_model_destroy(model->model);
    ops->release(model->device, model->device_input);
    ops->release(model->device, model->labels);
    ops->release(model->device, model->images);
    cddpi_device_close(model->device);
    cddpi_tokenizer_close(model->tokenizer);
    cddpi_image_scratch_free(&model->scratch);
    cddpi_free(model->input);
    cddpi_free(model->ids);
    cddpi_free(model->layers);
    cddpi_free(model->path);
    cddpi_normalization_destroy(model->normalization);
    json_decref(model->columns);
    cddpi_free(model->missing);
    cddpi_config_fini(&model->own);
    cddpi_handle_release(&model->handle, sizeof *model);
}

cddp_status cddpi_infer_open(const struct cddpi_config *config, const char *checkpoint,
                             const char *weights, const cddp_model_options *options,
                             cddp_model **out)
{
    cddp_model_options read;
    struct cddp_model *model;
    cddp_status status;

    CDDPI_TRY(read_options(options, &read));
    model = create(&read);
    if (model == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model_open: no memory");
    }
    model->config = config;
    status = cddpi_infer_complete(model, checkpoint, weights);
    if (status != CDDP_OK) {
        destroy(model);
        return status;
    }
    *out = model;
    return CDDP_OK;
}

static cddp_status find_newest(const char *folder, char **out)
{
    char *skipped = NULL;

    CDDPI_TRY(cddpi_snapshot_find_model(folder, out, &skipped));
    if (skipped != NULL && skipped[0] != '\0') {
        cddpi_log(CDDPI_LOG_WARN, "model_open: passed over: %s", skipped);
    }
    cddp_free(skipped);
    return CDDP_OK;
}

static cddp_status put_path(char *path, char **out)
{
    *out = path;
    return path != NULL ? CDDP_OK : cddpi_fail(CDDP_ERR_NO_MEMORY, "model_open: no memory");
}

/* What is at @p path: a run folder, a checkpoint's, or weights. */
static cddp_status look_at(const char *path, struct model_place *out)
{
    struct stat info;
    char *checkpoints = NULL;
    cddp_status status;

    if (stat(path, &info) != 0) {
        return cddpi_fail_errno(errno == ENOENT || errno == ENOTDIR ? CDDP_ERR_NOT_FOUND
                                                                    : CDDP_ERR_IO,
                                errno, "model_open: %s", path);
    }
    if (!S_ISDIR(info.st_mode)) {
        return CDDP_OK;
    }
    if (cddpi_folder_holds(path, "state.json")) {
        CDDPI_TRY(cddpi_snapshot_verify_model(path));
        return put_path(cddpi_strdup(path), &out->checkpoint);
    }
    if (cddpi_folder_holds(path, "train.conf")) {
        CDDPI_TRY(put_path(cddpi_format("%s/train.conf", path), &out->config));
    }
    if (!cddpi_folder_holds(path, "checkpoints")) { /* a folder of weights, if anything */
        return out->config == NULL
                   ? CDDP_OK
                   : cddpi_fail(CDDP_ERR_NOT_FOUND,
                                "model_open: the run in %s has no checkpoint yet", path);
    }
    CDDPI_TRY(put_path(cddpi_format("%s/checkpoints", path), &checkpoints));
    status = find_newest(checkpoints, &out->checkpoint);
    cddpi_free(checkpoints);
    return status;
}

static cddp_status read_config(const char *path, const cddp_model_options *options,
                               const struct model_place *place, struct cddpi_config *out)
{
    const char *file = options->config_path != NULL ? options->config_path : place->config;

    if (file == NULL && options->config_text == NULL) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "model_open: %s is not a run folder, so set options.config_path or "
                          "options.config_text to say what the model is",
                          path);
    }
    return cddpi_config_load_model(file, options->config_text, out);
}

cddp_status cddp_model_open(const char *path, const cddp_model_options *options, cddp_model **out)
{
    struct model_place place = {NULL, NULL};
    cddp_model_options read;
    struct cddp_model *model;
    cddp_status status;

    if (path == NULL || out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "model_open: %s is NULL",
                          path == NULL ? "path" : "out");
    }
    CDDPI_TRY(read_options(options, &read));
    model = create(&read);
    if (model == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model_open: no memory");
    }
    CDDPI_TRY_GOTO(end, status, look_at(path, &place));
    CDDPI_TRY_GOTO(end, status, read_config(path, &read, &place, &model->own));
    CDDPI_TRY_GOTO(end, status,
                   cddpi_config_take_sizes(&model->own, place.checkpoint == NULL ? path : ""));
    model->config = &model->own;
    status = cddpi_infer_complete(model, place.checkpoint, path);
end:
    cddpi_free(place.checkpoint);
    cddpi_free(place.config);
    if (status == CDDP_OK) {
        *out = model;
    } else {
        destroy(model);
    }
    return status;
}

void cddp_model_close(cddp_model *model)
{
    if (model == NULL ||
        !cddpi_handle_enter_last(&model->handle, CDDPI_HANDLE_MODEL, "model_close") ||
        !cddpi_handle_is_own(&model->handle)) {
        return;
    }
    if (cddpi_handle_is_nested(&model->handle)) {
        cddpi_log(CDDPI_LOG_WARN, "model_close: called by a function that this model has called; "
                                  "nothing was done");
        (void)cddpi_handle_leave(&model->handle, CDDP_OK);
        return;
    }
    destroy(model);
}

cddp_status cddpi_infer_enter(struct cddp_model *model, const char *call)
{
    CDDPI_TRY(cddpi_handle_enter((struct cddpi_handle *)model, CDDPI_HANDLE_MODEL, call));
    if (cddpi_handle_is_nested(&model->handle)) {
        return cddpi_handle_leave(&model->handle,
                                  cddpi_fail(CDDP_ERR_STATE,
                                             "%s: called by a function that this model has called",
                                             call));
    }
    return CDDP_OK;
}

size_t cddpi_infer_begin(const struct cddp_model *model)
{
    size_t team = cddpi_team_size();

    cddpi_team_resize(model->options.threads);
    return team;
}

void cddpi_infer_end(size_t team)
{
    cddpi_team_resize(team);
}
