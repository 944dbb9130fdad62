/* sequence.c - owns how batches are cut: into pieces of one size and what is left, as many on every
 * rank. */
#include "data/sequence.h"

#include "base/error.h"

/* Into how many pieces a batch of @p count samples is cut: on all ranks alike, so that they can
 * meet in each; the last ones may be empty. */
static uint64_t pieces_of(const struct cddpi_sequence *sequence, uint64_t count)
{
    uint64_t largest = cddp_share_of(0, count, 0, sequence->world_size).count;

    return largest > sequence->piece ? (largest - 1) / sequence->piece + 1 : 1;
}

static cddp_status check(const struct cddpi_sequence *sequence, uint64_t samples)
{
    uint64_t order;

    if (sequence->sampler == NULL || sequence->batch == 0 || sequence->world_size < 1 ||
        sequence->rank < 0 || sequence->rank >= sequence->world_size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "loader: batches of %llu for rank %d of %d",
                          (unsigned long long)sequence->batch, sequence->rank,
                          sequence->world_size);
    }
    order = cddp_sampler_count(sequence->sampler);
    if (order > samples || sequence->first > sequence->end || sequence->end > order) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "loader: positions %llu to %llu of an order of %llu samples, in a dataset of %llu",
            (unsigned long long)sequence->first, (unsigned long long)sequence->end,
            (unsigned long long)order, (unsigned long long)samples);
    }
    return CDDP_OK;
}

cddp_status cddpi_sequence_plan(struct cddpi_sequence *sequence, uint64_t samples)
{
    cddp_status status = check(sequence, samples);
    uint64_t positions, left;

    if (status != CDDP_OK) {
        return status;
    }
    positions = sequence->end - sequence->first;
    left = positions % sequence->batch;
    sequence->pieces = pieces_of(sequence,
                                 positions < sequence->batch ? positions : sequence->batch);
    sequence->count = positions / sequence->batch * sequence->pieces +
                      (left > 0 ? pieces_of(sequence, left) : 0);
    return CDDP_OK;
}

/* The positions of the batch that piece @p number belongs to. */
static cddp_share batch_of(const struct cddpi_sequence *sequence, uint64_t number)
{
    uint64_t first = sequence->first + number / sequence->pieces * sequence->batch;
    uint64_t left = sequence->end - first;

    return (cddp_share){first, left < sequence->batch ? left : sequence->batch};
}

cddp_share cddpi_sequence_share(const struct cddpi_sequence *sequence, uint64_t number)
{
    cddp_share batch = batch_of(sequence, number);

    return cddp_share_of(batch.first, batch.count, sequence->rank, sequence->world_size);
}

bool cddpi_sequence_is_even(const struct cddpi_sequence *sequence, uint64_t number)
{
    return batch_of(sequence, number).count % (uint64_t)sequence->world_size == 0;
}

cddp_share cddpi_sequence_piece(const struct cddpi_sequence *sequence, uint64_t number)
{
    cddp_share share = cddpi_sequence_share(sequence, number);
    uint64_t skipped = number % sequence->pieces * sequence->piece;

    skipped = skipped < share.count ? skipped : share.count;
    share.first += skipped;
    share.count -= skipped;
    share.count = share.count < sequence->piece ? share.count : sequence->piece;
    return share;
}

bool cddpi_sequence_ends_batch(const struct cddpi_sequence *sequence, uint64_t number)
{
    return number + 1 == sequence->count || (number + 1) % sequence->pieces == 0;
}
