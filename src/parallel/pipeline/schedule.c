/* schedule.c - owns the order of a pipeline's forwards and backwards. */
#include "parallel/pipeline/schedule.h"

#include "base/alloc.h"
#include "base/error.h"

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* The k-th forward of every rank, or the k-th backward: groups of as many micro-batches as there
 * are ranks go through one chunk after the other. */
static struct cddpi_pipeline_action nth(const struct cddpi_pipeline_shape *shape, bool backward,
                                        int k)
{
    int round = shape->ranks * shape->chunks;
    int chunk = k % round / shape->ranks;

    if (shape->chunks == 1) {
        return (struct cddpi_pipeline_action){.backward = backward, .micro_batch = k};
    }
    return (struct cddpi_pipeline_action){.backward = backward,
                                          .chunk = backward ? shape->chunks - 1 - chunk : chunk,
                                          .micro_batch = k / round * shape->ranks +
                                                         k % shape->ranks};
}

/* How many forwards come before the first backward. */
static int warmup(const struct cddpi_pipeline_shape *shape, int rank)
{
    int all = shape->chunks * shape->micro_batches;
    int behind = shape->ranks - 1 - rank;

    if (shape->schedule == CDDPI_PIPELINE_GPIPE) {
        return all;
    }
    if (shape->chunks == 1) {
        return smaller(all, behind + 1);
    }
    return smaller(all, 2 * behind + (shape->chunks - 1) * shape->ranks + 1);
}

static cddp_status check(const struct cddpi_pipeline_shape *shape)
{
    if (shape->ranks < 1 || shape->chunks < 1 || shape->micro_batches < 1) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "pipeline: %d micro-batches through %d ranks of %d chunks are not "
                          "possible",
                          shape->micro_batches, shape->ranks, shape->chunks);
    }
    if (shape->chunks > 1 && shape->schedule != CDDPI_PIPELINE_INTERLEAVED) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "pipeline: only the schedule interleaved has several chunks a rank, here "
                          "%d",
                          shape->chunks);
    }
    if (shape->chunks > 1 && shape->micro_batches % shape->ranks != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "pipeline: interleaved takes micro-batches in multiples of its %d ranks, "
                          "not %d",
                          shape->ranks, shape->micro_batches);
    }
    return CDDP_OK;
}

/* Each micro-batch gets the lowest slot of its chunk that is free; most: of a chunk. */
static cddp_status place(struct cddpi_pipeline_action *actions, size_t count, int most)
{
    int *holds = cddpi_zalloc_array((size_t)most, sizeof *holds); /* micro-batch + 1 */
    int chunks = 0;

    if (holds == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d micro-batches", most);
    }
    for (size_t i = 0; i < count; i++) {
        chunks = actions[i].chunk >= chunks ? actions[i].chunk + 1 : chunks;
    }
    for (int chunk = 0; chunk < chunks; chunk++) {
        for (size_t i = 0; i < count; i++) {
            struct cddpi_pipeline_action *action = &actions[i];
            int wanted = action->backward ? action->micro_batch + 1 : 0;

            if (action->chunk != chunk) {
                continue;
            }
            action->slot = 0;
            while (holds[action->slot] != wanted) {
                action->slot++;
            }
            holds[action->slot] = action->backward ? 0 : action->micro_batch + 1;
        }
    }
    cddpi_free(holds);
    return CDDP_OK;
}

cddp_status cddpi_pipeline_plan(const struct cddpi_pipeline_shape *shape, int rank,
                                struct cddpi_pipeline_action **out, size_t *out_count)
{
    cddp_status status = check(shape);
    struct cddpi_pipeline_action *actions;
    int all = shape->chunks * shape->micro_batches;
    size_t count = 0;
    int first;

    if (status != CDDP_OK) {
        return status;
    }
    actions = cddpi_zalloc_array(2 * (size_t)all, sizeof *actions);
    if (actions == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d actions", 2 * all);
    }
    first = warmup(shape, rank);
    for (int k = 0; k < first; k++) {
        actions[count++] = nth(shape, false, k);
    }
    for (int k = 0; k < all; k++) {
        actions[count++] = nth(shape, true, k);
        if (first + k < all) {
            actions[count++] = nth(shape, false, first + k);
        }
    }
    status = place(actions, count, shape->micro_batches);
    if (status != CDDP_OK) {
        cddpi_free(actions);
        return status;
    }
    *out = actions;
    *out_count = count;
    return CDDP_OK;
}

int cddpi_pipeline_slots(const struct cddpi_pipeline_action *actions, size_t count, int chunk)
{
    int slots = 0;

    for (size_t i = 0; i < count; i++) {
        if (actions[i].chunk == chunk && actions[i].slot >= slots) {
            slots = actions[i].slot + 1;
        }
    }
    return slots;
}

double cddpi_pipeline_bubble(const struct cddpi_pipeline_shape *shape)
{
    double waits = (double)(shape->ranks - 1) / shape->chunks;

    return waits / (waits + shape->micro_batches);
}
