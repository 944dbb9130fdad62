/* preset_alexnet.c - owns alexnet: Krizhevsky, Sutskever and Hinton, "ImageNet Classification with
 * Deep Convolutional Neural Networks", figure 2, for images of 224 x 224.
 *
 * Its two towers, which the paper had on one GPU each, are groups of channels. They only read each
 * other's channels in the third convolution and in the linear layers. With `towers` = 2, the towers
 * are separate layers, so that each can be on its own device; a layer that reads both towers is
 * then the sum of two layers. */
#include "base/error.h"
#include "nn/graph/graph_layers.h"

#include <stdio.h>

enum { USUAL_UNITS = 96, TOWERS = 2 };

/* A convolution and its relu. */
static void append_conv(struct cddpi_layer_list *list, const char *tower, int number,
                        struct cddpi_layer conv)
{
    conv.type = CDDPI_LAYER_CONV2D;
    cddpi_layer_list_append(list, conv, "%sconv%d", tower, number);
    cddpi_layer_list_append(list, (struct cddpi_layer){.type = CDDPI_LAYER_RELU}, "%srelu%d", tower,
                            number);
}

static void append_pool(struct cddpi_layer_list *list, const char *tower, int number)
{
    cddpi_layer_list_append(
        list, (struct cddpi_layer){.type = CDDPI_LAYER_MAX_POOL, .kernel = 3, .stride = 2},
        "%spool%d", tower, number);
}

/* The paper's alpha of 1e-4 is not divided by the number of channels, and its k is 2. */
static void append_norm_and_pool(struct cddpi_layer_list *list, const char *tower, int number)
{
    cddpi_layer_list_append(list,
                            (struct cddpi_layer){.type = CDDPI_LAYER_RESPONSE_NORM,
                                                 .kernel = 5,
                                                 .alpha = 5e-4,
                                                 .beta = 0.75,
                                                 .offset = 2},
                            "%snorm%d", tower, number);
    append_pool(list, tower, number);
}

/* What follows each linear layer except the last one. */
static void append_relu_and_dropout(struct cddpi_layer_list *list, const char *tower, int number,
                                    double dropout)
{
    cddpi_layer_list_append(list, (struct cddpi_layer){.type = CDDPI_LAYER_RELU}, "%srelu%d", tower,
                            number);
    if (dropout != 0) {
        cddpi_layer_list_append(
            list, (struct cddpi_layer){.type = CDDPI_LAYER_DROPOUT, .probability = dropout},
            "%sdropout%d", tower, number);
    }
}

/* The towers as groups of channels: @p units and @p wide count the channels of both towers
 * together. */
static void append_groups(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list,
                          int units, int wide)
{
    append_conv(list, "", 1,
                (struct cddpi_layer){.units = units, .kernel = 11, .stride = 4, .padding = 2});
    append_norm_and_pool(list, "", 1);
    append_conv(list, "", 2,
                (struct cddpi_layer){.units = wide, .kernel = 5, .padding = 2, .groups = TOWERS});
    append_norm_and_pool(list, "", 2);
    append_conv(list, "", 3, (struct cddpi_layer){.units = 4 * units, .kernel = 3, .padding = 1});
    append_conv(
        list, "", 4,
        (struct cddpi_layer){.units = 4 * units, .kernel = 3, .padding = 1, .groups = TOWERS});
    append_conv(list, "", 5,
                (struct cddpi_layer){.units = wide, .kernel = 3, .padding = 1, .groups = TOWERS});
    append_pool(list, "", 5);
    cddpi_layer_list_append(list, (struct cddpi_layer){.type = CDDPI_LAYER_FLATTEN}, "flatten");
    for (int i = 6; i <= 7; i++) {
        cddpi_layer_list_append(
            list, (struct cddpi_layer){.type = CDDPI_LAYER_LINEAR, .units = 16 * wide}, "fc%d", i);
        append_relu_and_dropout(list, "", i, spec->dropout);
    }
    cddpi_layer_list_append(
        list, (struct cddpi_layer){.type = CDDPI_LAYER_LINEAR, .units = spec->classes}, "fc8");
}

/* A layer that reads both towers, at their ends @p ends: the sum of two layers, each with half of
 * the weights; one of them has the bias. */
static void append_crossing(struct cddpi_layer_list *list, const char *tower, const char *name,
                            struct cddpi_layer half, const char *const *ends)
{
    char names[TOWERS][32];

    for (int t = 0; t < TOWERS; t++) {
        snprintf(names[t], sizeof names[t], "%s%s.%c", tower, name, 'a' + t);
        half.input = ends[t];
        half.no_bias = t > 0;
        cddpi_layer_list_append(list, half, "%s", names[t]);
    }
    cddpi_layer_list_append(
        list, (struct cddpi_layer){.type = CDDPI_LAYER_ADD, .input = names[0], .input2 = names[1]},
        "%s%s.add", tower, name);
}

static void append_first(struct cddpi_layer_list *list, const char *tower, int units, int wide)
{
    append_conv(
        list, tower, 1,
        (struct cddpi_layer){
            .input = "input", .units = units / TOWERS, .kernel = 11, .stride = 4, .padding = 2});
    append_norm_and_pool(list, tower, 1);
    append_conv(list, tower, 2,
                (struct cddpi_layer){.units = wide / TOWERS, .kernel = 5, .padding = 2});
    append_norm_and_pool(list, tower, 2);
}

static void append_middle(struct cddpi_layer_list *list, const char *tower, int units, int wide)
{
    static const char *const ends[] = {"a1.pool2", "b1.pool2"};
    const struct cddpi_layer conv = {
        .type = CDDPI_LAYER_CONV2D, .units = 4 * units / TOWERS, .kernel = 3, .padding = 1};

    append_crossing(list, tower, "conv3", conv, ends);
    append_relu_and_dropout(list, tower, 3, 0);
    append_conv(list, tower, 4, conv);
    append_conv(list, tower, 5,
                (struct cddpi_layer){.units = wide / TOWERS, .kernel = 3, .padding = 1});
    append_pool(list, tower, 5);
    cddpi_layer_list_append(list, (struct cddpi_layer){.type = CDDPI_LAYER_FLATTEN}, "%sflatten",
                            tower);
}

/* The layers of separate towers: a1 ..., b1 ... up to where they first read each other, then a3 ...
 * from there, and so on for each linear layer. */
static void append_towers(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list,
                          int units, int wide)
{
    static const char *const ends6[] = {"a3.flatten", "b3.flatten"};
    static const char *const dropped[][TOWERS] = {{"a6.dropout6", "b6.dropout6"},
                                                  {"a7.dropout7", "b7.dropout7"}};
    static const char *const whole[][TOWERS] = {{"a6.relu6", "b6.relu6"}, {"a7.relu7", "b7.relu7"}};
    const char *const(*ends)[TOWERS] = spec->dropout != 0 ? dropped : whole;
    const struct cddpi_layer linear = {.type = CDDPI_LAYER_LINEAR, .units = 16 * wide / TOWERS};

    append_first(list, "a1.", units, wide);
    append_first(list, "b1.", units, wide);
    append_middle(list, "a3.", units, wide);
    append_middle(list, "b3.", units, wide);
    append_crossing(list, "a6.", "fc6", linear, ends6);
    append_relu_and_dropout(list, "a6.", 6, spec->dropout);
    append_crossing(list, "b6.", "fc6", linear, ends6);
    append_relu_and_dropout(list, "b6.", 6, spec->dropout);
    append_crossing(list, "a7.", "fc7", linear, ends[0]);
    append_relu_and_dropout(list, "a7.", 7, spec->dropout);
    append_crossing(list, "b7.", "fc7", linear, ends[0]);
    append_relu_and_dropout(list, "b7.", 7, spec->dropout);
    append_crossing(list, "", "fc8",
                    (struct cddpi_layer){.type = CDDPI_LAYER_LINEAR, .units = spec->classes},
                    ends[1]);
}

cddp_status cddpi_preset_alexnet(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    int units = spec->stage_units != 0 ? spec->stage_units : USUAL_UNITS;
    int wide = units * 8 / 3; /* 256 if units is 96; below likewise 384 and 4096 */

    if (units < 6 || units > 6144 || units % 6 != 0) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "alexnet: %d channels; multiples of 6 up to 6144 are possible", units);
    }
    if (spec->towers == TOWERS) {
        append_towers(spec, list, units, wide);
    } else {
        append_groups(spec, list, units, wide);
    }
    return CDDP_OK;
}
