/* preset_vgg.c - owns vgg11: Simonyan and Zisserman, "Very Deep Convolutional Networks for
 * Large-Scale Image Recognition", configuration A, for images of 224 x 224. Initial weights and the
 * order of parameters are torchvision's. */
#include "base/error.h"
#include "nn/graph/graph_layers.h"

enum { USUAL_UNITS = 64 };

static void append_linear(struct cddpi_layer_list *list, int number, int units)
{
    cddpi_layer_list_append(
        list, (struct cddpi_layer){.type = CDDPI_LAYER_LINEAR, .units = units, .deviation = 0.01},
        "fc%d", number);
}

/* What follows each linear layer except the last one. */
static void append_between(struct cddpi_layer_list *list, int number, double dropout)
{
    cddpi_layer_list_append(list, (struct cddpi_layer){.type = CDDPI_LAYER_RELU}, "fc_relu%d",
                            number);
    if (dropout != 0) {
        cddpi_layer_list_append(
            list, (struct cddpi_layer){.type = CDDPI_LAYER_DROPOUT, .probability = dropout},
            "dropout%d", number);
    }
}

cddp_status cddpi_preset_vgg11(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    /* width of each layer, in multiples of the first one's channels; 0: a pool */
    static const int widths[] = {1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0};
    int units = spec->stage_units != 0 ? spec->stage_units : USUAL_UNITS;
    int convs = 0;
    int pools = 0;

    if (units < 1 || units > 4096) {
        return cddpi_fail(CDDP_ERR_CONFIG, "vgg11: %d channels; 1 to 4096 are possible", units);
    }
    list->he_normal = true;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct cddpi_layer conv = {
            .type = CDDPI_LAYER_CONV2D, .units = widths[i] * units, .kernel = 3, .padding = 1};

        if (widths[i] == 0) {
            cddpi_layer_list_append(list,
                                    (struct cddpi_layer){.type = CDDPI_LAYER_MAX_POOL, .kernel = 2},
                                    "pool%d", ++pools);
            continue;
        }
        cddpi_layer_list_append(list, conv, "conv%d", ++convs);
        cddpi_layer_list_append(list, (struct cddpi_layer){.type = CDDPI_LAYER_RELU}, "relu%d",
                                convs);
    }
    cddpi_layer_list_append(list, (struct cddpi_layer){.type = CDDPI_LAYER_FLATTEN}, "flatten");
    append_linear(list, 1, 64 * units);
    append_between(list, 1, spec->dropout);
    append_linear(list, 2, 64 * units);
    append_between(list, 2, spec->dropout);
    append_linear(list, 3, spec->classes);
    return CDDP_OK;
}
