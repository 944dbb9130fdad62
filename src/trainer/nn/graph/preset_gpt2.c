/* preset_gpt2.c - owns GPT-2 (Radford et al., 2019): blocks of attention and a perceptron, each
 * after a layer_norm and with a residual connection. Names are Hugging Face's without
 * "transformer."; initial values are nanoGPT's and llm.c's. */
#include "base/error.h"
#include "nn/graph/graph_layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int blocks, heads, embed;
} sizes[] = {
    {"124M", 12, 12, 768}, {"350M", 24, 16, 1024}, {"774M", 36, 20, 1280}, {"1558M", 48, 25, 1600}};

enum { GPT2_CONTEXT = 1024 };

static void use_default(int *number, int usual)
{
    *number = *number != 0 ? *number : usual;
}

cddp_status cddpi_model_spec_complete(struct cddpi_model_spec *spec)
{
    if (spec->preset != NULL && strcmp(spec->preset, "dcgan") == 0) {
        return cddpi_dcgan_complete(spec);
    }
    if (spec->preset == NULL || strcmp(spec->preset, "gpt2") != 0 || spec->size == NULL ||
        spec->size[0] == '\0') {
        return CDDP_OK;
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (strcmp(sizes[i].name, spec->size) == 0) {
            use_default(&spec->blocks, sizes[i].blocks);
            use_default(&spec->heads, sizes[i].heads);
            use_default(&spec->embed, sizes[i].embed);
            use_default(&spec->context, GPT2_CONTEXT);
            return CDDP_OK;
        }
    }
    return cddpi_fail(CDDP_ERR_CONFIG,
                      "gpt2: there is no size \"%s\"; the sizes are 124M, 350M, 774M and 1558M",
                      spec->size);
}

static cddp_status check_spec(const struct cddpi_model_spec *spec)
{
    const struct {
        const char *name;
        int value, most;
    } numbers[] = {{"blocks", spec->blocks, 256},
                   {"heads", spec->heads, 1024},
                   {"embed", spec->embed, 1 << 16},
                   {"context", spec->context, 1 << 16}};

    if (spec->vocab == 0) {
        return cddpi_fail(CDDP_ERR_CONFIG, "gpt2 takes tokens, but the data are images");
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value < 1 || numbers[i].value > numbers[i].most) {
            return cddpi_fail(CDDP_ERR_CONFIG,
                              "gpt2: %s is %d; 1 to %d are possible, or 0 together with a size",
                              numbers[i].name, numbers[i].value, numbers[i].most);
        }
    }
    if (spec->embed % spec->heads != 0) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "gpt2: embed is %d, which cannot be divided among %d "
                          "heads",
                          spec->embed, spec->heads);
    }
    return CDDP_OK;
}

struct preset_gpt2_builder {
    struct cddpi_layer_list *list;
    const struct cddpi_model_spec *spec;
    char block[32]; /* prefix of the block's names */
    int segment;
};

static void append_layer(const struct preset_gpt2_builder *builder, struct cddpi_layer layer,
                         const char *name)
{
    layer.segment = builder->segment;
    cddpi_layer_list_append(builder->list, layer, "%s%s", builder->block, name);
}

static void append_dropout(const struct preset_gpt2_builder *builder, const char *name)
{
    if (builder->spec->dropout != 0) {
        append_layer(builder,
                     (struct cddpi_layer){.type = CDDPI_LAYER_DROPOUT,
                                          .probability = builder->spec->dropout},
                     name);
    }
}

/* Add the last layer to the residual stream; @p input is the name of the layer before the branch.
 */
static void append_add(const struct preset_gpt2_builder *builder, const char *input,
                       const char *name)
{
    append_layer(builder, (struct cddpi_layer){.type = CDDPI_LAYER_ADD, .input2 = input}, name);
}

static void append_linear(const struct preset_gpt2_builder *builder, int units, double deviation,
                          const char *name)
{
    append_layer(
        builder,
        (struct cddpi_layer){.type = CDDPI_LAYER_LINEAR, .units = units, .deviation = deviation},
        name);
}

static void append_block(const struct preset_gpt2_builder *builder)
{
    const struct cddpi_model_spec *spec = builder->spec;
    /* for layers that are added to the residual stream */
    double last = 0.02 / sqrt(2.0 * spec->blocks);
    const char *input = cddpi_layer_list_last(builder->list);

    append_layer(builder, (struct cddpi_layer){.type = CDDPI_LAYER_LAYER_NORM}, "ln_1");
    append_linear(builder, 3 * spec->embed, 0.02, "attn.c_attn");
    append_layer(builder, (struct cddpi_layer){.type = CDDPI_LAYER_ATTENTION, .heads = spec->heads},
                 "attn");
    append_linear(builder, spec->embed, last, "attn.c_proj");
    append_dropout(builder, "attn.dropout");
    append_add(builder, input, "attn.add");
    input = cddpi_layer_list_last(builder->list);
    append_layer(builder, (struct cddpi_layer){.type = CDDPI_LAYER_LAYER_NORM}, "ln_2");
    append_linear(builder, 4 * spec->embed, 0.02, "mlp.c_fc");
    append_layer(builder, (struct cddpi_layer){.type = CDDPI_LAYER_GELU}, "mlp.gelu");
    append_linear(builder, spec->embed, last, "mlp.c_proj");
    append_dropout(builder, "mlp.dropout");
    append_add(builder, input, "mlp.add");
}

cddp_status cddpi_preset_gpt2(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    struct preset_gpt2_builder builder = {.list = list, .spec = spec};

    CDDPI_TRY(check_spec(spec));
    append_layer(&builder,
                 (struct cddpi_layer){.type = CDDPI_LAYER_EMBEDDING,
                                      .units = spec->embed,
                                      .positions = "wpe",
                                      .deviation = 0.02},
                 "wte");
    append_dropout(&builder, "drop");
    for (int i = 0; i < spec->blocks; i++) {
        builder.segment = i + 1;
        snprintf(builder.block, sizeof builder.block, "h.%d.", i);
        append_block(&builder);
    }
    builder.segment = 0;
    builder.block[0] = '\0';
    append_layer(&builder, (struct cddpi_layer){.type = CDDPI_LAYER_LAYER_NORM}, "ln_f");
    append_layer(
        &builder,
        (struct cddpi_layer){
            .type = CDDPI_LAYER_LINEAR, .units = spec->vocab, .tied = "wte", .no_bias = true},
        "head");
    return CDDP_OK;
}
