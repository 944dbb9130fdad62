/* mean.c - owns cddp_ddp_mean(), with which a rank reads the mean of gradients that it updates.
 * With deferred reduction, the mean is computed in this call. */
#include "base/error.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"
#include "kernels/cpu/reduce.h"

/* Whether this rank updates elements [first, first + count) of parameter @p index, that is, whether
 * one of its spans holds them all. Spans are in the order of parameters. */
static bool is_in_own_span(const cddp_ddp *ddp, size_t index, size_t first, size_t count)
{
    const struct cddpi_ddp_shards *shards = ddp->shards;
    size_t low = shards->first[ddp->rank];
    size_t high = shards->first[ddp->rank + 1];

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const cddp_span *span = &shards->spans[middle];

        if (span->param < index || (span->param == index && span->first + span->count <= first)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < shards->first[ddp->rank + 1] && shards->spans[low].param == index &&
           shards->spans[low].first <= first &&
           count <= shards->spans[low].count - (first - shards->spans[low].first);
}

static cddp_status check_mean(const cddp_ddp *ddp, size_t index, size_t first, size_t count,
                              const void *scratch)
{
    size_t all = ddp->params[index].count;

    if (first > all || count > all - first ||
        (ddp->shards != NULL && count > 0 && !is_in_own_span(ddp, index, first, count))) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp_mean: %zu elements from %zu on of parameter %s lie in no span of "
                          "this rank's (see cddp_ddp_spans())",
                          count, first, ddp->params[index].name);
    }
    if (ddp->shards != NULL && count > 0 && /* checked even where scratch is not used */
        (scratch == NULL || (uintptr_t)scratch % cddp_type_bytes(ddp->params[index].type) != 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp_mean: scratch is %s",
                          scratch == NULL ? "NULL" : "not aligned");
    }
    return CDDP_OK;
}

const void *cddp_ddp_mean(cddp_ddp *ddp, size_t index, size_t first, size_t count, void *scratch)
{
    unsigned char *own = cddp_ddp_grad(ddp, index);
    struct cddpi_ddp_shards *shards;
    struct cddpi_reduce how;
    size_t offset;
    cddp_type type;
    bool sum;

    if (own == NULL || check_mean(ddp, index, first, count, scratch) != CDDP_OK) {
        return NULL;
    }
    sum = (ddp->end.statuses[ddp->rank].flags & CDDPI_STEP_SUM) != 0;
    shards = ddp->shards;
    type = ddp->params[index].type;
    own += first * cddp_type_bytes(type);
    if (shards == NULL || !shards->deferred) {
        return own;
    }
    offset = (size_t)(own - ddp->layout.block);
    how = (struct cddpi_reduce){type, sum ? CDDP_OP_SUM : CDDP_OP_MEAN, ddp->world_size, 1, NULL};
    for (int rank = 0; rank < ddp->world_size; rank++) {
        shards->weights[rank] = ddp->end.statuses[rank].weight;
        shards->src[rank] = (const unsigned char *)shards->peers[rank] + offset;
    }
    if (shards->weights[0] >= 0 && !sum) {
        cddpi_reduce_weighted(&how, type, shards->weights, ddp->world_size,
                              shards->weights + ddp->world_size);
    }
    cddpi_reduce(&how, &scratch, shards->src, count);
    return scratch;
}
