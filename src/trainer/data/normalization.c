/* normalization.c - owns the statistics by which numbers are normalised. They are summed by one
 * thread in the order of rows, so that their bits depend on the data only. */
#include "data/normalization.h"

#include "base/alloc.h"
#include "base/error.h"
#include "data/numbers.h"
#include "data/rounding.h"
#include "data/rounds.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { TICK_ROWS = 256 }; /* a look at the clock takes as long as a short row */

/* Sums over the numbers of one part; those of values are of differences to the first value, which
 * keeps them exact where values are large and differ little. */
struct normalization_sums {
    double first, sum, squares;
    float low, high;
};

size_t cddpi_normalization_count(const struct cddpi_dataset *dataset)
{
    return (size_t)(dataset->channels == 1 && dataset->height == 1 ? dataset->width
                                                                   : dataset->channels);
}

struct cddpi_normalization *cddpi_normalization_create(size_t count)
{
    struct cddpi_normalization *normalization = cddpi_zalloc(sizeof *normalization);

    if (normalization != NULL) {
        normalization->count = count;
        normalization->subtract = cddpi_zalloc_array(count, sizeof(float));
        normalization->divide = cddpi_zalloc_array(count, sizeof(float));
    }
    if (normalization == NULL || normalization->subtract == NULL || normalization->divide == NULL) {
        cddpi_normalization_destroy(normalization);
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "data.normalize: no memory");
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        normalization->divide[i] = 1;
    }
    return normalization;
}

void cddpi_normalization_destroy(struct cddpi_normalization *normalization)
{
    if (normalization != NULL) {
        cddpi_free(normalization->subtract);
        cddpi_free(normalization->divide);
        cddpi_free(normalization);
    }
}

void cddpi_normalization_apply(const struct cddpi_normalization *normalization, size_t elements,
                               float *sample)
{
    size_t plane = elements / normalization->count;

    for (size_t part = 0; part < normalization->count; part++) {
        float subtract = normalization->subtract[part];
        float divide = normalization->divide[part];

        for (size_t i = 0; i < plane; i++) {
            sample[part * plane + i] = (sample[part * plane + i] - subtract) / divide;
        }
    }
}

static void add_sample(struct normalization_sums *sums, size_t count, size_t plane,
                       const float *sample, bool is_first)
{
    for (size_t part = 0; part < count; part++) {
        struct normalization_sums *of = &sums[part];

        if (is_first) {
            of->first = (double)sample[part * plane];
            of->low = of->high = sample[part * plane];
        }
        for (size_t i = 0; i < plane; i++) {
            float value = sample[part * plane + i];
            double difference = (double)value - of->first;

            of->sum += difference;
            of->squares += difference * difference;
            of->low = value < of->low ? value : of->low;
            of->high = value > of->high ? value : of->high;
        }
    }
}

/* Add the samples in the order of their rows, in which their files are read, not in that of the
 * split. */
static cddp_status add_samples(const struct cddpi_dataset *dataset, const bool *held, size_t count,
                               struct cddpi_rounds *rounds, float *sample, int32_t *label,
                               struct normalization_sums *sums)
{
    size_t elements = cddpi_dataset_elements(dataset);
    struct cddpi_dataset rows = *dataset;
    uint64_t all = held != NULL ? cddp_sampler_count(dataset->split) : dataset->count;
    bool is_first = true;
    char text[1024];

    rows.split = NULL;
    rows.normalization = NULL;
    for (uint64_t row = 0; row < all; row++) {
        CDDPI_TRY(row % TICK_ROWS == 0 ? cddpi_rounds_tick(rounds) : CDDP_OK);
        if (held != NULL && held[row]) {
            continue;
        }
        if (!cddpi_dataset_numbers(&rows, row, sample, label, text, sizeof text)) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s", text);
        }
        add_sample(sums, count, elements / count, sample, is_first);
        is_first = false;
    }
    return cddpi_dataset_check(dataset, false);
}

/* Warn of the first part whose numbers floats cannot tell apart. Other files than NumPy's hold
 * floats. */
static cddp_status doubt(const struct cddpi_dataset *dataset, size_t count,
                         struct cddpi_rounds *rounds)
{
    size_t elements = cddpi_dataset_elements(dataset);
    struct cddpi_rounding *parts = cddpi_zalloc_array(count, sizeof *parts);
    bool told = false;
    cddp_status status = CDDP_OK;

    CDDPI_TRY_MEMORY(parts != NULL, "data.normalize: no memory");
    for (size_t i = 0; i < count; i++) {
        parts[i] = CDDPI_ROUNDING_INIT;
    }
    for (size_t s = 0; s < dataset->number_shard_count; s++) {
        const struct cddpi_number_shard *shard = &dataset->number_shards[s];
        uint64_t planes = cddpi_number_rounds(shard->inputs.type) ? shard->count * count : 0;
        size_t part = 0;

        for (uint64_t plane = 0; plane < planes && status == CDDP_OK; plane++) {
            status = plane % TICK_ROWS == 0 ? cddpi_rounds_tick(rounds) : CDDP_OK;
            for (size_t i = 0; i < elements / count; i++) {
                cddpi_rounding_note(
                    &parts[part], cddpi_number_at(&shard->inputs, plane * (elements / count) + i));
            }
            part = part + 1 < count ? part + 1 : 0;
        }
    }
    for (size_t i = 0; i < count && !told && status == CDDP_OK; i++) {
        char what[512];

        snprintf(what, sizeof what, "%.400s: number %zu of the samples",
                 dataset->number_shards[0].path, i);
        told = cddpi_rounding_doubt(&parts[i], what);
    }
    cddpi_free(parts);
    return status == CDDP_OK ? cddpi_dataset_check(dataset, false) : status;
}

/* Mark the rows that are held back. */
static cddp_status find_held_back(const struct cddpi_dataset *dataset, bool **out)
{
    uint64_t all = dataset->split != NULL ? cddp_sampler_count(dataset->split) : 0;

    *out = NULL;
    if (dataset->split == NULL) {
        return CDDP_OK;
    }
    *out = cddpi_zalloc_array(all, sizeof **out);
    CDDPI_TRY_MEMORY(*out != NULL, "data.normalize: no memory");
    for (uint64_t i = 0; i < all; i++) {
        (*out)[cddp_sampler_at(dataset->split, i)] = i < dataset->split_first ||
                                                     i - dataset->split_first >= dataset->count;
    }
    return CDDP_OK;
}

/* Fail because of part @p part of the samples, which has a name if it is a column of CSV files. */
static cddp_status fail_range(const struct cddpi_dataset *dataset, size_t part,
                              const struct normalization_sums *sums)
{
    json_t *columns = dataset->columns != NULL ? json_loads(dataset->columns, 0, NULL) : NULL;
    const json_t *features = json_object_get(columns, "features");
    const char *name = NULL;
    size_t at = 0;

    for (size_t i = 0; i < json_array_size(features) && at <= part; i++) {
        const json_t *categories = json_object_get(json_array_get(features, i), "categories");

        name = json_string_value(json_object_get(json_array_get(features, i), "name"));
        at += categories != NULL ? json_array_size(categories) : 1;
    }
    (void)cddpi_fail(
        CDDP_ERR_FORMAT,
        "data.normalize: number %zu of the samples%s%.100s is from %g to %g, a range that "
        "is too large for 32-bit floats: make the numbers smaller in the file",
        part, name != NULL ? ", column " : "", name != NULL ? name : "", (double)sums->low,
        (double)sums->high);
    json_decref(columns);
    return CDDP_ERR_FORMAT;
}

static void conclude(enum cddpi_normalize type, const struct normalization_sums *sums,
                     double values, size_t part, struct cddpi_normalization *out)
{
    double mean = sums->sum / values;
    double variance = sums->squares / values - mean * mean;
    float divide = type == CDDPI_NORMALIZE_MINMAX ? sums->high - sums->low
                                                  : (float)sqrt(variance > 0 ? variance : 0);

    out->subtract[part] = type == CDDPI_NORMALIZE_MINMAX ? sums->low : (float)(sums->first + mean);
    out->divide[part] = isfinite(divide) && divide > 0 ? divide : 1;
}

/* Let the categories of CSV files be as they are. */
static cddp_status keep_categories(const struct cddpi_dataset *dataset,
                                   struct cddpi_normalization *out)
{
    json_t *columns = json_loads(dataset->columns, 0, NULL);
    const json_t *features = json_object_get(columns, "features");
    size_t part = 0;

    CDDPI_TRY_MEMORY(columns != NULL, "data.normalize: no memory");
    for (size_t i = 0; i < json_array_size(features); i++) {
        const json_t *categories = json_object_get(json_array_get(features, i), "categories");
        size_t width = categories != NULL ? json_array_size(categories) : 1;

        for (size_t k = 0; categories != NULL && k < width && part + k < out->count; k++) {
            out->subtract[part + k] = 0;
            out->divide[part + k] = 1;
        }
        part += width;
    }
    json_decref(columns);
    return CDDP_OK;
}

cddp_status cddpi_normalization_find(const struct cddpi_dataset *dataset, enum cddpi_normalize type,
                                     struct cddpi_rounds *rounds, struct cddpi_normalization *out)
{
    size_t elements = cddpi_dataset_elements(dataset);
    struct normalization_sums *sums = cddpi_zalloc_array(out->count, sizeof *sums);
    float *sample = cddpi_zalloc_array(elements, sizeof *sample);
    int32_t *label = cddpi_zalloc_array(cddpi_dataset_labels(dataset), sizeof *label);
    double values = (double)dataset->count * (double)(elements / out->count);
    bool *held = NULL;
    cddp_status status;

    if (sums == NULL || sample == NULL || label == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "data.normalize: no memory");
        goto done;
    }
    CDDPI_TRY_GOTO(done, status, find_held_back(dataset, &held));
    CDDPI_TRY_GOTO(done, status,
                   add_samples(dataset, held, out->count, rounds, sample, label, sums));
    CDDPI_TRY_GOTO(done, status, doubt(dataset, out->count, rounds));
    for (size_t part = 0; part < out->count; part++) {
        conclude(type, &sums[part], values, part, out);
        if (!isfinite(sums[part].high - out->subtract[part]) ||
            !isfinite(sums[part].low - out->subtract[part])) {
            status = fail_range(dataset, part, &sums[part]);
            goto done;
        }
    }
    if (dataset->columns != NULL) {
        status = keep_categories(dataset, out);
    }

done:
    cddpi_free(held);
    cddpi_free(label);
    cddpi_free(sample);
    cddpi_free(sums);
    return status;
}

cddp_status cddpi_normalization_parse(const char *path, const struct json_t *state,
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
