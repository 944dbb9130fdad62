/* sequence.h - the batches of an epoch, cut into pieces, as arithmetic: which positions of the
 * sampler's order piece after piece holds. */
#ifndef CDDPI_DATA_SEQUENCE_H
#define CDDPI_DATA_SEQUENCE_H

#include <cddp/sampler.h>

/* What a loader was asked for. */
struct cddpi_sequence {
    const cddp_sampler *sampler; /* borrowed */
    uint64_t epoch, first, end, batch;
    int rank, world_size;
    bool augment;
    uint64_t piece;  /* samples of a piece, at most */
    uint64_t pieces; /* of a whole batch */
    uint64_t count;  /* pieces of all batches; 0: nothing to do */
};

/** Check what was asked for, of a dataset of @p samples, and fill the last two. */
CDDP_CHECKED cddp_status cddpi_sequence_plan(struct cddpi_sequence *sequence, uint64_t samples);

/** This rank's share of the batch that piece @p number < count belongs to. */
cddp_share cddpi_sequence_share(const struct cddpi_sequence *sequence, uint64_t number);

/** Whether all ranks have a share of that size. */
bool cddpi_sequence_is_even(const struct cddpi_sequence *sequence, uint64_t number);

/** The piece: a part of that share. */
cddp_share cddpi_sequence_piece(const struct cddpi_sequence *sequence, uint64_t number);

/** Whether it is the last one of its batch. */
bool cddpi_sequence_ends_batch(const struct cddpi_sequence *sequence, uint64_t number);

#endif
