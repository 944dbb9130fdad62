/* nn_statistics.h - a model with two batch normalisations, and the statistics that they take of a
 * batch, for tests on any device. */
#ifndef CDDP_TESTS_SUPPORT_NN_STATISTICS_H
#define CDDP_TESTS_SUPPORT_NN_STATISTICS_H

#include "support/nn.h"

/* Two normalisations with momenta of their own; with @p momentum: of both, instead. */
struct normed_layers {
    struct cddpi_layer layers[7];
};
struct cddpi_model_spec normed_spec(struct normed_layers *out, double momentum);

enum {
    NORMED_BUFFERS = 4,
    NORMED_CHANNELS = 5,
    NORMED_VALUES = NORMED_BUFFERS * NORMED_CHANNELS,
    NORMED_SEED = 8 /* as device_setup() has */
};
extern const double normed_momenta[NORMED_BUFFERS];

/* The batch's mean or unbiased variance of each buffer, one buffer after the other, as float32:
 * from a model on the CPU that has momentum 1, after a forward of the same batch. */
void normed_expected(int first, int count, float out[NORMED_VALUES]);

#endif
