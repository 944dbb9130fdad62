/* normalize.c - owns when the statistics of data.normalize are found, and their form in state.json:
 * "normalize": {"type": "standard", "subtract": [...], "divide": [...]}. A run that goes on never
 * finds them again: its parameters were trained on numbers normalised by the first ones. */
#include "train/normalize.h"

#include "base/error.h"
#include "data/normalization.h"
#include "group/join/group_agree.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

cddp_status cddpi_normalize_parse(const char *path, const json_t *state,
                                  struct cddpi_normalization *out)
{
    const json_t *kept = json_object_get(state, "normalize");
    const struct {
        const char *name;
        float *to;
    } lists[] = {{"subtract", out->subtract}, {"divide", out->divide}};

    for (int l = 0; l < 2; l++) {
        const json_t *list = json_object_get(kept, lists[l].name);

        if (json_array_size(list) != out->count) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s/state.json: normalize.%s has %zu numbers, but samples have %zu",
                              path, lists[l].name, json_array_size(list), out->count);
        }
        for (size_t i = 0; i < out->count; i++) {
            float value = (float)json_number_value(json_array_get(list, i));

            if (!isfinite(value) || (l == 1 && !(value > 0))) {
                return cddpi_fail(CDDP_ERR_FORMAT,
                                  "%s/state.json: number %zu of normalize.%s is %g", path, i,
                                  lists[l].name, (double)value);
            }
            lists[l].to[i] = value;
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_normalize_read(struct cddpi_trainer *trainer, const char *path,
                                 const json_t *state)
{
    const struct cddpi_config *config = trainer->config;
    const char *wanted = cddpi_config_word(config, "data.normalize");
    const char *kept = json_string_value(
        json_object_get(json_object_get(state, "normalize"), "type"));

    kept = kept != NULL ? kept : "none";
    if (strcmp(kept, wanted) != 0) {
        return cddpi_config_fail(config, "data.normalize",
                                 "is \"%s\", but %s was made with \"%.40s\"", wanted, path, kept);
    }
    if (config->data.normalize == CDDPI_NORMALIZE_NONE) {
        return CDDP_OK;
    }
    trainer->data.normalization = cddpi_normalization_create(
        cddpi_normalization_count(&trainer->data.train.data));
    return trainer->data.normalization == NULL
               ? CDDP_ERR_NO_MEMORY
               : cddpi_normalize_parse(path, state, trainer->data.normalization);
}

static json_t *list_of(const float *values, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < count; i++) {
        if (json_array_append_new(list, json_real((double)values[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

bool cddpi_normalize_write(const struct cddpi_trainer *trainer, json_t *state)
{
    const struct cddpi_normalization *normalization = trainer->data.normalization;
    const char *columns = trainer->data.train.data.columns;
    json_t *kept;

    if (columns != NULL &&
        json_object_set_new(state, "columns", json_loads(columns, 0, NULL)) != 0) {
        return false;
    }
    if (normalization == NULL) {
        return true;
    }
    kept = json_pack("{s:s, s:o, s:o}", "type",
                     cddpi_config_word(trainer->config, "data.normalize"), "subtract",
                     list_of(normalization->subtract, normalization->count), "divide",
                     list_of(normalization->divide, normalization->count));
    return json_object_set_new(state, "normalize", kept) == 0;
}

/* Say if the data that the run goes on with have other statistics than those it keeps. */
static cddp_status compare(struct cddpi_trainer *trainer)
{
    const struct cddpi_normalization *kept = trainer->data.normalization;
    struct cddpi_normalization *now = cddpi_normalization_create(kept->count);
    cddp_status status;

    if (now == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    status = cddpi_normalization_find(&trainer->data.train.data,
                                      (enum cddpi_normalize)trainer->config->data.normalize, now);
    for (size_t i = 0; status == CDDP_OK && i < kept->count; i++) {
        if (kept->subtract[i] != now->subtract[i] || kept->divide[i] != now->divide[i]) {
            cddpi_trainer_warn(
                trainer,
                "data.normalize: the run keeps the statistics of the data that it began with; "
                "those of these data differ: (x - %g) / %g, not (x - %g) / %g, for number %zu",
                (double)kept->subtract[i], (double)kept->divide[i], (double)now->subtract[i],
                (double)now->divide[i], i);
            break;
        }
    }
    cddpi_normalization_destroy(now);
    return status;
}

/* Rank 0: find the statistics, or compare those that the checkpoint had. */
static cddp_status prepare(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;

    if (trainer->data.normalization != NULL) {
        return config->train.resume_data == CDDPI_RESUME_DATA_ANY ? compare(trainer) : CDDP_OK;
    }
    trainer->data.normalization = cddpi_normalization_create(
        cddpi_normalization_count(&trainer->data.train.data));
    if (trainer->data.normalization == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    return cddpi_normalization_find(&trainer->data.train.data,
                                    (enum cddpi_normalize)config->data.normalize,
                                    trainer->data.normalization);
}

cddp_status cddpi_trainer_normalize(struct cddpi_trainer *trainer)
{
    struct cddpi_normalization *normalization;
    cddp_status status = CDDP_OK;

    if (trainer->config->data.normalize == CDDPI_NORMALIZE_NONE) {
        return CDDP_OK;
    }
    if (trainer->rank == 0) {
        status = prepare(trainer);
    } else {
        trainer->data.normalization = cddpi_normalization_create(
            cddpi_normalization_count(&trainer->data.train.data));
        status = trainer->data.normalization != NULL ? CDDP_OK : CDDP_ERR_NO_MEMORY;
    }
    CDDPI_TRY(cddpi_agree(trainer->group, status));
    normalization = trainer->data.normalization;
    CDDPI_TRY(cddp_broadcast(trainer->group, normalization->subtract, normalization->count,
                             CDDP_F32, 0, NULL));
    CDDPI_TRY(cddp_broadcast(trainer->group, normalization->divide, normalization->count, CDDP_F32,
                             0, NULL));
    trainer->data.train.data.normalization = normalization;
    trainer->data.test.data.normalization = normalization;
    return CDDP_OK;
}
