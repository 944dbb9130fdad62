/* preset_dcgan.c - owns dcgan: Radford, Metz and Chintala, "Unsupervised Representation Learning
 * with Deep Convolutional Generative Adversarial Networks", as in PyTorch's example, for images
 * whose side can be halved down to 4 to 7 (64, as in the example, or 28 or 32).
 *
 * One list of layers: first the generator, which turns a latent vector into an image, then the
 * discriminator, which turns an image into one number, the logit of its being real. */
#include "base/error.h"
#include "nn/graph/graph_layers.h"

enum { USUAL_LATENT = 100, USUAL_UNITS = 64, MOST_UNITS = 1024, MOST_HALVINGS = 10 };

/* of all initial weights; those of normalisation are around 1 */
static const double deviation = 0.02;

static void append_layer(struct cddpi_layer_list *list, const char *part, const char *what,
                         int number, struct cddpi_layer layer)
{
    cddpi_layer_list_append(list, layer, "%s.%s%d", part, what, number);
}

/* The side of the smallest image: @p side after *@p out_halvings halvings. */
static int smallest(int side, int *out_halvings)
{
    *out_halvings = 0;
    while (side > 7 && side % 2 == 0) {
        side /= 2;
        (*out_halvings)++;
    }
    return side;
}

static void append_generator(struct cddpi_layer_list *list, int units, int base, int halvings,
                             int channels)
{
    for (int i = 0; i <= halvings; i++) {
        struct cddpi_layer conv = {.type = CDDPI_LAYER_CONV_TRANSPOSE2D,
                                   .units = i < halvings ? units << (halvings - 1 - i) : channels,
                                   .kernel = i == 0 ? base : 4,
                                   .stride = i == 0 ? 1 : 2,
                                   .padding = i == 0 ? 0 : 1,
                                   .no_bias = true,
                                   .deviation = deviation};

        append_layer(list, "generator", "conv", i + 1, conv);
        if (i < halvings) {
            append_layer(
                list, "generator", "bn", i + 1,
                (struct cddpi_layer){.type = CDDPI_LAYER_BATCH_NORM, .deviation = deviation});
            append_layer(list, "generator", "relu", i + 1,
                         (struct cddpi_layer){.type = CDDPI_LAYER_RELU});
        }
    }
    append_layer(list, "generator", "tanh", halvings + 1,
                 (struct cddpi_layer){.type = CDDPI_LAYER_TANH});
}

static void append_discriminator(struct cddpi_layer_list *list, int units, int base, int halvings)
{
    for (int i = 0; i <= halvings; i++) {
        struct cddpi_layer conv = {.type = CDDPI_LAYER_CONV2D,
                                   .units = i < halvings ? units << i : 1,
                                   .kernel = i < halvings ? 4 : base,
                                   .stride = i < halvings ? 2 : 1,
                                   .padding = i < halvings ? 1 : 0,
                                   .no_bias = true,
                                   .deviation = deviation};

        append_layer(list, "discriminator", "conv", i + 1, conv);
        if (i > 0 && i < halvings) {
            append_layer(
                list, "discriminator", "bn", i + 1,
                (struct cddpi_layer){.type = CDDPI_LAYER_BATCH_NORM, .deviation = deviation});
        }
        if (i < halvings) {
            append_layer(list, "discriminator", "relu", i + 1,
                         (struct cddpi_layer){.type = CDDPI_LAYER_LEAKY_RELU, .slope = 0.2});
        }
    }
    append_layer(list, "discriminator", "flatten", 1,
                 (struct cddpi_layer){.type = CDDPI_LAYER_FLATTEN});
}

static int or_usual(int value, int usual)
{
    return value != 0 ? value : usual;
}

cddp_status cddpi_preset_dcgan(const struct cddpi_model_spec *spec, struct cddpi_layer_list *list)
{
    int generator = or_usual(spec->generator_units, USUAL_UNITS);
    int discriminator = or_usual(spec->discriminator_units, USUAL_UNITS);
    int halvings;
    int base = smallest(spec->image_side, &halvings);

    if (base < 4 || base > 7 || halvings < 1 || halvings > MOST_HALVINGS) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "dcgan: images of %d x %d; a side that halves down to 4, 5, 6 or 7 is "
                          "possible, as 28, 32 and 64 do",
                          spec->image_side, spec->image_side);
    }
    if (generator < 1 || generator > MOST_UNITS || discriminator < 1 ||
        discriminator > MOST_UNITS) {
        return cddpi_fail(CDDP_ERR_CONFIG, "dcgan: %d and %d channels; 1 to %d are possible",
                          generator, discriminator, MOST_UNITS);
    }
    append_generator(list, generator, base, halvings, spec->image_channels);
    append_discriminator(list, discriminator, base, halvings);
    return CDDP_OK;
}

cddp_status cddpi_dcgan_complete(struct cddpi_model_spec *spec)
{
    if (spec->image_side != 0) {
        return CDDP_OK;
    }
    if (spec->vocab != 0 || spec->height != spec->width) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "dcgan takes images as high as wide, but the data are %s",
                          spec->vocab != 0 ? "tokens" : "others");
    }
    spec->image_channels = spec->channels;
    spec->image_side = spec->height;
    spec->channels = or_usual(spec->latent, USUAL_LATENT);
    spec->height = 1;
    spec->width = 1;
    spec->classes = 1;
    spec->loss = CDDPI_LOSS_BINARY_CROSS_ENTROPY;
    return CDDP_OK;
}
