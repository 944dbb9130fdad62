/* schedule.h - in which order a rank of a pipeline does the forwards and backwards of a step's
 * micro-batches: pure functions of the numbers of ranks, chunks and micro-batches.
 *
 *  gpipe        all forwards, then all backwards (Huang et al. 2019). Holds all micro-batches.
 *  1f1b         as soon as its first backward can run, one forward and one backward in turn
 *               (PipeDream-flush; Narayanan et al. 2021). Rank s of P holds P - s micro-batches.
 *  interleaved  the same with several chunks of layers a rank, so that the bubble is so many times
 *               shorter (Megatron-LM; Narayanan et al. 2021). Micro-batches in multiples of P.
 *
 * In all of them the backwards of a chunk come in the order of the micro-batches, so gradients add
 * up as they do without a pipeline. */
#ifndef CDDPI_PARALLEL_PIPELINE_SCHEDULE_H
#define CDDPI_PARALLEL_PIPELINE_SCHEDULE_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

enum cddpi_pipeline_schedule {
    CDDPI_PIPELINE_1F1B,
    CDDPI_PIPELINE_GPIPE,
    CDDPI_PIPELINE_INTERLEAVED
};

struct cddpi_pipeline_shape {
    enum cddpi_pipeline_schedule schedule;
    int ranks;         /* that the layers are divided among; at least 1 */
    int chunks;        /* of layers on each rank; 1 unless interleaved */
    int micro_batches; /* of a step */
};

/* One thing to do. Chunk c of rank s is stage c x ranks + s of all. */
struct cddpi_pipeline_action {
    bool backward;
    int chunk, micro_batch;
    int slot; /* of the chunk, where the micro-batch lies between forward and backward */
};

/** The actions of rank @p rank, 2 x chunks x micro_batches, in order; release with cddp_free().
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (what does not fit), CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_pipeline_plan(const struct cddpi_pipeline_shape *shape, int rank,
                                             struct cddpi_pipeline_action **out, size_t *out_count);
/** How many slots chunk @p chunk needs for these actions. */
int cddpi_pipeline_slots(const struct cddpi_pipeline_action *actions, size_t count, int chunk);
/** The part of the time in which a rank waits, where every stage takes as long: 0 to 1. */
double cddpi_pipeline_bubble(const struct cddpi_pipeline_shape *shape);

#endif
