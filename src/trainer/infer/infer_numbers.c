/* infer_numbers.c - finds out what a model of numbers takes: from the checkpoint, which has the
 * names and categories of CSV columns and how numbers are normalised, or from the first file of
 * data. */
#include "infer/infer.h"

#include "base/alloc.h"
#include "data/normalization.h"
#include "train/model_spec.h"

#include <math.h>

/* The shape of samples of NumPy's files is read from the first one, if cddp_model_options.image
 * does not say it. */
static cddp_status describe_npy(struct cddp_model *model, int shape[3])
{
    const struct cddpi_config *config = model->config;
    struct cddpi_npy_options options = cddpi_trainer_npy_options(config, false);
    cddp_status status;

    model->data.classes = options.real_targets ? 0 : config->data.classes;
    model->data.target_count = options.real_targets; /* how many is known later */
    if (shape[0] != 0) {
        return CDDP_OK;
    }
    status = cddpi_npy_shape(&options, shape);
    if (status == CDDP_OK) {
        return CDDP_OK;
    }
    status = cddpi_fail_suffix(status, ": the shape of samples is read there, if "
                                       "cddp_model_options.image does not say it");
    return cddpi_config_prefix(config, "data.train", status);
}

/* Read what missing numbers get. Runs with data.missing = "error", and checkpoints of earlier
 * versions, have no such list. */
static cddp_status read_missing(struct cddp_model *model, const json_t *list, size_t width)
{
    if (list == NULL) {
        return CDDP_OK;
    }
    if (json_array_size(list) != width) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s/state.json: missing has %zu numbers, but samples have %zu",
                          model->path, json_array_size(list), width);
    }
    model->missing = cddpi_zalloc_array(width, sizeof *model->missing);
    CDDPI_TRY_MEMORY(model->missing != NULL, "model_open: no memory");
    for (size_t i = 0; i < width; i++) {
        model->missing[i] = (float)json_number_value(json_array_get(list, i));
        if (!isfinite(model->missing[i])) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s/state.json: number %zu of missing is %g",
                              model->path, i, (double)model->missing[i]);
        }
    }
    return CDDP_OK;
}

/* The columns of CSV files are in the checkpoint's state. */
static cddp_status describe_csv(struct cddp_model *model, const json_t *state, int shape[3])
{
    const json_t *columns = json_object_get(state, "columns");
    const json_t *features = json_object_get(columns, "features");
    const json_t *targets = json_object_get(columns, "targets");
    const json_t *classes = json_object_get(json_array_get(targets, 0), "classes");
    size_t width = 0;

    for (size_t i = 0; i < json_array_size(features); i++) {
        const json_t *categories = json_object_get(json_array_get(features, i), "categories");

        width += categories != NULL ? json_array_size(categories) : 1;
    }
    if (width == 0 || width > INT32_MAX || json_array_size(targets) == 0 ||
        json_array_size(targets) > INT32_MAX || json_array_size(classes) > INT32_MAX) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: a model of CSV data needs the columns in its checkpoint's "
                          "state.json: name the run's folder or a checkpoint of it",
                          model->path);
    }
    shape[0] = shape[1] = 1;
    shape[2] = (int)width;
    model->data.target_count = classes != NULL ? 0 : (int)json_array_size(targets);
    model->data.classes = (int)json_array_size(classes != NULL ? classes : targets);
    model->columns = json_deep_copy(columns);
    CDDPI_TRY_MEMORY(model->columns != NULL, "model_open: no memory");
    return read_missing(model, json_object_get(state, "missing"), width);
}

cddp_status cddpi_infer_describe_numbers(struct cddp_model *model, const json_t *state)
{
    const struct cddpi_config *config = model->config;
    int shape[3] = {(int)model->options.image[0], (int)model->options.image[1],
                    (int)model->options.image[2]};

    CDDPI_TRY(config->data.type == CDDPI_DATA_CSV ? describe_csv(model, state, shape)
                                                  : describe_npy(model, shape));
    model->data.kind = CDDPI_DATASET_NUMBERS;
    model->data.channels = shape[0];
    model->data.height = shape[1];
    model->data.width = shape[2];
    if (config->data.normalize == CDDPI_NORMALIZE_NONE) {
        return CDDP_OK;
    }
    model->normalization = cddpi_normalization_create(cddpi_normalization_count(&model->data));
    return model->normalization == NULL
               ? CDDP_ERR_NO_MEMORY
               : cddpi_normalization_parse(model->path, state, model->normalization);
}
