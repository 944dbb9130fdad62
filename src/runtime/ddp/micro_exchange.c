/* micro_exchange.c - sums nodes that several ranks have parts of. Each rank gets one share of all
 * nodes of a bucket, merges them as the tree says, and sends the result to all; with a sharded
 * optimizer it keeps it. If the rank with most nodes has n of them, (n + 1) / 2 times the bytes of
 * an all-reduce are sent. */
#include "ddp/micro_sums.h"

#include "base/alloc.h"
#include "ddp/ddp_step.h"

/* A bucket in exchange. The scratch memory has a block for each rank, of `most` nodes' shares: what
 * is sent to the rank, then what has come from it; at the end the result, share after share. */
struct exchange {
    struct cddpi_bucket *bucket;
    cddp_ddp *ddp;
    size_t element; /* bytes */
    size_t share;   /* elements; the last ranks' may be shorter, or empty */
    size_t block;   /* bytes for one rank */
    unsigned char *blocks;
};

bool cddpi_micro_exchanges(const cddp_ddp *ddp)
{
    return cddpi_is_by_micro_batches(ddp) && ddp->world_size > 1 && !ddp->sums->is_of_ranks;
}

/* Allocating waits for the other ranks, which do it at the same bucket: all of them know how many
 * nodes each has. */
static cddp_status reserve_scratch(struct cddpi_bucket *bucket, size_t bytes)
{
    void *memory;

    if (bucket->scratch_bytes < bytes) {
        cddp_group_free(bucket->ddp->group, bucket->scratch);
        bucket->scratch = NULL;
        bucket->scratch_bytes = 0;
        CDDPI_TRY(cddp_group_alloc(bucket->ddp->group, bytes, 0, &memory));
        bucket->scratch = memory;
        bucket->scratch_bytes = bytes;
    }
    return CDDP_OK;
}

static cddp_status open_exchange(struct cddpi_bucket *bucket, struct exchange *out)
{
    cddp_ddp *ddp = bucket->ddp;
    size_t ranks = (size_t)ddp->world_size;
    size_t element = cddp_type_bytes(bucket->type);
    size_t grain = CDDPI_ALIGNMENT / element;
    size_t share = (bucket->count + ranks * grain - 1) / (ranks * grain) * grain;

    *out = (struct exchange){.bucket = bucket,
                             .ddp = ddp,
                             .element = element,
                             .share = share,
                             .block = (size_t)ddp->sums->most * share * element};
    CDDPI_TRY(reserve_scratch(bucket, ranks * out->block));
    out->blocks = bucket->scratch;
    return CDDP_OK;
}

/* The share of rank @p rank: how many bytes there are, and where they begin in the bucket. */
static size_t share_of(const struct exchange *exchange, int rank, size_t *out_first)
{
    size_t first = (size_t)rank * exchange->share;
    size_t count = exchange->bucket->count;

    first = first < count ? first : count;
    *out_first = first * exchange->element;
    return (count - first < exchange->share ? count - first : exchange->share) * exchange->element;
}

/* The share of node @p n that goes to rank @p rank, or has come from it. */
static unsigned char *node_of(const struct exchange *exchange, int rank, int n)
{
    return exchange->blocks + (size_t)rank * exchange->block +
           (size_t)n * exchange->share * exchange->element;
}

/* Copy each rank's share of this rank's nodes to where it is sent from. The last node is in the
 * bucket, the others in the stack below the ones that were merged. */
static cddp_status pack(const struct exchange *exchange)
{
    const cddp_ddp *ddp = exchange->ddp;
    const struct cddpi_micro_sums *sums = ddp->sums;
    size_t offset = ddp->layout.plan->buckets[exchange->bucket->index].offset;
    int below = sums->depth - sums->merges;
    int nodes = cddpi_micro_is_idle(ddp) ? 0 : below + 1;

    for (int rank = 0; rank < ddp->world_size; rank++) {
        size_t first;
        size_t bytes = share_of(exchange, rank, &first);

        for (int n = 0; n < nodes; n++) {
            const unsigned char *from = n == below ? exchange->bucket->data
                                                   : sums->blocks[n] + offset;

            CDDPI_TRY(cddpi_ddp_copy(ddp, node_of(exchange, rank, n), from + first, bytes));
        }
    }
    return CDDP_OK;
}

/* Sum this rank's share of all nodes: each merge overwrites its left node. */
static cddp_status sum_share(const struct exchange *exchange, void *result)
{
    const cddp_ddp *ddp = exchange->ddp;
    struct cddpi_micro_node nodes[CDDPI_MICRO_NODES];
    struct cddpi_micro_node stack[CDDPI_MICRO_NODES];
    unsigned char *sums[CDDPI_MICRO_NODES]; /* of the stack; the root's is the first node's */
    int depth = 0;
    size_t first;
    size_t bytes = share_of(exchange, ddp->rank, &first);

    for (int rank = 0; rank < ddp->world_size; rank++) {
        int count = cddpi_micro_nodes(ddp->sums->all, rank, ddp->world_size, nodes);

        for (int n = 0; n < count; n++) {
            unsigned char *sum = node_of(exchange, rank, n);

            for (int m = cddpi_micro_push(stack, &depth, nodes[n], ddp->sums->all); m > 0; m--) {
                unsigned char *left = sums[depth - 1 + m - 1];

                CDDPI_TRY(cddpi_micro_add(ddp, exchange->bucket->type, left, left, sum, bytes));
                sum = left;
            }
            sums[depth - 1] = sum;
        }
    }
    return result == sums[0] ? CDDP_OK : cddpi_ddp_copy(ddp, result, sums[0], bytes);
}

/* The stages: send shares; sum them, and send the result; take it. */
cddp_status cddpi_micro_exchange(struct cddpi_bucket *bucket, int stage, cddp_work **out_work)
{
    cddp_ddp *ddp = bucket->ddp;
    struct exchange exchange;
    unsigned char *own;
    size_t first;
    size_t bytes;

    *out_work = NULL;
    CDDPI_TRY(open_exchange(bucket, &exchange));
    bytes = share_of(&exchange, ddp->rank, &first);
    if (stage == 0) {
        CDDPI_TRY(pack(&exchange));
        return cddp_all_to_all(ddp->group, exchange.blocks, exchange.blocks,
                               exchange.block / exchange.element, bucket->type, out_work);
    }
    if (ddp->shards != NULL) {
        return sum_share(&exchange, (unsigned char *)bucket->data + first);
    }
    /* where a node was, which is merged by then */
    own = exchange.blocks + (size_t)ddp->rank * exchange.share * exchange.element;
    if (stage == 1) {
        CDDPI_TRY(sum_share(&exchange, own));
        return cddp_all_gather(ddp->group, own, exchange.blocks, exchange.share, bucket->type,
                               out_work);
    }
    bytes = bucket->count * exchange.element;
    return cddpi_ddp_copy(ddp, bucket->data, exchange.blocks, bytes);
}
