/* nn_sync.h - a model with many synchronised batch_norms, and ranks that each have a share of its
 * samples. */
#ifndef CDDP_TESTS_SUPPORT_NN_SYNC_H
#define CDDP_TESTS_SUPPORT_NN_SYNC_H

#include "support/nn.h"

#include <cddp/group.h>

enum { TOTAL = 7 };

static const struct cddpi_layer layers[] = {
    {.type = CDDPI_LAYER_BATCH_NORM, .sync = true},
    {.type = CDDPI_LAYER_CONV2D, .units = 20, .kernel = 3, .padding = 1},
    {.type = CDDPI_LAYER_BATCH_NORM, .sync = true},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_CONV2D, .units = 16, .kernel = 3},
    {.type = CDDPI_LAYER_BATCH_NORM, .name = "a", .sync = true},
    {.type = CDDPI_LAYER_BATCH_NORM, .name = "b", .input = "a", .sync = true},
    {.type = CDDPI_LAYER_ADD, .input2 = "a"},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_FLATTEN},
    {.type = CDDPI_LAYER_LINEAR, .units = 9},
    {.type = CDDPI_LAYER_BATCH_NORM, .sync = true},
    {.type = CDDPI_LAYER_RELU},
    {.type = CDDPI_LAYER_LINEAR, .units = 3},
};

static const struct cddpi_model_spec spec = {.layers = layers,
                                             .layer_count = COUNT_OF(layers),
                                             .channels = 3,
                                             .height = 5,
                                             .width = 6,
                                             .classes = 3};

struct spread {
    const char *url;
    int counts[4]; /* samples of each rank */
};

/* Join the group of all ranks that use the same @p job. */
int join(const struct spread *spread, const char *job, const char *device, const char *backend,
         int rank, int n, cddp_group **out);

/* The index of the first sample of rank @p rank. */
int first_sample(const struct spread *spread, int rank);
void run_spread(int n, struct spread spread, rank_fn body);

#endif
