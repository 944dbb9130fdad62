/* pipeline_schedule.h - in which order a rank of a pipeline does the forwards and backwards of a
 * step's micro-batches: pure functions of the numbers of ranks, chunks and micro-batches.
 *
 *  gpipe        all forwards, then all backwards (Huang et al. 2019). Holds all micro-batches.
 *  1f1b         as soon as its first backward can run, one forward and one backward in turn
 *               (PipeDream-flush; Narayanan et al. 2021). Rank s of P holds P - s micro-batches.
 *  interleaved  the same with several chunks of layers a rank, so that the bubble is so many times
 *               shorter (Megatron-LM; Narayanan et al. 2021). Micro-batches in multiples of P.
 *  zero_bubble  1f1b whose backward makes the gradients of inputs only, so that the rank before can
 *               go on sooner; those of parameters come later, where a rank would wait, rank s being
 *               s micro-batches later (ZB-H1; Qi et al. 2023). Rank s holds P - s micro-batches,
 *               and of P what gradients of parameters are made of.
 *
 * In all of them the backwards of a chunk come in the order of the micro-batches, and so do the
 * gradients of parameters where they are apart: they add up as they do without a pipeline. */
#ifndef CDDPI_PARALLEL_PIPELINE_SCHEDULE_H
#define CDDPI_PARALLEL_PIPELINE_SCHEDULE_H

#include "base/choices.h"

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

#define CDDPI_PIPELINE_SCHEDULE_MAP(X)                                                             \
    X(CDDPI_PIPELINE_1F1B, "1f1b")                                                                 \
    X(CDDPI_PIPELINE_GPIPE, "gpipe")                                                               \
    X(CDDPI_PIPELINE_INTERLEAVED, "interleaved")                                                   \
    X(CDDPI_PIPELINE_ZERO_BUBBLE, "zero_bubble")
enum cddpi_pipeline_schedule { CDDPI_PIPELINE_SCHEDULE_MAP(CDDPI_CHOICE_ID) };

struct cddpi_pipeline_shape {
    enum cddpi_pipeline_schedule schedule;
    int ranks;         /* that the layers are divided among; at least 1 */
    int chunks;        /* of layers on each rank; 1 unless interleaved */
    int micro_batches; /* of a step */
};

enum cddpi_pipeline_pass {
    CDDPI_PASS_FORWARD,
    CDDPI_PASS_BACKWARD, /* all of it; in zero_bubble without gradients of parameters */
    CDDPI_PASS_WEIGHTS   /* the gradients of parameters: in zero_bubble only */
};

/* One thing to do. Chunk c of rank s is stage c x ranks + s of all. */
struct cddpi_pipeline_action {
    enum cddpi_pipeline_pass pass;
    int chunk, micro_batch;
    /* Of the chunk, where the micro-batch lies between forward and backward; and, in zero_bubble,
     * what it still needs for gradients of parameters: from forward and from backward on. */
    int slot, kept, grads;
};

/** The actions of rank @p rank, chunks x micro_batches of each pass, in order; release with
 *  cddp_free().
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (what does not fit), CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_pipeline_plan(const struct cddpi_pipeline_shape *shape, int rank,
                                             struct cddpi_pipeline_action **out, size_t *out_count);
/** How many slots chunk @p chunk needs for these actions. */
int cddpi_pipeline_slots(const struct cddpi_pipeline_action *actions, size_t count, int chunk);
/** The same of `kept`: no fewer. */
int cddpi_pipeline_kept(const struct cddpi_pipeline_action *actions, size_t count, int chunk);
/** The part of the time in which a rank waits, where every stage takes as long, and in zero_bubble
 *  each pass as long as the others: 0 to 1. */
double cddpi_pipeline_bubble(const struct cddpi_pipeline_shape *shape);

#endif
