/* group.c - groups without a store, for tests and benchmarks: the shared block is created before
 * the ranks are forked. */
#include "support/group.h"

#include <string.h>

cddp_status group_seed_create(int world_size, struct group_seed *out)
{
    return cddpi_shm_block_create(world_size, &out->nonce, &out->fd);
}

bool group_choose_host(int rank)
{
    const char *hosts = getenv("TEST_HOSTS");
    size_t count;
    char id[32];

    if (hosts == NULL) {
        return false;
    }
    count = (strlen(hosts) + 1) / 2;
    snprintf(id, sizeof id, "test host %c", hosts[2 * ((size_t)rank % count)]);
    setenv("CDDP_HOST_ID", id, 1);
    return true;
}

static cddp_status join_at(const char *url, int rank, int world_size, uint32_t timeout_ms,
                           cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;

    options.rendezvous = url;
    options.token = "a secret of these tests, and long";
    options.job = "test";
    options.rank = rank;
    options.world_size = world_size;
    options.timeout_ms = timeout_ms;
    options.device = "cpu";
    return cddp_group_create(&options, out);
}

cddp_status group_join_on(int host, const char *url, int rank, int world_size, uint32_t timeout_ms,
                          cddp_group **out)
{
    char id[32];

    snprintf(id, sizeof id, "test host %d", host);
    setenv("CDDP_HOST_ID", id, 1);
    setenv("CDDP_CARRIER", "tcp", 1);
    return join_at(url, rank, world_size, timeout_ms, out);
}

/* Create a group over the transport that CDDP_BACKEND names, with a store in a file. */
static cddp_status group_by_name(const struct group_seed *seed, int rank, int world_size,
                                 uint32_t timeout_ms, cddp_group **out)
{
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    char url[512];

    snprintf(url, sizeof url, "file://%s/cddp-test-%016" PRIx64, folder, seed->nonce);
    (void)group_choose_host(rank);
    return join_at(url, rank, world_size, timeout_ms, out);
}

cddp_status group_from_seed(const struct group_seed *seed, int rank, int world_size,
                            uint32_t timeout_ms, cddp_group **out)
{
    struct cddpi_open_params params = {rank, world_size, timeout_ms, NULL};
    struct shm_backend *host;
    cddp_status status;

    if (getenv("CDDP_BACKEND") != NULL) {
        return group_by_name(seed, rank, world_size, timeout_ms, out);
    }
    status = cddpi_shm_attach(&params, seed->fd, seed->nonce, &host);
    if (status != CDDP_OK) {
        return status;
    }
    status = cddpi_shm_await_attached(host, cddpi_deadline_ns(timeout_ms), NULL, NULL);
    if (status != CDDP_OK) {
        cddpi_shm_ops.close(&host->base);
        return status;
    }
    return cddpi_group_build(&params, &cddpi_shm_transport, &host->base, out);
}

cddp_group_info group_info(const cddp_group *group)
{
    cddp_group_info info = CDDP_GROUP_INFO_INIT;

    if (cddp_group_get_info(group, &info) != CDDP_OK) {
        fprintf(stderr, "%s\n", cddp_last_error());
        abort();
    }
    return info;
}
