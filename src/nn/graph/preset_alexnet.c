/* preset_alexnet.c - owns alexnet: Krizhevsky, Sutskever and Hinton, "ImageNet Classification with
 * Deep Convolutional Neural Networks", figure 2, for images of 224 x 224.
 *
 * Its two towers, which the paper had on a GPU each, are groups of channels: they see each other's
 * in the third convolution and in the linear layers alone. */
#include "base/error.h"
#include "nn/graph/layers.h"

enum { USUAL_UNITS = 96, TOWERS = 2 };

#define APPEND(list, name, ...)                                                                    \
    cddpi_layer_list_append(list, (struct cddpi_layer){__VA_ARGS__}, name)

/* A convolution and its relu. */
static void append_conv(struct cddpi_layer_list *list, int number, struct cddpi_layer conv)
{
    conv.type = CDDPI_LAYER_CONV2D;
    cddpi_layer_list_append(list, conv, "conv%d", number);
    cddpi_layer_list_append(list, (struct cddpi_layer){.type = CDDPI_LAYER_RELU}, "relu%d", number);
}

/* The paper's alpha of 1e-4 is not divided by the number of channels, its k is 2. */
static void append_norm_and_pool(struct cddpi_layer_list *list, int number)
{
    cddpi_layer_list_append(list,
                            (struct cddpi_layer){.type = CDDPI_LAYER_RESPONSE_NORM,
                                                 .kernel = 5,
                                                 .alpha = 5e-4,
                                                 .beta = 0.75,
                                                 .offset = 2},
                            "norm%d", number);
    cddpi_layer_list_append(
        list, (struct cddpi_layer){.type = CDDPI_LAYER_MAX_POOL, .kernel = 3, .stride = 2},
        "pool%d", number);
}

static void append_linear(struct cddpi_layer_list *list, int number, int units, double dropout)
{
    cddpi_layer_list_append(list, (struct cddpi_layer){.type = CDDPI_LAYER_LINEAR, .units = units},
                            "fc%d", number);
    cddpi_layer_list_append(list, (struct cddpi_layer){.type = CDDPI_LAYER_RELU}, "relu%d", number);
    if (dropout != 0) {
        cddpi_layer_list_append(
            list, (struct cddpi_layer){.type = CDDPI_LAYER_DROPOUT, .probability = dropout},
            "dropout%d", number);
    }
}

cddp_status cddpi_preset_alexnet(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    int units = spec->stage_units != 0 ? spec->stage_units : USUAL_UNITS;
    int wide = units * 8 / 3; /* 256, and below 384 and 4096, of 96 */

    if (units < 6 || units > 6144 || units % 6 != 0) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "alexnet: %d channels; multiples of 6 up to 6144 are possible", units);
    }
    append_conv(list, 1,
                (struct cddpi_layer){.units = units, .kernel = 11, .stride = 4, .padding = 2});
    append_norm_and_pool(list, 1);
    append_conv(list, 2,
                (struct cddpi_layer){.units = wide, .kernel = 5, .padding = 2, .groups = TOWERS});
    append_norm_and_pool(list, 2);
    append_conv(list, 3, (struct cddpi_layer){.units = 4 * units, .kernel = 3, .padding = 1});
    append_conv(
        list, 4,
        (struct cddpi_layer){.units = 4 * units, .kernel = 3, .padding = 1, .groups = TOWERS});
    append_conv(list, 5,
                (struct cddpi_layer){.units = wide, .kernel = 3, .padding = 1, .groups = TOWERS});
    APPEND(list, "pool5", .type = CDDPI_LAYER_MAX_POOL, .kernel = 3, .stride = 2);
    APPEND(list, "flatten", .type = CDDPI_LAYER_FLATTEN);
    append_linear(list, 6, 16 * wide, spec->dropout);
    append_linear(list, 7, 16 * wide, spec->dropout);
    APPEND(list, "fc8", .type = CDDPI_LAYER_LINEAR, .units = spec->classes);
    return CDDP_OK;
}
