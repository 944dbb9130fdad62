/* graph_layers.c - owns the table of layer types, and the completion of a description's layers. */
#include "nn/graph/graph_layers.h"

#include "base/error.h"
#include "nn/graph/graph.h"

#include <string.h>

const char *const cddpi_layer_words[CDDPI_LAYER_COUNT] = {CDDPI_LAYER_MAP(CDDPI_CHOICE_WORD)};

const struct cddpi_layer_row cddpi_layer_rows[CDDPI_LAYER_COUNT] = {
    [CDDPI_LAYER_LINEAR] = {CDDPI_TAKES_UNITS | CDDPI_TAKES_BIAS | CDDPI_TAKES_TIED |
                                CDDPI_TAKES_DEVIATION,
                            "y = W x + b, of flat inputs or each row of a sequence",
                            &cddpi_op_linear},
    [CDDPI_LAYER_CONV2D] = {CDDPI_TAKES_UNITS | CDDPI_TAKES_KERNEL | CDDPI_TAKES_STRIDE |
                                CDDPI_TAKES_PADDING | CDDPI_TAKES_BIAS | CDDPI_TAKES_GROUPS |
                                CDDPI_TAKES_DEVIATION,
                            "square filters over images", &cddpi_op_conv2d},
    [CDDPI_LAYER_BATCH_NORM] = {CDDPI_TAKES_NORM | CDDPI_TAKES_EPSILON | CDDPI_TAKES_DEVIATION,
                                "each channel to mean 0 and variance 1, then scale and shift",
                                &cddpi_op_batch_norm},
    [CDDPI_LAYER_RELU] = {0, "max(x, 0)", &cddpi_op_pointwise[CDDPI_POINTWISE_RELU]},
    [CDDPI_LAYER_MAX_POOL] = {CDDPI_TAKES_KERNEL | CDDPI_TAKES_STRIDE | CDDPI_TAKES_PADDING,
                              "largest of each square", &cddpi_op_max_pool},
    [CDDPI_LAYER_AVG_POOL] = {CDDPI_TAKES_KERNEL | CDDPI_TAKES_STRIDE | CDDPI_TAKES_PADDING,
                              "mean of each square, padding counted as zeros", &cddpi_op_avg_pool},
    [CDDPI_LAYER_GLOBAL_AVG_POOL] = {0, "mean of each channel, flat", &cddpi_op_global_avg_pool},
    [CDDPI_LAYER_FLATTEN] = {0, "an image as one row of features", &cddpi_op_flatten},
    [CDDPI_LAYER_ADD] = {CDDPI_TAKES_INPUT2, "sum of two equal shapes", &cddpi_op_add},
    [CDDPI_LAYER_DROPOUT] = {CDDPI_TAKES_PROBABILITY,
                             "in training: elements zeroed at random, the rest scaled up",
                             &cddpi_op_dropout},
    [CDDPI_LAYER_EMBEDDING] = {CDDPI_TAKES_UNITS | CDDPI_TAKES_POSITIONS | CDDPI_TAKES_DEVIATION,
                               "a row of features for each token, and for its position",
                               &cddpi_op_embedding},
    [CDDPI_LAYER_LAYER_NORM] = {CDDPI_TAKES_EPSILON,
                                "each row of features to mean 0 and variance 1, then scale and "
                                "shift",
                                &cddpi_op_layer_norm},
    [CDDPI_LAYER_GELU] = {CDDPI_TAKES_EXACT, "x times the share of a normal distribution below x",
                          &cddpi_op_pointwise[CDDPI_POINTWISE_GELU]},
    [CDDPI_LAYER_SILU] = {0, "x / (1 + e^-x)", &cddpi_op_pointwise[CDDPI_POINTWISE_SILU]},
    [CDDPI_LAYER_ATTENTION] = {CDDPI_TAKES_HEADS,
                               "causal attention over a sequence of queries, keys and values, side "
                               "by side",
                               &cddpi_op_attention},
    [CDDPI_LAYER_RESPONSE_NORM] = {CDDPI_TAKES_KERNEL | CDDPI_TAKES_RESPONSE,
                                   "x over a power of the squares of `kernel` channels around it",
                                   &cddpi_op_response_norm},
    [CDDPI_LAYER_LSTM] = {CDDPI_TAKES_UNITS | CDDPI_TAKES_BIAS,
                          "long short-term memory over a sequence, from zeros on", &cddpi_op_lstm},
    [CDDPI_LAYER_CONV_TRANSPOSE2D] = {CDDPI_TAKES_UNITS | CDDPI_TAKES_KERNEL | CDDPI_TAKES_STRIDE |
                                          CDDPI_TAKES_PADDING | CDDPI_TAKES_BIAS |
                                          CDDPI_TAKES_DEVIATION,
                                      "each pixel puts its square filters into the output",
                                      &cddpi_op_conv_transpose2d},
    [CDDPI_LAYER_TANH] = {0, "hyperbolic tangent of x", &cddpi_op_pointwise[CDDPI_POINTWISE_TANH]},
    [CDDPI_LAYER_SIGMOID] = {0, "1 / (1 + e^-x)", &cddpi_op_pointwise[CDDPI_POINTWISE_SIGMOID]},
    [CDDPI_LAYER_LEAKY_RELU] = {CDDPI_TAKES_SLOPE, "x > 0 ? x : slope x",
                                &cddpi_op_pointwise[CDDPI_POINTWISE_LEAKY_RELU]},
};

enum { MAX_LAYERS = 4096 };

static cddp_status copy_layers(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    if (spec->layer_count == 0 || spec->layer_count > MAX_LAYERS || spec->layers == NULL) {
        return cddpi_fail(CDDP_ERR_CONFIG, "model: %zu layers; 1 to %d are possible",
                          spec->layer_count, MAX_LAYERS);
    }
    for (size_t i = 0; i < spec->layer_count; i++) {
        const struct cddpi_layer *layer = &spec->layers[i];

        if ((unsigned)layer->type >= CDDPI_LAYER_COUNT) {
            return cddpi_fail(CDDP_ERR_CONFIG, "model: layer %zu has the unknown type %d", i + 1,
                              (int)layer->type);
        }
        if (layer->name == NULL) {
            cddpi_layer_list_append(list, *layer, "%s%zu", cddpi_layer_words[layer->type], i + 1);
        } else if (layer->name[0] == '\0' || strlen(layer->name) >= CDDPI_LAYER_NAME_BYTES) {
            return cddpi_fail(CDDP_ERR_CONFIG,
                              "model: the name of layer %zu has %zu bytes; 1 to %d are possible",
                              i + 1, strlen(layer->name), CDDPI_LAYER_NAME_BYTES - 1);
        } else {
            cddpi_layer_list_append(list, *layer, NULL);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_layers_expand(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    cddp_status status;

    *list = (struct cddpi_layer_list){0};
    status = spec->preset != NULL ? cddpi_preset_expand(spec, list) : copy_layers(spec, list);
    if (status == CDDP_OK && list->no_memory) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory for %zu layers", list->count);
    }
    if (status != CDDP_OK) {
        cddpi_layer_list_fini(list);
    }
    return status;
}

static cddp_status not_taken(const struct cddpi_layer *layer)
{
    const struct {
        unsigned field;
        bool set;
        const char *name;
    } fields[] = {
        {CDDPI_TAKES_INPUT2, layer->input2 != NULL, "input2"},
        {CDDPI_TAKES_UNITS, layer->units != 0, "units"},
        {CDDPI_TAKES_KERNEL, layer->kernel != 0, "kernel"},
        {CDDPI_TAKES_STRIDE, layer->stride != 0, "stride"},
        {CDDPI_TAKES_PADDING, layer->padding != 0, "padding"},
        {CDDPI_TAKES_BIAS, layer->no_bias, "bias"},
        {CDDPI_TAKES_NORM, layer->sync, "sync"},
        {CDDPI_TAKES_EPSILON, layer->epsilon != 0, "epsilon"},
        {CDDPI_TAKES_NORM, layer->momentum != 0, "momentum"},
        {CDDPI_TAKES_PROBABILITY, layer->probability != 0, "probability"},
        {CDDPI_TAKES_HEADS, layer->heads != 0, "heads"},
        {CDDPI_TAKES_EXACT, layer->exact, "exact"},
        {CDDPI_TAKES_TIED, layer->tied != NULL, "tied"},
        {CDDPI_TAKES_POSITIONS, layer->positions != NULL, "positions"},
        {CDDPI_TAKES_DEVIATION, layer->deviation != 0, "deviation"},
        {CDDPI_TAKES_GROUPS, layer->groups != 0, "groups"},
        {CDDPI_TAKES_RESPONSE, layer->alpha != 0, "alpha"},
        {CDDPI_TAKES_RESPONSE, layer->beta != 0, "beta"},
        {CDDPI_TAKES_RESPONSE, layer->offset != 0, "offset"},
        {CDDPI_TAKES_SLOPE, layer->slope != 0, "slope"},
    };
    unsigned takes = cddpi_layer_rows[layer->type].takes;

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].set && (takes & fields[i].field) == 0) {
            return cddpi_fail(CDDP_ERR_CONFIG, "%s takes no %s", cddpi_layer_words[layer->type],
                              fields[i].name);
        }
    }
    return CDDP_OK;
}

static cddp_status in_range(const char *what, int value, int low, int high)
{
    if (value < low || value > high) {
        return cddpi_fail(CDDP_ERR_CONFIG, "%s is %d; %d to %d are possible", what, value, low,
                          high);
    }
    return CDDP_OK;
}

static cddp_status complete_window(struct cddpi_layer *layer)
{
    bool pool = layer->type != CDDPI_LAYER_CONV2D && layer->type != CDDPI_LAYER_CONV_TRANSPOSE2D;

    if (pool && layer->kernel == 0) {
        layer->kernel = 2;
    }
    if (layer->stride == 0) {
        layer->stride = pool ? layer->kernel : 1;
    }
    CDDPI_TRY(in_range("kernel", layer->kernel, 1, 1 << 12));
    CDDPI_TRY(in_range("stride", layer->stride, 1, 1 << 12));
    /* smaller than the kernel (for pools at most half of it, as in PyTorch), so no window lies in
     * the padding alone */
    return in_range("padding", layer->padding, 0, pool ? layer->kernel / 2 : layer->kernel - 1);
}

static cddp_status complete_response(struct cddpi_layer *layer)
{
    layer->kernel = layer->kernel == 0 ? 5 : layer->kernel;
    layer->alpha = layer->alpha == 0 ? 1e-4 : layer->alpha;
    layer->beta = layer->beta == 0 ? 0.75 : layer->beta;
    layer->offset = layer->offset == 0 ? 1 : layer->offset;
    if (!(layer->alpha > 0 && layer->alpha <= 1e3 && layer->beta > 0 && layer->beta <= 10 &&
          layer->offset >= 1e-6 && layer->offset <= 1e6)) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "alpha is %g, beta %g and offset %g; they must lie in (0, 1000], (0, 10] "
                          "and [1e-6, 1e6]",
                          layer->alpha, layer->beta, layer->offset);
    }
    return in_range("kernel", layer->kernel, 1, 1 << 12);
}

/* Replace a number of 0 by @p usual, and check it: above 0, and below 1 or at most @p most. */
static cddp_status complete_number(const char *name, double usual, double most, const char *range,
                                   double *number)
{
    *number = *number == 0 ? usual : *number;
    return *number > 0 && (most > 0 ? *number <= most : *number < 1)
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_CONFIG, "%s is %g; it must lie %s", name, *number, range);
}

static cddp_status complete_numbers(struct cddpi_layer *layer)
{
    if ((cddpi_layer_rows[layer->type].takes & CDDPI_TAKES_EPSILON) != 0) {
        CDDPI_TRY(complete_number("epsilon", 1e-5, 0, "between 0 and 1", &layer->epsilon));
    }
    if (layer->type == CDDPI_LAYER_BATCH_NORM) {
        CDDPI_TRY(complete_number("momentum", 0.1, 1, "in (0, 1]", &layer->momentum));
    }
    if (layer->type == CDDPI_LAYER_DROPOUT) {
        CDDPI_TRY(complete_number("probability", 0.5, 0, "in [0, 1)", &layer->probability));
    }
    if (layer->type == CDDPI_LAYER_LEAKY_RELU) {
        CDDPI_TRY(complete_number("slope", 0.01, 1, "in (0, 1]", &layer->slope));
    }
    if (!(layer->deviation >= 0 && layer->deviation <= 1e3)) {
        return cddpi_fail(CDDP_ERR_CONFIG, "deviation is %g; it must lie in [0, 1000]",
                          layer->deviation);
    }
    return CDDP_OK;
}

cddp_status cddpi_layer_complete(struct cddpi_layer *layer)
{
    unsigned takes = cddpi_layer_rows[layer->type].takes;

    CDDPI_TRY(not_taken(layer));
    if ((takes & CDDPI_TAKES_UNITS) != 0) {
        CDDPI_TRY(in_range("units", layer->units, 1, 1 << 22));
    }
    if ((takes & CDDPI_TAKES_HEADS) != 0) {
        CDDPI_TRY(in_range("heads", layer->heads, 1, 1 << 12));
    }
    if ((takes & CDDPI_TAKES_RESPONSE) != 0) {
        CDDPI_TRY(complete_response(layer));
    } else if ((takes & CDDPI_TAKES_KERNEL) != 0) {
        CDDPI_TRY(complete_window(layer));
    }
    if ((takes & CDDPI_TAKES_GROUPS) != 0) {
        layer->groups = layer->groups == 0 ? 1 : layer->groups;
        CDDPI_TRY(in_range("groups", layer->groups, 1, 1 << 20));
    }
    return complete_numbers(layer);
}
