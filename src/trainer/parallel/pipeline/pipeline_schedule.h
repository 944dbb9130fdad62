/* pipeline_schedule.h - plans the order in which a rank of a pipeline runs the forwards and
 * backwards of a step's micro-batches. Pure functions of the numbers of ranks, chunks and
 * micro-batches.
 *
 *  gpipe        all forwards, then all backwards (Huang et al. 2019). Holds all micro-batches.
 *  1f1b         once its first backward can run, a rank alternates one forward and one backward
 *               (PipeDream-flush; Narayanan et al. 2021). Rank s of P holds P - s micro-batches.
 *  interleaved  1f1b with several chunks of layers per rank, which divides the bubble by the number
 *               of chunks (Megatron-LM; Narayanan et al. 2021). The number of micro-batches is a
 *               multiple of P.
 *  zero_bubble  1f1b, but backward computes only the gradients of inputs, so that the previous rank
 *               can go on sooner. Gradients of parameters are computed where a rank would wait:
 *               rank s does so s micro-batches later (ZB-H1; Qi et al. 2023). Rank s holds P - s
 *               micro-batches, and what the gradients of parameters need of P.
 *
 * In every schedule, the backwards of a chunk are in the order of the micro-batches, and so are
 * separate gradients of parameters: they add up in the same order as without a pipeline. */
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
    int ranks;         /* that share the layers; at least 1 */
    int chunks;        /* of layers per rank; 1 unless interleaved */
    int micro_batches; /* per step */
};

enum cddpi_pipeline_pass {
    CDDPI_PASS_FORWARD,
    CDDPI_PASS_BACKWARD, /* complete; in zero_bubble without gradients of parameters */
    CDDPI_PASS_WEIGHTS   /* gradients of parameters: in zero_bubble only */
};

/* One pass of one micro-batch through one chunk. Chunk c of rank s is stage c x ranks + s. */
struct cddpi_pipeline_action {
    enum cddpi_pipeline_pass pass;
    int chunk, micro_batch;
    /* Memory of the chunk: slot holds the micro-batch from forward to backward. In zero_bubble, the
     * gradients of parameters need more: `kept` from forward on, `grads` from backward on. */
    int slot, kept, grads;
};

/** The actions of rank @p rank in order: chunks x micro_batches of each pass. Release with
 *  cddpi_free().
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (the text says what does not fit), CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_pipeline_plan(const struct cddpi_pipeline_shape *shape, int rank,
                                             struct cddpi_pipeline_action **out, size_t *out_count);
/** How many slots chunk @p chunk needs for these actions. @p out_kept: the same for `kept`, at
 * least as many. */
int cddpi_pipeline_slots(const struct cddpi_pipeline_action *actions, size_t count, int chunk,
                         int *out_kept);
/** The fraction of time in which a rank waits, 0 to 1, if every stage takes equally long, and in
 *  zero_bubble every pass, too. */
double cddpi_pipeline_bubble(const struct cddpi_pipeline_shape *shape);

#endif
