/* nn_sync.c - a model with many synchronised batch_norms, and ranks that each have a share of its
 * samples. */
#include "support/nn_sync.h"

int join(const struct spread *spread, const char *job, const char *device, const char *backend,
         int rank, int n, cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;

    options.rendezvous = spread->url;
    options.token = SUPPORT_TOKEN;
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

int first_sample(const struct spread *spread, int rank)
{
    int first = 0;

    for (int r = 0; r < rank; r++) {
        first += spread->counts[r];
    }
    return first;
}

void run_spread(int n, struct spread spread, rank_fn body)
{
    char *folder = support_mkdtemp();
    char url[4200];

    snprintf(url, sizeof url, "file://%s/store", folder);
    spread.url = url;
    assert_int_equal(run_ranks(n, body, &spread), 0);
    support_rmdir(folder);
}
