/* stages_describe.c - prints the dry run's table of stages. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "parallel/divide.h"
#include "train/engines/stages/division.h"
#include "train/engines/stages/stages_state.h"

static cddp_status count_parameters(const struct cddpi_model_spec *spec,
                                    struct cddpi_layer_range range, size_t *out)
{
    struct cddpi_model_spec part = *spec;
    struct cddpi_model *model = NULL;
    const cddp_param *params;
    size_t count;

    part.part = range;
    CDDPI_TRY(cddpi_model_create(&part, 0, NULL, &model));
    params = cddpi_model_params(model, &count);
    *out = 0;
    for (size_t i = 0; i < count; i++) {
        *out += cddpi_elements(params[i].dims, params[i].shape);
    }
    cddpi_model_destroy(model);
    return CDDP_OK;
}

static double sum_of(const double *costs, struct cddpi_layer_range range)
{
    double sum = 0;

    for (int i = range.first; i < range.end; i++) {
        sum += costs[i];
    }
    return sum;
}

static cddp_status print_stage(const struct cddpi_model_spec *spec,
                               const struct cddpi_pipeline_shape *shape, int stage,
                               struct cddpi_layer_range range, double part, FILE *file)
{
    char first[64] = "";
    char last[64] = "";
    size_t parameters = 0;
    char more[64] = "";
    int slots = 0;
    int kept = 0;

    CDDPI_TRY(cddpi_stages_count_slots(shape, stage, &slots, &kept));
    CDDPI_TRY(count_parameters(spec, range, &parameters));
    CDDPI_TRY(cddpi_model_layer_name(spec, range.first, first, sizeof first));
    CDDPI_TRY(cddpi_model_layer_name(spec, range.end - 1, last, sizeof last));
    if (kept > slots) {
        snprintf(more, sizeof more, ", and what gradients are made of for %d", kept);
    }
    fprintf(file,
            "  stage %d on rank %d: %s to %s, %zu parameters, %.0f %% of the time, keeps %d "
            "micro-batch%s%s\n",
            stage, stage % shape->ranks, first, last, parameters, 100 * part, slots,
            slots == 1 ? "" : "es", more);
    return CDDP_OK;
}

static cddp_status print_all(const struct cddpi_model_spec *spec,
                             const struct cddpi_pipeline_shape *shape,
                             const struct cddpi_layer_range *ranges, const double *costs,
                             int layers, FILE *file)
{
    double all = sum_of(costs, (struct cddpi_layer_range){0, layers});
    double longest = 0;
    int stages = shape->ranks * shape->chunks;

    for (int s = 0; s < stages; s++) {
        double part = sum_of(costs, ranges[s]) / all;

        longest = part > longest ? part : longest;
    }
    fprintf(
        file,
        "pipeline: %d stages, %d micro-batches; ranks wait %.0f %% of the time for the first "
        "and last ones, and all for the longest stage, which makes %.2f of a perfect division\n",
        stages, shape->micro_batches, 100 * cddpi_pipeline_bubble(shape), 1 / (longest * stages));
    for (int s = 0; s < stages; s++) {
        CDDPI_TRY(print_stage(spec, shape, s, ranges[s], sum_of(costs, ranges[s]) / all, file));
    }
    return CDDP_OK;
}

/* Divide the layers. A division by time uses the times measured for the table. */
static cddp_status divide_layers(const struct cddpi_config *config,
                                 const struct cddpi_model_spec *spec, int samples,
                                 const double *costs, int layers, struct cddpi_layer_range *out)
{
    int stages = config->parallel.pipeline * config->parallel.chunks;
    cddp_status status = cddpi_stages_divide(config, spec, samples, out);

    return status == CDDP_OK && !cddpi_stages_are_named(config) && config->parallel.balance == 0
               ? cddpi_divide_by_time(spec, costs, layers, stages, out)
               : status;
}

cddp_status cddpi_stages_describe(const struct cddpi_config *config,
                                  const struct cddpi_model_spec *spec, int samples, FILE *file)
{
    struct cddpi_pipeline_shape shape = cddpi_stages_shape(config);
    int stages = shape.ranks * shape.chunks;
    struct cddpi_layer_range *ranges;
    double *costs = NULL;
    int layers = 0;
    cddp_status status;

    ranges = cddpi_zalloc_array((size_t)stages, sizeof *ranges);
    if (ranges == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d stages", stages);
    }
    status = cddpi_model_measure_layers(spec, samples, &costs, &layers);
    if (status == CDDP_OK) {
        status = divide_layers(config, spec, samples, costs, layers, ranges);
    }
    if (status == CDDP_OK) {
        status = print_all(spec, &shape, ranges, costs, layers, file);
    }
    cddpi_free(costs);
    cddpi_free(ranges);
    return status;
}
