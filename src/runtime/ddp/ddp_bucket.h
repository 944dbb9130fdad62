/* ddp_bucket.h - the reduction of one bucket. */
#ifndef CDDPI_DDP_BUCKET_H
#define CDDPI_DDP_BUCKET_H

#include "ddp/ddp.h"

/* bucket.c */
/** Fail if @p bucket is NULL. @p call begins the error text. */
cddp_status cddpi_bucket_check(const cddp_bucket *bucket, const char *call);
/** Call the hook's next stage. */
cddp_status cddpi_bucket_advance(struct cddp_bucket *bucket);
/** Put "ddp: bucket 2 of 5 (b ... a): " before the stored text. */
cddp_status cddpi_bucket_failed(const struct cddp_bucket *bucket, cddp_status status);
/** How many bytes of @p slot are in @p bucket; the first is byte @p out_first of the slot. */
size_t cddpi_bucket_part_of(const struct cddp_bucket *bucket, const struct cddpi_ddp_slot *slot,
                            size_t *out_first);
/** With a sharded optimizer: how many elements of @p bucket each rank updates, with padding. */
size_t cddpi_shard_elements(const struct cddp_bucket *bucket);

/* hooks.c */
/** Allocate what a built-in hook needs, so that cddp_ddp_grad_ready() does not have to.
 *  Collective. */
cddp_status cddpi_bucket_prepare(struct cddp_bucket *bucket);

#endif
