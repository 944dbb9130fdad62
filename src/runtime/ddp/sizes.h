/* sizes.h - how large buckets should be: a pure function from sizes of gradients, the times at
 * which they become ready and the speed of a link to a rule for the plan. */
#ifndef CDDPI_DDP_SIZES_H
#define CDDPI_DDP_SIZES_H

#include "ddp/bucket_plan.h"
#include "group/join/link.h"

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
