/* presets.c - owns the named models, each of which is a list of layers; gpt2, alexnet and dcgan
 * have files of their own. */
#include "base/error.h"
#include "nn/graph/graph_layers.h"

#include <string.h>

#define APPEND(list, name, ...)                                                                    \
    cddpi_layer_list_append(list, (struct cddpi_layer){__VA_ARGS__}, name)

/* A layer whose name ends with its number. */
#define APPEND_NUMBERED(list, name, number, ...)                                                   \
    cddpi_layer_list_append(list, (struct cddpi_layer){__VA_ARGS__}, name "%d", number)

static void append_dropout(struct cddpi_layer_list *list, double probability, const char *name,
                           int number)
{
    if (probability != 0) {
        cddpi_layer_list_append(
            list, (struct cddpi_layer){.type = CDDPI_LAYER_DROPOUT, .probability = probability},
            "%s%d", name, number);
    }
}

/* Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition",
 * configuration A, for images of 224 x 224. Initial weights and the order of parameters are
 * torchvision's. */
static cddp_status build_vgg11(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    /* width of each layer, in multiples of the first one's channels; 0: a pool */
    static const int widths[] = {1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0};
    int units = spec->stage_units != 0 ? spec->stage_units : 64;
    int convs = 0;
    int pools = 0;

    if (units < 1 || units > 4096) {
        return cddpi_fail(CDDP_ERR_CONFIG, "vgg11: %d channels; 1 to 4096 are possible", units);
    }
    list->he_normal = true;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        if (widths[i] == 0) {
            APPEND_NUMBERED(list, "pool", ++pools, .type = CDDPI_LAYER_MAX_POOL, .kernel = 2);
            continue;
        }
        APPEND_NUMBERED(list, "conv", ++convs, .type = CDDPI_LAYER_CONV2D,
                        .units = widths[i] * units, .kernel = 3, .padding = 1);
        APPEND_NUMBERED(list, "relu", convs, .type = CDDPI_LAYER_RELU);
    }
    APPEND(list, "flatten", .type = CDDPI_LAYER_FLATTEN);
    for (int i = 1; i < 3; i++) {
        APPEND_NUMBERED(list, "fc", i, .type = CDDPI_LAYER_LINEAR, .units = 64 * units,
                        .deviation = 0.01);
        APPEND_NUMBERED(list, "fc_relu", i, .type = CDDPI_LAYER_RELU);
        append_dropout(list, spec->dropout, "dropout", i);
    }
    APPEND(list, "fc3", .type = CDDPI_LAYER_LINEAR, .units = spec->classes, .deviation = 0.01);
    return CDDP_OK;
}

/* The word-level language model of PyTorch's examples (word_language_model): an embedding, LSTM
 * layers one after the other, and a linear layer that can share the embedding's table. Parameters
 * have the names of its RNNModel, so its load_state_dict() accepts a checkpoint of this preset. */
static cddp_status build_lstm_lm(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    static const int usual[] = {512, 512};
    const double deviation = 0.057735027; /* of uniform numbers up to 0.1, which the example uses */
    const int *hidden = spec->hidden != NULL ? spec->hidden : usual;
    int count = spec->hidden != NULL ? spec->hidden_count : 2;
    int embed;

    if (spec->vocab == 0) {
        return cddpi_fail(CDDP_ERR_CONFIG, "lstm_lm takes tokens, but the data are images");
    }
    if (count < 1 || count > 100) {
        return cddpi_fail(CDDP_ERR_CONFIG, "lstm_lm: %d LSTM layers; 1 to 100 are possible", count);
    }
    embed = spec->embed != 0 ? spec->embed : hidden[count - 1];
    if (spec->tied && embed != hidden[count - 1]) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "lstm_lm: a tied embedding has as many features as the last LSTM layer "
                          "has outputs, but embed is %d and that layer's hidden is %d",
                          embed, hidden[count - 1]);
    }
    APPEND(list, "encoder", .type = CDDPI_LAYER_EMBEDDING, .units = embed, .deviation = deviation);
    append_dropout(list, spec->dropout, "drop", 0);
    for (int i = 0; i < count; i++) {
        APPEND_NUMBERED(list, "rnn_l", i, .type = CDDPI_LAYER_LSTM, .units = hidden[i]);
        append_dropout(list, spec->dropout, "drop", i + 1);
    }
    APPEND(list, "decoder", .type = CDDPI_LAYER_LINEAR, .units = spec->vocab,
           .tied = spec->tied ? "encoder" : NULL, .deviation = deviation);
    return CDDP_OK;
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
        APPEND_NUMBERED(list, "fc", i + 1, .type = CDDPI_LAYER_LINEAR, .units = hidden[i]);
        APPEND_NUMBERED(list, "relu", i + 1, .type = CDDPI_LAYER_RELU);
        append_dropout(list, spec->dropout, "dropout", i + 1);
    }
    APPEND_NUMBERED(list, "fc", count + 1, .type = CDDPI_LAYER_LINEAR, .units = spec->classes);
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
    append_dropout(list, spec->dropout, "dropout", 1);
    APPEND(list, "flatten", .type = CDDPI_LAYER_FLATTEN);
    APPEND(list, "fc1", .type = CDDPI_LAYER_LINEAR, .units = 128);
    APPEND(list, "relu3", .type = CDDPI_LAYER_RELU);
    append_dropout(list, spec->dropout, "dropout", 2);
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

/* A block of convolutions with a residual connection; where the shape changes, with a projection
 * instead. */
struct resnet_block {
    char name[12];
    int stride;        /* of its only strided convolution */
    const char *input; /* the layer before it */
};

static struct resnet_block begin_block(struct resnet *net, int stage, int number)
{
    struct resnet_block block = {.name = "layerS.N.",
                                 .stride = stage > 1 && number == 0 ? 2 : 1,
                                 .input = cddpi_layer_list_last(net->list)};

    begin_segment(net);
    block.name[5] = (char)('0' + stage);
    block.name[7] = (char)('0' + number);
    return block;
}

/* The end of a block: the sum of both branches, then a relu. @p units 0: without a projection. */
static void end_block(const struct resnet *net, const struct resnet_block *block, int units,
                      const char *conv_name, const char *norm_name, const char *relu_name)
{
    const char *main_path = cddpi_layer_list_last(net->list);
    const char *shortcut = block->input;

    if (units > 0) {
        append_conv_norm(
            net,
            (struct cddpi_layer){
                .input = block->input, .units = units, .kernel = 1, .stride = block->stride},
            block->name, conv_name, norm_name);
        shortcut = cddpi_layer_list_last(net->list);
    }
    cddpi_layer_list_append(net->list,
                            (struct cddpi_layer){.type = CDDPI_LAYER_ADD,
                                                 .input = main_path,
                                                 .input2 = shortcut,
                                                 .segment = net->segment},
                            "%sadd", block->name);
    append_relu(net, block->name, relu_name);
}

/* Two convolutions (He et al., option B). @p conv_name and @p norm_name: of the projection. */
static void append_block(struct resnet *net, int stage, int number, int units,
                         const char *conv_name, const char *norm_name)
{
    struct resnet_block block = begin_block(net, stage, number);

    append_conv_norm(
        net,
        (struct cddpi_layer){.units = units, .kernel = 3, .stride = block.stride, .padding = 1},
        block.name, "conv1", "bn1");
    append_relu(net, block.name, "relu1");
    append_conv_norm(net, (struct cddpi_layer){.units = units, .kernel = 3, .padding = 1},
                     block.name, "conv2", "bn2");
    end_block(net, &block, block.stride != 1 ? units : 0, conv_name, norm_name, "relu2");
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
            append_block(&net, stage, number, 8 << stage, "shortcut.0", "shortcut.1");
        }
    }
    APPEND(list, "pool", .type = CDDPI_LAYER_GLOBAL_AVG_POOL);
    APPEND(list, "fc", .type = CDDPI_LAYER_LINEAR, .units = spec->classes);
    return CDDP_OK;
}

/* Three convolutions; the middle one is 3 x 3 and has the stride (torchvision's "v1.5"). The first
 * block of a stage has a projection instead of the residual connection. */
static void append_bottleneck(struct resnet *net, int stage, int number, int units)
{
    struct resnet_block block = begin_block(net, stage, number);

    append_conv_norm(net, (struct cddpi_layer){.units = units, .kernel = 1}, block.name, "conv1",
                     "bn1");
    append_relu(net, block.name, "relu1");
    append_conv_norm(
        net,
        (struct cddpi_layer){.units = units, .kernel = 3, .stride = block.stride, .padding = 1},
        block.name, "conv2", "bn2");
    append_relu(net, block.name, "relu2");
    append_conv_norm(net, (struct cddpi_layer){.units = 4 * units, .kernel = 1}, block.name,
                     "conv3", "bn3");
    end_block(net, &block, number == 0 ? 4 * units : 0, "downsample.0", "downsample.1", "relu3");
}

/* He et al., section 4.1, for images of 224 x 224, with @p blocks in its four stages. Names and the
 * order of parameters are torchvision's. */
static cddp_status build_large_resnet(const struct cddpi_model_spec *spec, const int blocks[4],
                                      bool has_bottlenecks, struct cddpi_layer_list *list)
{
    struct resnet net = {list, spec->sync_batch_norm, 0};
    int width = spec->stage_units != 0 ? spec->stage_units : 64;

    if (width < 1 || width > 4096) {
        return cddpi_fail(CDDP_ERR_CONFIG, "%s: %d channels; 1 to 4096 are possible", spec->preset,
                          width);
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
        int units = width << (stage - 1);

        for (int number = 0; number < blocks[stage - 1]; number++) {
            if (has_bottlenecks) {
                append_bottleneck(&net, stage, number, units);
            } else {
                append_block(&net, stage, number, units, "downsample.0", "downsample.1");
            }
        }
    }
    APPEND(list, "avgpool", .type = CDDPI_LAYER_GLOBAL_AVG_POOL);
    APPEND(list, "fc", .type = CDDPI_LAYER_LINEAR, .units = spec->classes);
    return CDDP_OK;
}

static cddp_status build_resnet18(const struct cddpi_model_spec *spec,
                                  struct cddpi_layer_list *list)
{
    return build_large_resnet(spec, (const int[]){2, 2, 2, 2}, false, list);
}

static cddp_status build_resnet34(const struct cddpi_model_spec *spec,
                                  struct cddpi_layer_list *list)
{
    return build_large_resnet(spec, (const int[]){3, 4, 6, 3}, false, list);
}

static cddp_status build_resnet50(const struct cddpi_model_spec *spec,
                                  struct cddpi_layer_list *list)
{
    return build_large_resnet(spec, (const int[]){3, 4, 6, 3}, true, list);
}

static const struct {
    const char *name;
    cddp_status (*build)(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list);
} presets[] = {
    {"mlp", build_mlp},           {"cnn", build_cnn},          {"resnet20", build_resnet20},
    {"resnet50", build_resnet50}, {"gpt2", cddpi_preset_gpt2}, {"alexnet", cddpi_preset_alexnet},
    {"vgg11", build_vgg11},       {"lstm_lm", build_lstm_lm},  {"dcgan", cddpi_preset_dcgan},
    {"resnet18", build_resnet18}, {"resnet34", build_resnet34}};

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
        "model: there is no preset \"%s\"; the presets are mlp, cnn, resnet18, resnet20, resnet34, "
        "resnet50, gpt2, alexnet, vgg11, lstm_lm and dcgan",
        spec->preset);
}
