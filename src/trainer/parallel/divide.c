/* divide.c - owns the division of a model's layers into stages. */
#include "parallel/divide.h"

#include "base/alloc.h"
#include "base/error.h"

/* Groups of layers that must be in the same stage. Each begins with a layer whose cost is not 0. */
struct units {
    int *first;   /* the first layer of each unit; the last entry is the end */
    double *sums; /* sum of the costs of all units before */
    int count;
    const bool *learns; /* borrowed, one per layer, for time only; NULL: all have parameters */
    const struct cddpi_layer_bytes *layers; /* borrowed, for memory only, like memory: */
    const struct cddpi_stage_memory *memory;
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

/* One row of the table, for some number of stages: `longest[n]` is the smallest possible cost of
 * the most expensive stage for the first n units, and the last stage then begins at unit
 * `begin[n]`. */
struct divide_row {
    double *longest;
    int *begin;
};

/* The cost of stage @p stage with units [@p first, @p end). */
typedef double (*cost_fn)(const struct units *units, int stage, int first, int end);

static bool learns(const struct units *units, int first, int end)
{
    bool any = units->learns == NULL;

    for (int i = units->first[first]; !any && i < units->first[end]; i++) {
        any = units->learns[i];
    }
    return any;
}

/* A stage without parameters costs more than any stage with parameters. */
static double time_of(const struct units *units, int stage, int first, int end)
{
    double all = units->sums[units->count];

    (void)stage;
    return units->sums[end] - units->sums[first] + (learns(units, first, end) ? 0 : all);
}

static double bytes_of(const struct units *units, int stage, int first, int end)
{
    struct cddpi_layer_range range = {units->first[first], units->first[end]};

    return (double)cddpi_stage_bytes(units->layers, range, &units->memory[stage]);
}

/* Dynamic programming: find the best partitions into @p stages stages from the best ones into one
 * stage less. */
static void add_stage(const struct units *units, cost_fn cost, const struct divide_row *before,
                      struct divide_row *row, int stages)
{
    for (int n = stages; n <= units->count; n++) {
        row->begin[n] = -1;
        for (int first = stages - 1; first < n; first++) {
            double last = cost(units, stages - 1, first, n);
            double longest = before->longest[first] > last ? before->longest[first] : last;

            if (row->begin[n] < 0 || longest < row->longest[n]) {
                row->longest[n] = longest;
                row->begin[n] = first;
            }
        }
    }
}

static cddp_status partition(const struct units *units, cost_fn cost, int stages,
                             struct cddpi_layer_range *out)
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
    for (int u = 1; u <= units->count; u++) {
        longest[u] = cost(units, 0, 0, u); /* a single stage begins at unit 0 */
    }
    for (int s = 1; s < stages; s++) {
        struct divide_row before = {longest + width * (size_t)(s - 1),
                                    begin + width * (size_t)(s - 1)};
        struct divide_row row = {longest + width * (size_t)s, begin + width * (size_t)s};

        add_stage(units, cost, &before, &row, s + 1);
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

/* With @p memory NULL, divide by time and use @p learns; else divide by memory and use @p bytes. */
static cddp_status divide(const double *costs, const bool *learns,
                          const struct cddpi_layer_bytes *bytes, int layers,
                          const struct cddpi_stage_memory *memory, int stages,
                          struct cddpi_layer_range *out)
{
    struct units units;
    cddp_status status;

    if (!init_units(costs, layers, &units)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory to divide %d layers", layers);
    }
    units.learns = learns;
    units.layers = bytes;
    units.memory = memory;
    if (units.count < stages) {
        status = cddpi_fail(CDDP_ERR_CONFIG,
                            "parallel: %d stages are more than the model's %d layers (those that "
                            "are not done along with the layer before)",
                            stages, units.count);
    } else {
        status = partition(&units, memory != NULL ? bytes_of : time_of, stages, out);
    }
    fini_units(&units);
    return status;
}

cddp_status cddpi_divide_layers(const double *costs, const bool *learns, int layers, int stages,
                                struct cddpi_layer_range *out)
{
    return divide(costs, learns, NULL, layers, NULL, stages, out);
}

cddp_status cddpi_divide_by_time(const struct cddpi_model_spec *spec, const double *costs,
                                 int layers, int stages, struct cddpi_layer_range *out)
{
    bool *learns = cddpi_zalloc_array((size_t)layers, sizeof *learns);
    int count;
    cddp_status status;

    CDDPI_TRY_MEMORY(learns != NULL, "parallel: no memory to divide %d layers", layers);
    for (int i = 0; i < layers; i++) {
        CDDPI_TRY_GOTO(out, status, cddpi_model_layer_has_params(spec, i, &learns[i], &count));
    }
    status = cddpi_divide_layers(costs, learns, layers, stages, out);

out:
    cddpi_free(learns);
    return status;
}

size_t cddpi_stage_bytes(const struct cddpi_layer_bytes *layers, struct cddpi_layer_range range,
                         const struct cddpi_stage_memory *memory)
{
    size_t sum = 0;

    for (int i = range.first; i < range.end; i++) {
        sum += layers[i].parameters * (size_t)memory->parameter_copies +
               layers[i].activations * (size_t)memory->micro_batches;
    }
    return sum;
}

cddp_status cddpi_divide_by_memory(const struct cddpi_layer_bytes *layers, int count,
                                   const struct cddpi_stage_memory *memory, int stages,
                                   struct cddpi_layer_range *out)
{
    double *begins = cddpi_zalloc_array((size_t)count + 1, sizeof *begins);
    bool learns = false;
    cddp_status status;

    CDDPI_TRY_MEMORY(begins != NULL, "parallel: no memory to divide %d layers", count);
    for (int i = 0; i < count; i++) { /* no stage begins before the first layer with parameters */
        begins[i] = layers[i].is_own && layers[i].parameters > 0 && learns ? 1 : 0;
        learns = learns || layers[i].parameters > 0;
    }
    status = divide(begins, NULL, layers, count, memory, stages, out);
    cddpi_free(begins);
    return status;
}

cddp_status cddpi_stages_from_names(const struct cddpi_model_spec *spec, char *const *names,
                                    int count, struct cddpi_layer_range *out)
{
    int last = 0;
    int layers = 0;

    out[0].first = 0;
    for (int i = 0; i < count; i++) {
        int layer = 0;

        CDDPI_TRY(cddpi_model_find_layer(spec, names[i], &layer, &layers));
        if (layer <= last) {
            return cddpi_fail(
                CDDP_ERR_CONFIG,
                "a stage cannot begin with \"%s\": the stage before begins there or later",
                names[i]);
        }
        out[i].end = layer;
        out[i + 1] = (struct cddpi_layer_range){layer, layers};
        last = layer;
    }
    return CDDP_OK;
}

cddp_status cddpi_stages_measured(const struct cddpi_model_spec *spec, int samples, int stages,
                                  struct cddpi_layer_range *out)
{
    double *costs = NULL;
    int layers = 0;
    cddp_status status;

    CDDPI_TRY(cddpi_model_measure_layers(spec, samples, &costs, &layers));
    status = cddpi_divide_by_time(spec, costs, layers, stages, out);
    cddpi_free(costs);
    return status;
}
