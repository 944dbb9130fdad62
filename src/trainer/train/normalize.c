/* normalize.c - owns when the statistics of data.normalize are found, and their form in state.json:
 * "normalize": {"type": "standard", "subtract": [...], "divide": [...]}. A run that goes on never
 * finds them again: its parameters were trained on numbers normalised by the first ones. Beside
 * them are the "columns" of CSV files, which must stay the same, and what "missing" numbers get. */
#include "train/normalize.h"

#include "base/error.h"
#include "data/normalization.h"
#include "data/rounds.h"
#include "train/trainer.h"

#include <string.h>

enum { MOST = 500000 }; /* state.json may have 64 MiB */

/* The name of the first column that differs. */
static const char *find_difference(const json_t *before, const json_t *now)
{
    static const char *const lists[] = {"features", "targets"};

    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        const json_t *old = json_object_get(before, lists[l]);
        const json_t *new = json_object_get(now, lists[l]);

        for (size_t i = 0; i < json_array_size(old) || i < json_array_size(new); i++) {
            const json_t *one = json_array_get(new, i) != NULL ? json_array_get(new, i)
                                                               : json_array_get(old, i);
            const char *name = json_string_value(json_object_get(one, "name"));

            if (!json_equal(json_array_get(old, i), json_array_get(new, i))) {
                return name != NULL ? name : "";
            }
        }
    }
    return "";
}

/* Each weight of the first layer belongs to one column or category. With others, the model would
 * take one for another. */
static cddp_status check_columns(const struct cddpi_trainer *trainer, const char *path,
                                 const json_t *state)
{
    const char *columns = trainer->data.train.data.columns;
    const json_t *before = json_object_get(state, "columns");
    cddp_status status = CDDP_OK;
    json_t *now;

    if (columns == NULL || before == NULL) { /* no table, or a checkpoint of an earlier version */
        return CDDP_OK;
    }
    now = json_loads(columns, 0, NULL);
    CDDPI_TRY_MEMORY(now != NULL, "%s: no memory for its columns", path);
    if (!json_equal(before, now)) {
        status = cddpi_config_fail(trainer->config, "data.train",
                                   "the columns, their categories or classes are others than those "
                                   "that %s was made with: the first that differs is \"%.100s\". "
                                   "Begin a new run with these data",
                                   path, find_difference(before, now));
    }
    json_decref(now);
    return status;
}

cddp_status cddpi_normalize_read(struct cddpi_trainer *trainer, const char *path,
                                 const json_t *state)
{
    const struct cddpi_config *config = trainer->config;
    const char *wanted = cddpi_config_word(config, "data.normalize");
    const char *kept = json_string_value(
        json_object_get(json_object_get(state, "normalize"), "type"));

    CDDPI_TRY(check_columns(trainer, path, state));
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
               : cddpi_normalization_parse(path, state, trainer->data.normalization);
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
    const struct cddpi_dataset *train = &trainer->data.train.data;
    const char *columns = train->columns;
    json_t *kept;

    if (columns != NULL &&
        json_object_set_new(state, "columns", json_loads(columns, 0, NULL)) != 0) {
        return false;
    }
    if (train->missing != NULL &&
        json_object_set_new(state, "missing", list_of(train->missing, (size_t)train->width)) != 0) {
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
static cddp_status compare(struct cddpi_trainer *trainer, struct cddpi_rounds *rounds)
{
    const struct cddpi_normalization *kept = trainer->data.normalization;
    struct cddpi_normalization *now = cddpi_normalization_create(kept->count);
    cddp_status status;

    if (now == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    status = cddpi_normalization_find(&trainer->data.train.data,
                                      (enum cddpi_normalize)trainer->config->data.normalize, rounds,
                                      now);
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
static cddp_status prepare(struct cddpi_trainer *trainer, struct cddpi_rounds *rounds)
{
    const struct cddpi_config *config = trainer->config;

    if (trainer->data.normalization != NULL) {
        return config->train.resume_data == CDDPI_RESUME_DATA_ANY ? compare(trainer, rounds)
                                                                  : CDDP_OK;
    }
    trainer->data.normalization = cddpi_normalization_create(
        cddpi_normalization_count(&trainer->data.train.data));
    if (trainer->data.normalization == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    return cddpi_normalization_find(&trainer->data.train.data,
                                    (enum cddpi_normalize)config->data.normalize, rounds,
                                    trainer->data.normalization);
}

cddp_status cddpi_trainer_normalize(struct cddpi_trainer *trainer)
{
    size_t count = cddpi_normalization_count(&trainer->data.train.data);
    struct cddpi_rounds rounds = {.group = trainer->group};
    struct cddpi_normalization *normalization;
    cddp_status status = CDDP_OK;

    if (trainer->config->data.normalize == CDDPI_NORMALIZE_NONE) {
        return CDDP_OK;
    }
    if (count > MOST) {
        return cddpi_config_fail(trainer->config, "data.normalize",
                                 "samples of %zu numbers, but a checkpoint has room for the "
                                 "statistics of %d",
                                 count, MOST);
    }
    if (trainer->rank == 0) {
        status = prepare(trainer, &rounds);
    } else {
        trainer->data.normalization = cddpi_normalization_create(count);
        status = trainer->data.normalization != NULL ? CDDP_OK : CDDP_ERR_NO_MEMORY;
    }
    CDDPI_TRY(cddpi_rounds_end(&rounds, status));
    normalization = trainer->data.normalization;
    CDDPI_TRY(cddp_broadcast(trainer->group, normalization->subtract, normalization->count,
                             CDDP_F32, 0, NULL));
    CDDPI_TRY(cddp_broadcast(trainer->group, normalization->divide, normalization->count, CDDP_F32,
                             0, NULL));
    trainer->data.train.data.normalization = normalization;
    trainer->data.test.data.normalization = normalization;
    return CDDP_OK;
}
