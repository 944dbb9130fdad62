/* sampler.c - owns the public samplers: which sample is at each position of an epoch, and which
 * positions each rank gets. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/handle.h"
#include "samplers/permutation.h"
#include "samplers/randperm.h"

#include <cddp/sampler.h>

struct cddp_sampler {
    struct cddpi_handle handle;
    cddp_order order;
    uint64_t count, seed, epoch;
    struct cddpi_permutation permutation; /* CDDP_ORDER_RANDOM */
    uint64_t *indices;                    /* CDDP_ORDER_TORCH: count, owned */
};

static void arrange(cddp_sampler *sampler, uint64_t epoch)
{
    sampler->epoch = epoch;
    if (sampler->order == CDDP_ORDER_RANDOM) {
        cddpi_permutation_init(&sampler->permutation, sampler->count, sampler->seed, epoch);
    } else if (sampler->order == CDDP_ORDER_TORCH) {
        cddpi_torch_randperm(sampler->seed + epoch, sampler->count, CDDPI_RANDPERM_WIDE_FROM,
                             sampler->indices);
    }
}

cddp_status cddp_sampler_create(cddp_order order, uint64_t count, uint64_t seed, cddp_sampler **out)
{
    cddp_sampler *sampler;

    if (count == 0 || out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "sampler: %s",
                          out == NULL ? "out is NULL" : "a data set of 0 samples has no order");
    }
    if (order != CDDP_ORDER_SEQUENTIAL && order != CDDP_ORDER_RANDOM && order != CDDP_ORDER_TORCH) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "sampler: there is no order number %d", (int)order);
    }
    sampler = cddpi_zalloc(sizeof *sampler);
    if (sampler == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "sampler: no memory for %zu bytes", sizeof *sampler);
    }
    cddpi_handle_init(&sampler->handle, CDDPI_HANDLE_SAMPLER);
    sampler->order = order;
    sampler->count = count;
    sampler->seed = seed;
    if (order == CDDP_ORDER_TORCH) {
        sampler->indices = count <= SIZE_MAX / sizeof *sampler->indices
                               ? cddpi_alloc_aligned(count * sizeof *sampler->indices)
                               : NULL;
        if (sampler->indices == NULL) {
            cddp_sampler_destroy(sampler);
            return cddpi_fail(CDDP_ERR_NO_MEMORY,
                              "sampler: no memory for the order of %llu samples",
                              (unsigned long long)count);
        }
    }
    arrange(sampler, 0);
    *out = sampler;
    return CDDP_OK;
}

void cddp_sampler_destroy(cddp_sampler *sampler)
{
    if (sampler != NULL &&
        cddpi_handle_enter_last(&sampler->handle, CDDPI_HANDLE_SAMPLER, "sampler_destroy")) {
        cddpi_free(sampler->indices);
        cddpi_handle_release(&sampler->handle, sizeof *sampler);
    }
}

static cddp_status check(const cddp_sampler *sampler, const char *call)
{
    return cddpi_handle_check((const struct cddpi_handle *)sampler, CDDPI_HANDLE_SAMPLER, call);
}

cddp_status cddp_sampler_set_epoch(cddp_sampler *sampler, uint64_t epoch)
{
    CDDPI_TRY(check(sampler, "sampler_set_epoch"));
    if (epoch != sampler->epoch) {
        arrange(sampler, epoch);
    }
    return CDDP_OK;
}

uint64_t cddp_sampler_at(const cddp_sampler *sampler, uint64_t position)
{
    if (check(sampler, "sampler_at") != CDDP_OK) {
        return UINT64_MAX;
    }
    if (position >= sampler->count) {
        (void)cddpi_fail(CDDP_ERR_ARGUMENT, "sampler_at: position %llu of %llu",
                         (unsigned long long)position, (unsigned long long)sampler->count);
        return UINT64_MAX;
    }
    switch (sampler->order) {
    case CDDP_ORDER_RANDOM:
        return cddpi_permutation_at(&sampler->permutation, position);
    case CDDP_ORDER_TORCH:
        return sampler->indices[position];
    case CDDP_ORDER_SEQUENTIAL:
    case CDDP_ORDER_MAX_ENUM_:
        break;
    }
    return position;
}

uint64_t cddp_sampler_count(const cddp_sampler *sampler)
{
    return check(sampler, "sampler_count") == CDDP_OK ? sampler->count : 0;
}

cddp_share cddp_share_of(uint64_t first, uint64_t count, int rank, int world_size)
{
    uint64_t each;
    uint64_t longer;
    uint64_t before;
    cddp_share share = {first, 0};

    if (world_size < 1 || rank < 0 || rank >= world_size) {
        (void)cddpi_fail(CDDP_ERR_ARGUMENT, "share_of: rank %d of %d", rank, world_size);
        return share;
    }
    each = count / (uint64_t)world_size;
    longer = count % (uint64_t)world_size; /* this many ranks, the first ones, get one sample
                                              more */
    before = (uint64_t)rank;
    share.first = first + before * each + (before < longer ? before : longer);
    share.count = each + (before < longer);
    return share;
}

uint64_t cddp_torch_shard_count(uint64_t count, int world_size, bool drop_last)
{
    uint64_t ranks = (uint64_t)world_size;

    if (world_size < 1) {
        (void)cddpi_fail(CDDP_ERR_ARGUMENT, "torch_shard_count: %d ranks", world_size);
        return 0;
    }
    return count / ranks + (!drop_last && count % ranks != 0);
}

cddp_status cddp_torch_shard(const cddp_sampler *sampler, int rank, int world_size, bool drop_last,
                             uint64_t *out)
{
    uint64_t shard_count;

    CDDPI_TRY(check(sampler, "torch_shard"));
    if (world_size < 1 || rank < 0 || rank >= world_size || out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "torch_shard: rank %d of %d%s", rank, world_size,
                          out == NULL ? ", and out is NULL" : "");
    }
    shard_count = cddp_torch_shard_count(sampler->count, world_size, drop_last);
    for (uint64_t i = 0; i < shard_count; i++) {
        /* past the end, the order starts again, until all ranks have equally many */
        uint64_t position = (uint64_t)rank + i * (uint64_t)world_size;

        out[i] = cddp_sampler_at(sampler, position % sampler->count);
    }
    return CDDP_OK;
}
