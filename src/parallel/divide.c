/* divide.c - owns the division of a model's layers among stages. */
#include "parallel/divide.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdint.h>
#include <string.h>

/* Layers of which a stage has all or none: each begins with one that costs something. */
struct units {
    int *first;   /* layer; one more than there are units: the end */
    double *sums; /* of the costs of all units before */
    int count;
};

static void fini_units(struct units *units)
{
    cddpi_free(units->first);
    cddpi_free(units->sums);
}

static bool init_units(const double *costs, int layers, struct units *out)
{
    double sum = 0;

    *out = (struct units){.first = cddpi_zalloc_array((size_t)layers + 1, sizeof *out->first),
                          .sums = cddpi_zalloc_array((size_t)layers + 1, sizeof *out->sums)};
    if (out->first == NULL || out->sums == NULL) {
        fini_units(out);
        return false;
    }
    for (int i = 0; i < layers; i++) {
        if (i == 0 || costs[i] > 0) {
            out->sums[out->count] = sum;
            out->first[out->count++] = i;
        }
        sum += costs[i];
    }
    out->sums[out->count] = sum;
    out->first[out->count] = layers;
    return true;
}

/* One row of the table: `longest[n]` is what the first n units take at least, divided among so many
 * stages, the last of which begins at unit `begin[n]`. */
struct row {
    double *longest;
    int *begin;
};

/* The classic partition of a sequence: best for one more stage from best for so many. */
static void add_stage(const struct units *units, const struct row *before, struct row *row,
                      int stages)
{
    for (int n = stages; n <= units->count; n++) {
        row->begin[n] = -1;
        for (int first = stages - 1; first < n; first++) {
            double last = units->sums[n] - units->sums[first];
            double longest = before->longest[first] > last ? before->longest[first] : last;

            if (row->begin[n] < 0 || longest < row->longest[n]) {
                row->longest[n] = longest;
                row->begin[n] = first;
            }
        }
    }
}

static cddp_status partition(const struct units *units, int stages, struct cddpi_layer_range *out)
{
    size_t width = (size_t)units->count + 1;
    double *longest = cddpi_zalloc_array(width * (size_t)stages, sizeof *longest);
    int *begin = cddpi_zalloc_array(width * (size_t)stages, sizeof *begin);
    int n = units->count;

    if (longest == NULL || begin == NULL) {
        cddpi_free(longest);
        cddpi_free(begin);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory to divide %d layers",
                          units->first[units->count]);
    }
    memcpy(longest, units->sums, width * sizeof *longest); /* one stage begins at unit 0 */
    for (int s = 1; s < stages; s++) {
        struct row before = {longest + width * (size_t)(s - 1), begin + width * (size_t)(s - 1)};
        struct row row = {longest + width * (size_t)s, begin + width * (size_t)s};

        add_stage(units, &before, &row, s + 1);
    }
    for (int s = stages - 1; s >= 0; s--) {
        int first = begin[width * (size_t)s + (size_t)n];

        out[s] = (struct cddpi_layer_range){units->first[first], units->first[n]};
        n = first;
    }
    cddpi_free(longest);
    cddpi_free(begin);
    return CDDP_OK;
}

cddp_status cddpi_divide_layers(const double *costs, int layers, int stages,
                                struct cddpi_layer_range *out)
{
    struct units units;
    cddp_status status;

    if (!init_units(costs, layers, &units)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory to divide %d layers", layers);
    }
    if (units.count < stages) {
        status = cddpi_fail(CDDP_ERR_CONFIG,
                            "parallel: %d stages are more than the model's %d layers (those that "
                            "are not done along with the layer before)",
                            stages, units.count);
    } else {
        status = partition(&units, stages, out);
    }
    fini_units(&units);
    return status;
}

cddp_status cddpi_stages_from_names(const struct cddpi_model_spec *spec, char *const *names,
                                    int count, struct cddpi_layer_range *out)
{
    int last = 0;
    int layers = 0;
    cddp_status status = CDDP_OK;

    out[0].first = 0;
    for (int i = 0; status == CDDP_OK && i < count; i++) {
        int layer = 0;

        status = cddpi_model_find_layer(spec, names[i], &layer, &layers);
        if (status == CDDP_OK && layer <= last) {
            status = cddpi_fail(CDDP_ERR_CONFIG,
                                "a stage cannot begin with \"%s\": it does not come behind where "
                                "the stage before begins",
                                names[i]);
        }
        out[i].end = layer;
        out[i + 1] = (struct cddpi_layer_range){layer, layers};
        last = layer;
    }
    return status;
}

cddp_status cddpi_stages_measured(const struct cddpi_model_spec *spec, int samples, int stages,
                                  struct cddpi_layer_range *out)
{
    double *costs = NULL;
    int layers = 0;
    cddp_status status = cddpi_model_measure_layers(spec, samples, &costs, &layers);

    if (status == CDDP_OK) {
        status = cddpi_divide_layers(costs, layers, stages, out);
    }
    cddpi_free(costs);
    return status;
}
