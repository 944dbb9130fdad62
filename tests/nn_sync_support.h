/* nn_sync_support.h - a model that normalises over ranks in many places, and ranks with their
 * shares of its samples. */
#ifndef CDDP_TESTS_NN_SYNC_SUPPORT_H
#define CDDP_TESTS_NN_SYNC_SUPPORT_H

#include "nn_support.h"

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

/* The same group for all that have the same @job. */
static inline int join(const struct spread *spread, const char *job, const char *device,
                       const char *backend, int rank, int n, cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;

    options.rendezvous = spread->url;
    options.token = "secret";
    options.job = job;
    options.rank = rank;
    options.world_size = n;
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    options.device = device;
    options.backend = backend;
    if (cddp_group_create(&options, out) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        return 1;
    }
    return 0;
}

/* The first of rank @p rank's samples. */
static inline int first_sample(const struct spread *spread, int rank)
{
    int first = 0;

    for (int r = 0; r < rank; r++) {
        first += spread->counts[r];
    }
    return first;
}

static inline void run_spread(int n, struct spread spread, rank_fn body)
{
    char *folder = support_mkdtemp();
    char url[4200];

    snprintf(url, sizeof url, "file://%s/store", folder);
    spread.url = url;
    assert_int_equal(run_ranks(n, body, &spread), 0);
    support_rmdir(folder);
}

#endif
