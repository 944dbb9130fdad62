#include "support/nn_statistics.h"

#include <string.h>

const double normed_momenta[NORMED_BUFFERS] = {0.25, 0.25, 0.1, 0.1};

struct cddpi_model_spec normed_spec(struct normed_layers *out, double momentum)
{
    const struct cddpi_layer layers[] = {
        {.type = CDDPI_LAYER_CONV2D, .units = NORMED_CHANNELS, .kernel = 3},
        {.type = CDDPI_LAYER_BATCH_NORM, .momentum = momentum > 0 ? momentum : normed_momenta[0]},
        {.type = CDDPI_LAYER_RELU},
        {.type = CDDPI_LAYER_CONV2D, .units = NORMED_CHANNELS, .kernel = 3},
        {.type = CDDPI_LAYER_BATCH_NORM, .momentum = momentum > 0 ? momentum : normed_momenta[2]},
        {.type = CDDPI_LAYER_FLATTEN},
        {.type = CDDPI_LAYER_LINEAR, .units = 3},
    };

    memcpy(out->layers, layers, sizeof layers);
    return (struct cddpi_model_spec){.layers = out->layers,
                                     .layer_count = COUNT_OF(layers),
                                     .channels = 2,
                                     .height = 7,
                                     .width = 6,
                                     .classes = 3};
}

void normed_expected(int first, int count, float out[NORMED_VALUES])
{
    struct normed_layers layers;
    struct cddpi_model_spec spec = normed_spec(&layers, 1);
    struct fixture f;
    size_t buffers;
    const cddp_param *buffer;

    assert_true(fixture_init(&f, &spec, NORMED_SEED, NULL, first, count));
    (void)fixture_loss(&f);
    buffer = cddpi_model_buffers(f.model, &buffers);
    assert_int_equal(buffers, NORMED_BUFFERS);
    for (size_t i = 0; i < buffers; i++) {
        memcpy(out + i * NORMED_CHANNELS, buffer[i].data, NORMED_CHANNELS * sizeof *out);
    }
    fixture_fini(&f);
}
