/* presets.c - owns the named models: each is a list of layers. */
#include "base/error.h"
#include "nn/graph/graph_layers.h"

#include <string.h>

#define APPEND(list, name, ...)                                                                    \
    cddpi_layer_list_append(list, (struct cddpi_layer){__VA_ARGS__}, name)

static void append_dropout(struct cddpi_layer_list *list, double probability, int number)
{
    if (probability != 0) {
        cddpi_layer_list_append(
            list, (struct cddpi_layer){.type = CDDPI_LAYER_DROPOUT, .probability = probability},
            "dropout%d", number);
    }
}

/* linear, relu, ..., linear */
static cddp_status build_mlp(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    static const int usual[] = {512, 512};
    const int *hidden = spec->hidden != NULL ? spec->hidden : usual;
    int count = spec->hidden != NULL ? spec->hidden_count : 2;

    if (count < 0 || count > 1000) {
        return cddpi_fail(CDDP_ERR_CONFIG, "mlp: %d hidden layers; 0 to 1000 are possible", count);
    }
    APPEND(list, "flatten", .type = CDDPI_LAYER_FLATTEN);
    for (int i = 0; i < count; i++) {
        struct cddpi_layer linear = {.type = CDDPI_LAYER_LINEAR, .units = hidden[i]};

        cddpi_layer_list_append(list, linear, "fc%d", i + 1);
        cddpi_layer_list_append(list, (struct cddpi_layer){.type = CDDPI_LAYER_RELU}, "relu%d",
                                i + 1);
        append_dropout(list, spec->dropout, i + 1);
    }
    cddpi_layer_list_append(
        list, (struct cddpi_layer){.type = CDDPI_LAYER_LINEAR, .units = spec->classes}, "fc%d",
        count + 1);
    return CDDP_OK;
}

/* the network of PyTorch's MNIST example */
static cddp_status build_cnn(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    APPEND(list, "conv1", .type = CDDPI_LAYER_CONV2D, .units = 32, .kernel = 3);
    APPEND(list, "relu1", .type = CDDPI_LAYER_RELU);
    APPEND(list, "conv2", .type = CDDPI_LAYER_CONV2D, .units = 64, .kernel = 3);
    APPEND(list, "relu2", .type = CDDPI_LAYER_RELU);
    APPEND(list, "pool", .type = CDDPI_LAYER_MAX_POOL, .kernel = 2);
    append_dropout(list, spec->dropout, 1);
    APPEND(list, "flatten", .type = CDDPI_LAYER_FLATTEN);
    APPEND(list, "fc1", .type = CDDPI_LAYER_LINEAR, .units = 128);
    APPEND(list, "relu3", .type = CDDPI_LAYER_RELU);
    append_dropout(list, spec->dropout, 2);
    APPEND(list, "fc2", .type = CDDPI_LAYER_LINEAR, .units = spec->classes);
    return CDDP_OK;
}

struct resnet {
    struct cddpi_layer_list *list;
    bool sync;
    int segment; /* of the current block, or of the layers before the first block */
};

/* Start a new segment, unless batch_norm is synchronised: what ranks exchange in forward, they
 * exchange only once. */
static void begin_segment(struct resnet *net)
{
    net->segment += net->sync ? 0 : 1;
}

static void append_conv_norm(const struct resnet *net, struct cddpi_layer conv, const char *block,
                             const char *conv_name, const char *norm_name)
{
    conv.type = CDDPI_LAYER_CONV2D;
    conv.no_bias = true;
    conv.segment = net->segment;
    cddpi_layer_list_append(net->list, conv, "%s%s", block, conv_name);
    cddpi_layer_list_append(net->list,
                            (struct cddpi_layer){.type = CDDPI_LAYER_BATCH_NORM,
                                                 .sync = net->sync,
                                                 .segment = net->segment},
                            "%s%s", block, norm_name);
}

static void append_relu(const struct resnet *net, const char *block, const char *name)
{
    cddpi_layer_list_append(net->list,
                            (struct cddpi_layer){.type = CDDPI_LAYER_RELU, .segment = net->segment},
                            "%s%s", block, name);
}

/* The name of the last layer, valid until the list grows. */
static const char *last_name(const struct cddpi_layer_list *list)
{
    return list->no_memory ? NULL : list->layers[list->count - 1].name;
}

/* The end of a block: the sum of both branches, then a relu. */
static void append_sum(const struct resnet *net, const char *main_path, const char *shortcut,
                       const char *block, const char *relu)
{
    cddpi_layer_list_append(net->list,
                            (struct cddpi_layer){.type = CDDPI_LAYER_ADD,
                                                 .input = main_path,
                                                 .input2 = shortcut,
                                                 .segment = net->segment},
                            "%sadd", block);
    append_relu(net, block, relu);
}

/* Two convolutions with a residual connection, or with a projection where the shape changes (He et
 * al., option B). */
static void append_block(const struct resnet *net, int stage, int number, int units)
{
    int stride = stage > 1 && number == 0 ? 2 : 1;
    const char *input = last_name(net->list);
    const char *shortcut = input;
    const char *main_path;
    char block[32] = "layerS.N.";

    block[5] = (char)('0' + stage);
    block[7] = (char)('0' + number);
    append_conv_norm(
        net, (struct cddpi_layer){.units = units, .kernel = 3, .stride = stride, .padding = 1},
        block, "conv1", "bn1");
    append_relu(net, block, "relu1");
    append_conv_norm(net, (struct cddpi_layer){.units = units, .kernel = 3, .padding = 1}, block,
                     "conv2", "bn2");
    main_path = last_name(net->list);
    if (stride != 1) {
        append_conv_norm(
            net,
            (struct cddpi_layer){.input = input, .units = units, .kernel = 1, .stride = stride},
            block, "shortcut.0", "shortcut.1");
        shortcut = last_name(net->list);
    }
    append_sum(net, main_path, shortcut, block, "relu2");
}

/* He et al., "Deep Residual Learning for Image Recognition", section 4.2, n = 3 */
static cddp_status build_resnet20(const struct cddpi_model_spec *spec,
                                  struct cddpi_layer_list *list)
{
    struct resnet net = {list, spec->sync_batch_norm, 0};

    list->he_normal = true;
    begin_segment(&net);
    append_conv_norm(&net, (struct cddpi_layer){.units = 16, .kernel = 3, .padding = 1}, "",
                     "conv1", "bn1");
    append_relu(&net, "", "relu");
    for (int stage = 1; stage <= 3; stage++) {
        for (int number = 0; number < 3; number++) {
            begin_segment(&net);
            append_block(&net, stage, number, 8 << stage);
        }
    }
    APPEND(list, "pool", .type = CDDPI_LAYER_GLOBAL_AVG_POOL);
    APPEND(list, "fc", .type = CDDPI_LAYER_LINEAR, .units = spec->classes);
    return CDDP_OK;
}

/* Three convolutions; the middle one is 3 x 3 and has the stride (torchvision's "v1.5"). The first
 * block of a stage has a projection instead of the residual connection. */
static void append_bottleneck(const struct resnet *net, int stage, int number, int units)
{
    int stride = stage > 1 && number == 0 ? 2 : 1;
    const char *input = last_name(net->list);
    const char *shortcut = input;
    const char *main_path;
    char block[32] = "layerS.N.";

    block[5] = (char)('0' + stage);
    block[7] = (char)('0' + number);
    append_conv_norm(net, (struct cddpi_layer){.units = units, .kernel = 1}, block, "conv1", "bn1");
    append_relu(net, block, "relu1");
    append_conv_norm(
        net, (struct cddpi_layer){.units = units, .kernel = 3, .stride = stride, .padding = 1},
        block, "conv2", "bn2");
    append_relu(net, block, "relu2");
    append_conv_norm(net, (struct cddpi_layer){.units = 4 * units, .kernel = 1}, block, "conv3",
                     "bn3");
    main_path = last_name(net->list);
    if (number == 0) {
        append_conv_norm(
            net,
            (struct cddpi_layer){.input = input, .units = 4 * units, .kernel = 1, .stride = stride},
            block, "downsample.0", "downsample.1");
        shortcut = last_name(net->list);
    }
    append_sum(net, main_path, shortcut, block, "relu3");
}

/* He et al., section 4.1, for images of 224 x 224. Names and the order of parameters are
 * torchvision's. */
static cddp_status build_resnet50(const struct cddpi_model_spec *spec,
                                  struct cddpi_layer_list *list)
{
    static const int numbers[] = {3, 4, 6, 3};
    struct resnet net = {list, spec->sync_batch_norm, 0};
    int width = spec->stage_units != 0 ? spec->stage_units : 64;

    if (width < 1 || width > 4096) {
        return cddpi_fail(CDDP_ERR_CONFIG, "resnet50: %d channels; 1 to 4096 are possible", width);
    }
    list->he_normal = true;
    begin_segment(&net);
    append_conv_norm(&net,
                     (struct cddpi_layer){.units = width, .kernel = 7, .stride = 2, .padding = 3},
                     "", "conv1", "bn1");
    append_relu(&net, "", "relu");
    APPEND(list, "maxpool", .type = CDDPI_LAYER_MAX_POOL, .kernel = 3, .stride = 2, .padding = 1,
           .segment = net.segment);
    for (int stage = 1; stage <= 4; stage++) {
        for (int number = 0; number < numbers[stage - 1]; number++) {
            begin_segment(&net);
            append_bottleneck(&net, stage, number, width << (stage - 1));
        }
    }
    APPEND(list, "avgpool", .type = CDDPI_LAYER_GLOBAL_AVG_POOL);
    APPEND(list, "fc", .type = CDDPI_LAYER_LINEAR, .units = spec->classes);
    return CDDP_OK;
}

static const struct {
    const char *name;
    cddp_status (*build)(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list);
} presets[] = {{"mlp", build_mlp},
               {"cnn", build_cnn},
               {"resnet20", build_resnet20},
               {"resnet50", build_resnet50},
               {"gpt2", cddpi_preset_gpt2},
               {"alexnet", cddpi_preset_alexnet},
               {"vgg11", cddpi_preset_vgg11},
               {"lstm_lm", cddpi_preset_lstm_lm},
               {"dcgan", cddpi_preset_dcgan}};

cddp_status cddpi_preset_expand(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    if (!(spec->dropout >= 0 && spec->dropout < 1)) {
        return cddpi_fail(CDDP_ERR_CONFIG, "%s: dropout is %g; it must lie in [0, 1)", spec->preset,
                          spec->dropout);
    }
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(presets[i].name, spec->preset) == 0) {
            return presets[i].build(spec, list);
        }
    }
    return cddpi_fail(
        CDDP_ERR_CONFIG,
        "model: there is no preset \"%s\"; the presets are mlp, cnn, resnet20, resnet50, "
        "gpt2, alexnet, vgg11, lstm_lm and dcgan",
        spec->preset);
}
