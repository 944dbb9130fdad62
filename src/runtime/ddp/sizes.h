/* sizes.h - how large buckets are best: a pure function from sizes, arrivals and a link's numbers
 * to a rule for the plan, which a test can feed. */
#ifndef CDDPI_DDP_SIZES_H
#define CDDPI_DDP_SIZES_H

#include "ddp/bucket_plan.h"
#include "group/join/link.h"

struct cddpi_bucket_question {
    const struct cddpi_bucket_plan_tensor *tensors;
    size_t count;
    struct cddpi_bucket_plan_rule rule; /* order, grain, flat; and the usual sizes */
    const double *ready_s;              /* by tensor: when backward has made it; NULL: not known */
    const struct cddpi_group_link *link;
    double sent;     /* bytes of an all_reduce by byte of f32; a reduce_scatter is half of one */
    double worked_s; /* what the processor does to a byte before it is sent, and again behind it:
                        copying, casting */
    bool may_split;
};

struct cddpi_bucket_sizes {
    uint64_t first_bytes, bucket_bytes, large_bytes, part_bytes; /* as in the rule */
    double tail_s;       /* from the last gradient to the end of communication; arrivals not known:
                            what it is where they are the worst for these sizes */
    double usual_tail_s; /* the same with the usual sizes */
};

/** Choose the sizes with which communication ends soonest behind backward. Where arrivals are not
 *  known, those that lose least, whether backward is short or long against communication. Of sizes
 *  that are as good, to a hundredth, those that make fewer buckets; the usual ones first.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (the order is no permutation), CDDP_ERR_NO_MEMORY. */
cddp_status cddpi_bucket_sizes_choose(const struct cddpi_bucket_question *question,
                                      struct cddpi_bucket_sizes *out);

/** The seconds from the last gradient to the end of communication, by @p plan.
 *  @param ready_s  By tensor. */
double cddpi_bucket_plan_tail_s(const struct cddpi_bucket_question *question,
                                const struct cddpi_bucket_plan *plan, const double *ready_s);

#endif
