/* micro_exchange.c - sums nodes that several ranks have parts of. Each rank gets one share of all
 * nodes of a bucket, merges them as the tree says, and sends the result to all; with a sharded
 * optimizer it keeps it. If the rank with most nodes has n of them, (n + 1) / 2 times the bytes of
 * an all-reduce are sent. */
#include "ddp/micro_sums.h"

#include "base/alloc.h"
#include "ddp/ddp_step.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cuda/cuda_kernels.h"

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

            CDDPI_TRY(cddpi_ddp_copy(ddp,
                                     exchange->blocks + (size_t)rank * exchange->block +
                                         (size_t)n * exchange->share * exchange->element,
                                     from + first, bytes));
        }
    }
    return CDDP_OK;
}

/* The operands and merges that make the root of the received nodes. */
struct merge_list {
    struct cddpi_reduce_operand *operands;
    struct cddpi_reduce_merge *merges;
    int operand_count, merge_count;
};

static void list_merges(const struct exchange *exchange, struct merge_list *list)
{
    const cddp_ddp *ddp = exchange->ddp;
    struct cddpi_micro_node nodes[CDDPI_MICRO_NODES];
    struct cddpi_micro_node stack[CDDPI_MICRO_NODES];
    int operands[CDDPI_MICRO_NODES]; /* of the stack */
    int depth = 0;

    for (int rank = 0; rank < ddp->world_size; rank++) {
        int count = cddpi_micro_nodes(ddp->sums->all, rank, ddp->world_size, nodes);

        for (int n = 0; n < count; n++) {
            int own = list->operand_count++;

            list->operands[own] = (struct cddpi_reduce_operand){
                exchange->blocks + (size_t)rank * exchange->block +
                    (size_t)n * exchange->share * exchange->element,
                false, 1};
            for (int m = cddpi_micro_push(stack, &depth, nodes[n], ddp->sums->all); m > 0; m--) {
                int left = operands[depth - 1 + m - 1];

                list->merges[list->merge_count++] = (struct cddpi_reduce_merge){left, own, NULL};
                own = left;
            }
            operands[depth - 1] = own;
        }
    }
}

/* On a device, each merge overwrites its left operand. */
static cddp_status merge_on_device(const struct exchange *exchange, const struct merge_list *list,
                                   void *result, size_t bytes)
{
    struct cddpi_device *device = exchange->ddp->device;
    size_t count = bytes / exchange->element;

    for (int m = 0; m < list->merge_count; m++) {
        void *left = (void *)(uintptr_t)list->operands[list->merges[m].left].data;

        CDDPI_TRY(device->kernels->add(device, exchange->bucket->type, left,
                                       list->operands[list->merges[m].right].data, false, count,
                                       left));
    }
    return cddpi_ddp_copy(exchange->ddp, result, list->operands[0].data, bytes);
}

static cddp_status merge_nodes(const struct exchange *exchange, const struct merge_list *list,
                               void *result, size_t bytes)
{
    struct cddpi_reduce_merges how = {.type = exchange->bucket->type,
                                      .op = CDDP_OP_SUM,
                                      .operands = list->operands,
                                      .operand_count = list->operand_count,
                                      .merges = list->merges,
                                      .merge_count = list->merge_count,
                                      .destinations = 1,
                                      .dst = &result,
                                      .root = 0,
                                      .ranks = exchange->ddp->world_size};

    if (cddpi_device_is_async(exchange->ddp->device)) {
        return merge_on_device(exchange, list, result, bytes);
    }
    cddpi_reduce_merges(&how, bytes / exchange->element);
    return CDDP_OK;
}

/* Sum this rank's share of all nodes. */
static cddp_status sum_share(const struct exchange *exchange, void *result)
{
    size_t total = (size_t)exchange->ddp->sums->total;
    struct merge_list list = {cddpi_zalloc_array(total, sizeof *list.operands),
                              cddpi_zalloc_array(total, sizeof *list.merges), 0, 0};
    cddp_status status;
    size_t first;
    size_t bytes = share_of(exchange, exchange->ddp->rank, &first);

    if (list.operands == NULL || list.merges == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %zu partial sums", total);
    } else {
        list_merges(exchange, &list);
        status = merge_nodes(exchange, &list, result, bytes);
    }
    cddpi_free(list.operands);
    cddpi_free(list.merges);
    return status;
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
    /* where a node is that this rank merges, which the merge has read before it writes there */
    own = exchange.blocks + (size_t)ddp->rank * exchange.share * exchange.element;
    if (stage == 1) {
        CDDPI_TRY(sum_share(&exchange, own));
        return cddp_all_gather(ddp->group, own, exchange.blocks, exchange.share, bucket->type,
                               out_work);
    }
    bytes = bucket->count * exchange.element;
    return cddpi_ddp_copy(ddp, bucket->data, exchange.blocks, bytes);
}
