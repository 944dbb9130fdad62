/* bucket_plan.h - owns which gradients share a bucket, and at which offsets they are. A pure
 * function makes the plan from sizes, types, order and caps: ranks with the same input make the
 * same plan. */
#ifndef CDDPI_DDP_PLAN_H
#define CDDPI_DDP_PLAN_H

#include "group/join/link.h"

/* A gradient as the plan sees it. Tensors are numbered in registration order. */
struct cddpi_bucket_plan_tensor {
    size_t bytes;
    cddp_type type;
    bool separate; /* shares buckets only with other separate tensors */
};

struct cddpi_bucket_plan_bucket {
    cddp_type type;
    bool separate;
    bool is_part;   /* it holds a part of one tensor; neighbouring buckets hold the rest */
    size_t first;   /* its first entry in `members` */
    size_t count;   /* how many entries */
    size_t offset;  /* of its data in the block, in bytes */
    size_t bytes;   /* padding included */
    size_t payload; /* without padding */
};

struct cddpi_bucket_plan {
    size_t tensor_count;
    size_t bucket_count;
    size_t bytes; /* of the whole block */
    struct cddpi_bucket_plan_bucket *buckets;
    uint32_t *members;   /* tensors, bucket after bucket */
    uint32_t *bucket_of; /* by tensor: the first bucket with a part of it */
    uint32_t *parts_of;  /* by tensor: how many consecutive buckets hold it */
    size_t *offsets;     /* by tensor: bytes from the start of the block */
};

enum { CDDPI_BUCKET_PARTS = 64 }; /* of a tensor, at most */

struct cddpi_bucket_plan_rule {
    size_t first_bytes;  /* a type's first bucket closes once it holds this much */
    size_t bucket_bytes; /* a type's other buckets close once they hold this much */
    size_t large_bytes;  /* a tensor of this size or more has its bucket alone; 0: no limit */
    size_t
        part_bytes; /* such a tensor is cut into parts of about this size, each in its own bucket;
                       0: it is not cut. Ignored with a grain: a shard has one span per tensor */
    size_t grain;   /* buckets are padded to multiples of this; 0: no padding */
    bool flat;      /* the block is the caller's: tensors back to back in registration order */
    const uint32_t *order; /* the order of completion, a permutation; NULL: reverse registration */
};

/** Make a plan. Buckets are numbered in the order in which they become complete. A flat plan cuts
 * the block in contiguous ranges from its end, also between tensors that complete at very different
 *  times; all its tensors must have one type. Other plans give each tensor a slice of its own,
 *  aligned to CDDPI_ALIGNMENT.
 *  @param out  Release with cddpi_bucket_plan_destroy(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (the order is no permutation), CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_bucket_plan_make(const struct cddpi_bucket_plan_tensor *tensors, size_t count,
                                   const struct cddpi_bucket_plan_rule *rule,
                                   struct cddpi_bucket_plan **out);
void cddpi_bucket_plan_destroy(struct cddpi_bucket_plan *plan);

/** Whether both plans have the same buckets with the same members in the same places. */
bool cddpi_bucket_plan_equal(const struct cddpi_bucket_plan *a, const struct cddpi_bucket_plan *b);

/* sizes.c: how large buckets should be, as a pure function of the sizes of gradients, the times at
 * which they become ready and the speed of a link */
struct cddpi_bucket_question {
    const struct cddpi_bucket_plan_tensor *tensors;
    size_t count;
    struct cddpi_bucket_plan_rule rule; /* order, grain and flat; and the default sizes */
    const double *ready_s;              /* by tensor: when it becomes ready; NULL: not known */
    const struct cddpi_group_link *link;
    double sent;     /* all_reduced bytes for each byte of f32; a reduce_scatter counts as half */
    double worked_s; /* seconds of CPU work on a byte before it is sent, and again after it:
                        copying, casting */
    bool may_split;
};

struct cddpi_bucket_sizes {
    uint64_t first_bytes, bucket_bytes, large_bytes, part_bytes; /* as in the rule */
    double tail_s;       /* from the last gradient to the end of communication; if the times of
                            gradients are not known, in the worst case */
    double usual_tail_s; /* the same with the default sizes */
};

/** Choose the sizes with which communication ends soonest after backward. If the times of gradients
 *  are not known, choose those that lose least, whether backward is short or long compared with
 *  communication. If several are equally good, to one percent, take the default sizes, or else
 * those that make fewer buckets.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (the order is no permutation), CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_bucket_sizes_choose(const struct cddpi_bucket_question *question,
                                      struct cddpi_bucket_sizes *out);

/** The seconds from the last gradient to the end of communication with @p plan.
 *  @param ready_s  By tensor. */
double cddpi_bucket_plan_tail_s(const struct cddpi_bucket_question *question,
                                const struct cddpi_bucket_plan *plan, const double *ready_s);

#endif
