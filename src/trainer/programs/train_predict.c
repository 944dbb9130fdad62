/* train_predict.c - implements cddp-train --predict: the classes of images, and the classes or
 * targets of rows of numbers, that are in no data set. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/streams.h"
#include "data/files/data_file.h"
#include "infer/infer.h"
#include "programs/predict_output.h"
#include "programs/predict_rows.h"
#include "programs/train_infer.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { BATCH = 64, NAME_BYTES = 256 };

struct predictor {
    const struct cddpi_config *config;
    cddp_model *model;
    struct cddpi_dataset classes; /* of a folder of images: their names; else closed */
    bool is_regression;           /* outputs are real targets */
    const json_t *output_names;   /* of CSV files: a list of texts or of objects; NULL: none */
    size_t sample_bytes;
    int64_t shape[4]; /* of a batch */
    cddp_type type;   /* of a batch: U8 are images, F32 are numbers */
    uint8_t *samples; /* a batch */
    float *outputs;   /* of a batch */
    char **names;     /* of files */
    size_t count, room;
    FILE *file;
    struct cddpi_predict_output *output; /* instead of lines in `file`; NULL: none */
};

/* The name of class or target @p number, as the checkpoint knows it, or its folder still is there
 * to tell, else the number. */
static const char *class_name(const struct predictor *all, size_t number, char room[NAME_BYTES])
{
    const struct cddpi_image_files *files = all->classes.files;
    const json_t *entry = json_array_get(all->output_names, number);
    const char *name = json_string_value(json_is_object(entry) ? json_object_get(entry, "name")
                                                               : entry);

    if (name != NULL) {
        return name;
    }
    if (files == NULL || number >= files->class_count) {
        snprintf(room, NAME_BYTES, "%zu", number);
    } else {
        const char *path = files->names + files->offsets[files->firsts[number]];

        snprintf(room, NAME_BYTES, "%.*s", (int)strcspn(path, "/"), path);
    }
    return room;
}

/* Print a line of all targets, or put a row to the output. */
static cddp_status put_targets(const struct predictor *all, const char *name, const float *row)
{
    if (all->output != NULL) {
        return cddpi_predict_output_row(all->output, name, NULL, row);
    }
    cddpi_say(all->file, "%s", name);
    for (int t = 0; t < all->model->data.classes; t++) {
        cddpi_say(all->file, "\t%.9g", (double)row[t]);
    }
    cddpi_say(all->file, "\n");
    return CDDP_OK;
}

/* Print a line, or put a row to the output. A single output is the probability of class 1. */
static cddp_status put_prediction(const struct predictor *all, const char *name, const float *row)
{
    size_t classes = (size_t)all->model->data.classes;
    size_t best = 0;
    float value;
    char room[NAME_BYTES];

    for (size_t c = 1; c < classes; c++) {
        best = row[c] > row[best] ? c : best;
    }
    value = row[best];
    if (classes == 1 && all->config->model.loss == CDDPI_LOSS_BINARY_CROSS_ENTROPY) {
        best = value >= 0.5F ? 1 : 0;
        value = best == 1 ? value : 1 - value;
    }
    if (all->output != NULL) {
        return cddpi_predict_output_row(all->output, name, class_name(all, best, room), row);
    }
    cddpi_say(all->file, "%s\t%s\t%.4f\n", name, class_name(all, best, room), (double)value);
    return CDDP_OK;
}

/* Compute, and print or put, @p count samples, the first of which is sample @p first of all. */
static cddp_status predict(struct predictor *all, size_t first, size_t count)
{
    const cddp_tensor in = {.type = all->type,
                            .dims = 4,
                            .shape = {(int64_t)count, all->shape[1], all->shape[2], all->shape[3]},
                            .data = all->samples};
    const cddp_param out = {.type = CDDP_F32,
                            .dims = 2,
                            .shape = {(int64_t)count, all->model->data.classes},
                            .data = all->outputs};

    if (cddp_stop_requested()) { /* only where predict_to() catches signals */
        return cddpi_fail(CDDP_ERR_CLOSED, "a signal stopped the predictions: nothing was written");
    }
    CDDPI_TRY(cddp_model_forward(all->model, &in, 1, &out, 1));
    for (size_t i = 0; i < count; i++) {
        char number[NAME_BYTES];
        const char *name = all->names != NULL ? all->names[first + i] : number;
        const float *row = all->outputs + i * (size_t)all->model->data.classes;

        snprintf(number, sizeof number, "%zu", first + i);
        CDDPI_TRY(all->is_regression ? put_targets(all, name, row)
                                     : put_prediction(all, name, row));
    }
    return CDDP_OK;
}

static cddp_status predict_idx(struct predictor *all, const char *path)
{
    struct cddpi_data_file file;
    const uint8_t *images = NULL;
    int64_t shape[4];
    cddp_status status;

    CDDPI_TRY(cddpi_idx_open_images(path, &file, shape, &images));
    if (memcmp(shape + 1, all->shape + 1, 3 * sizeof *shape) != 0) {
        status = cddpi_fail(CDDP_ERR_FORMAT,
                            "%s: images of %lld x %lld x %lld, but the model takes %lld x %lld x "
                            "%lld",
                            path, (long long)shape[1], (long long)shape[2], (long long)shape[3],
                            (long long)all->shape[1], (long long)all->shape[2],
                            (long long)all->shape[3]);
        goto end;
    }
    status = CDDP_OK;
    for (size_t first = 0; first < (size_t)shape[0] && status == CDDP_OK; first += BATCH) {
        size_t left = (size_t)shape[0] - first;
        size_t count = left < BATCH ? left : BATCH;

        memcpy(all->samples, images + first * all->sample_bytes, count * all->sample_bytes);
        status = cddpi_data_file_check(&file);
        status = status == CDDP_OK ? predict(all, first, count) : status;
    }
end:
    return cddpi_data_file_finish(&file, status);
}

static cddp_status predict_files(struct predictor *all)
{
    for (size_t first = 0; first < all->count; first += BATCH) {
        size_t left = all->count - first;
        size_t count = left < BATCH ? left : BATCH;

        for (size_t i = 0; i < count; i++) {
            CDDPI_TRY(cddp_model_read_image(all->model, all->names[first + i],
                                            all->samples + i * all->sample_bytes,
                                            all->sample_bytes));
        }
        CDDPI_TRY(predict(all, first, count));
    }
    return CDDP_OK;
}

static cddp_status add_name(struct predictor *all, char *name)
{
    char **names = name != NULL ? cddpi_grow(all->names, &all->room, all->count + 1, sizeof *names)
                                : NULL;

    if (names == NULL) {
        cddpi_free(name);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "predict: no memory for names");
    }
    all->names = names;
    all->names[all->count++] = name;
    return CDDP_OK;
}

static bool is_image_name(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot != NULL && (strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".jpg") == 0 ||
                           strcasecmp(dot, ".jpeg") == 0);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static cddp_status list_folder(struct predictor *all, const char *path)
{
    const char *slash = path[0] != '\0' && path[strlen(path) - 1] == '/' ? "" : "/";
    const char *name = "";
    DIR *dir;
    cddp_status status;

    CDDPI_TRY(cddpi_folder_open(path, &dir));
    while ((status = cddpi_folder_next(dir, path, &name)) == CDDP_OK && name != NULL) {
        if (is_image_name(name)) {
            status = add_name(all, cddpi_format("%s%s%s", path, slash, name));
        }
        if (status != CDDP_OK) {
            break;
        }
    }
    closedir(dir);
    if (status == CDDP_OK && all->count == 0) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND,
                          "%s: the folder has no JPEG or PNG file of its own; folders in it are "
                          "not read, so name one of them",
                          path);
    }
    if (status == CDDP_OK) {
        qsort(all->names, all->count, sizeof *all->names, compare_names);
    }
    return status;
}

static bool begins_as_image(const struct cddpi_data_file *file)
{
    return file->bytes > 1 && ((file->data[0] == 0x89 && file->data[1] == 'P') ||
                               (file->data[0] == 0xFF && file->data[1] == 0xD8));
}

static cddp_status predict_rows(struct predictor *all, const char *path)
{
    struct cddpi_predict_rows rows;
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddpi_predict_rows_open(all->model, path, &rows));
    for (uint64_t first = 0; first < rows.count && status == CDDP_OK; first += BATCH) {
        size_t count = rows.count - first < BATCH ? (size_t)(rows.count - first) : BATCH;

        status = cddpi_predict_rows_read(&rows, first, count, (float *)(void *)all->samples);
        status = status == CDDP_OK ? predict(all, (size_t)first, count) : status;
    }
    cddpi_predict_rows_close(&rows);
    return status;
}

/* Predict what is at @p path: rows of numbers, or a folder of images, an image, else an IDX file.
 */
static cddp_status predict_path(struct predictor *all, const char *path)
{
    struct cddpi_data_file file = CDDPI_DATA_FILE_CLOSED;
    struct stat info;
    bool is_image;

    if (all->model->kind == CDDPI_INFER_NUMBERS) {
        return predict_rows(all, path);
    }
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        CDDPI_TRY(list_folder(all, path));
        return predict_files(all);
    }
    CDDPI_TRY(cddpi_data_file_open_plain(path, &file));
    is_image = begins_as_image(&file);
    CDDPI_TRY(cddpi_data_file_finish(&file, CDDP_OK));
    if (!is_image) {
        return predict_idx(all, path);
    }
    CDDPI_TRY(add_name(all, cddpi_strdup(path)));
    return predict_files(all);
}

static cddp_status check_kind(const struct predictor *all)
{
    const struct cddpi_config *config = all->config;
    bool writes_text = all->model->kind == CDDPI_INFER_TOKENS;

    return all->model->kind == CDDPI_INFER_IMAGES || all->model->kind == CDDPI_INFER_NUMBERS
               ? CDDP_OK
               : cddpi_config_fail(
                     config, writes_text ? "data.type" : "model.type",
                     "\"%s\": --predict takes models of images, of CSV files and of "
                     "NumPy's: %sa program can use this one by <cddp/model.h>",
                     cddpi_config_word(config, writes_text ? "data.type" : "model.type"),
                     writes_text ? "this one writes text with --generate, and " : "");
}

/* CSV files name classes, or targets, in the first or in all columns of targets. */
static const json_t *find_output_names(const struct cddp_model *model)
{
    const json_t *targets = json_object_get(model->columns, "targets");

    return model->data.target_count > 0 ? targets
                                        : json_object_get(json_array_get(targets, 0), "classes");
}

static cddp_status prepare(struct predictor *all)
{
    const struct cddpi_config *config = all->config;
    cddp_model_value in = CDDP_MODEL_VALUE_INIT;

    CDDPI_TRY(check_kind(all));
    CDDPI_TRY(cddp_model_get_input(all->model, 0, &in));
    memcpy(all->shape, in.shape, sizeof all->shape);
    all->type = in.type;
    all->is_regression = all->model->data.target_count > 0;
    all->output_names = find_output_names(all->model);
    all->sample_bytes = all->model->sample_elements * cddp_type_bytes(in.type);
    all->samples = cddpi_alloc_aligned(BATCH * all->sample_bytes);
    all->outputs = cddpi_zalloc_array(BATCH * (size_t)all->model->data.classes,
                                      sizeof *all->outputs);
    if (all->samples == NULL || all->outputs == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "predict: no memory for %d samples", BATCH);
    }
    if (config->data.type == CDDPI_DATA_IMAGE_FOLDER &&
        cddpi_dataset_open_image_folder(config->data.train.values[0], config->data.size, NULL, NULL,
                                        &all->classes) != CDDP_OK) {
        all->classes.files = NULL; /* classes keep their numbers */
    }
    return CDDP_OK;
}

/* Write the predictions of what is at @p path to the file @p name. */
static cddp_status predict_to(struct predictor *all, const char *path, const char *name)
{
    struct cddpi_predict_output output;
    int classes = all->model->data.classes;
    cddp_status status;

    CDDPI_TRY(cddp_stop_on_signals(NULL, 0)); /* the incomplete file is removed */
    CDDPI_TRY(cddpi_predict_output_open(name, classes, !all->is_regression, &output));
    all->output = &output;
    for (int c = 0; c < classes; c++) {
        char room[NAME_BYTES];

        CDDPI_TRY_GOTO(end, status,
                       cddpi_predict_output_column(&output, class_name(all, (size_t)c, room)));
    }
    status = predict_path(all, path);
end:
    CDDPI_TRY(cddpi_predict_output_finish(&output, status));
    cddpi_say(all->file, "%s: %llu rows of %d outputs\n", name, (unsigned long long)output.rows,
              classes);
    return CDDP_OK;
}

cddp_status cddpi_train_predict(const struct cddpi_config *config, const char *path,
                                const char *output, FILE *file)
{
    struct predictor all = {.config = config, .file = file};
    cddp_status status;

    CDDPI_TRY(cddpi_train_open_model(config, true, &all.model));
    status = prepare(&all);
    if (status == CDDP_OK) {
        status = output != NULL ? predict_to(&all, path, output) : predict_path(&all, path);
    }
    for (size_t i = 0; i < all.count; i++) {
        cddpi_free(all.names[i]);
    }
    cddpi_free(all.names);
    cddpi_free(all.samples);
    cddpi_free(all.outputs);
    cddpi_dataset_close(&all.classes);
    cddp_model_close(all.model);
    return status;
}
