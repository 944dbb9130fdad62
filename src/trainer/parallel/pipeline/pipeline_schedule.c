/* pipeline_schedule.c - owns the order of a pipeline's passes. */
#include "parallel/pipeline/pipeline_schedule.h"

#include "base/alloc.h"
#include "base/error.h"

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* The k-th pass of kind @p pass on any rank. Micro-batches go through a chunk in groups as large as
 * the number of ranks, and each group goes through one chunk after the other. */
static struct cddpi_pipeline_action nth(const struct cddpi_pipeline_shape *shape,
                                        enum cddpi_pipeline_pass pass, int k)
{
    int round = shape->ranks * shape->chunks;
    int chunk = k % round / shape->ranks;

    if (shape->chunks == 1) {
        return (struct cddpi_pipeline_action){.pass = pass, .micro_batch = k};
    }
    return (struct cddpi_pipeline_action){
        .pass = pass,
        .chunk = pass == CDDPI_PASS_FORWARD ? chunk : shape->chunks - 1 - chunk,
        .micro_batch = k / round * shape->ranks + k % shape->ranks};
}

/* The number of forwards before the first backward. */
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

static cddp_status check_shape(const struct cddpi_pipeline_shape *shape)
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

/* A micro-batch occupies a place of one kind from pass `from` to pass `to`. */
struct hold {
    enum cddpi_pipeline_pass from, to;
    int *(*of)(struct cddpi_pipeline_action *action);
};

static int *slot_of(struct cddpi_pipeline_action *action)
{
    return &action->slot;
}

static int *kept_of(struct cddpi_pipeline_action *action)
{
    return &action->kept;
}

static int *grads_of(struct cddpi_pipeline_action *action)
{
    return &action->grads;
}

/* Give each micro-batch of chunk @p chunk the lowest free place.
 * @param holds  Per place: its micro-batch + 1; 0: free. One entry per micro-batch. */
static void place_chunk(struct cddpi_pipeline_action *actions, size_t count, int chunk,
                        const struct hold *hold, int *holds)
{
    for (size_t i = 0; i < count; i++) {
        struct cddpi_pipeline_action *action = &actions[i];
        int wanted = action->pass == hold->from ? 0 : action->micro_batch + 1;
        int place = 0;

        if (action->chunk != chunk || action->pass < hold->from || action->pass > hold->to) {
            continue;
        }
        while (holds[place] != wanted) {
            place++;
        }
        holds[place] = action->pass == hold->to ? 0 : action->micro_batch + 1;
        *hold->of(action) = place;
    }
}

static cddp_status place_action(struct cddpi_pipeline_action *actions, size_t count,
                                const struct cddpi_pipeline_shape *shape)
{
    static const struct hold holding[] = {
        {CDDPI_PASS_FORWARD, CDDPI_PASS_BACKWARD, slot_of},
        {CDDPI_PASS_FORWARD, CDDPI_PASS_WEIGHTS, kept_of},
        {CDDPI_PASS_BACKWARD, CDDPI_PASS_WEIGHTS, grads_of},
    };
    bool split = shape->schedule == CDDPI_PIPELINE_ZERO_BUBBLE;
    int *holds = cddpi_zalloc_array((size_t)shape->micro_batches, sizeof *holds);

    CDDPI_TRY_MEMORY(holds != NULL, "pipeline: no memory for %d micro-batches",
                     shape->micro_batches);
    for (int chunk = 0; chunk < shape->chunks; chunk++) {
        for (int k = 0; k < (split ? 3 : 1); k++) { /* all places are free again after each */
            place_chunk(actions, count, chunk, &holding[k], holds);
        }
    }
    for (size_t i = 0; !split && i < count; i++) {
        actions[i].kept = actions[i].grads = actions[i].slot;
    }
    cddpi_free(holds);
    return CDDP_OK;
}

/* After each backward comes a forward, if any is left. In zero_bubble, rank s computes in between
 * the gradients of parameters of the micro-batch that is s earlier. */
static size_t order(const struct cddpi_pipeline_shape *shape, int rank,
                    struct cddpi_pipeline_action *out)
{
    bool split = shape->schedule == CDDPI_PIPELINE_ZERO_BUBBLE;
    int all = shape->chunks * shape->micro_batches;
    int first = warmup(shape, rank);
    int weights = 0;
    size_t count = 0;

    for (int k = 0; k < first; k++) {
        out[count++] = nth(shape, CDDPI_PASS_FORWARD, k);
    }
    for (int k = 0; k < all; k++) {
        out[count++] = nth(shape, CDDPI_PASS_BACKWARD, k);
        if (split && k >= rank) {
            out[count++] = nth(shape, CDDPI_PASS_WEIGHTS, weights++);
        }
        if (first + k < all) {
            out[count++] = nth(shape, CDDPI_PASS_FORWARD, first + k);
        }
    }
    while (split && weights < all) {
        out[count++] = nth(shape, CDDPI_PASS_WEIGHTS, weights++);
    }
    return count;
}

cddp_status cddpi_pipeline_plan(const struct cddpi_pipeline_shape *shape, int rank,
                                struct cddpi_pipeline_action **out, size_t *out_count)
{
    struct cddpi_pipeline_action *actions;
    size_t most;
    size_t count;
    cddp_status status;

    CDDPI_TRY(check_shape(shape));
    most = (shape->schedule == CDDPI_PIPELINE_ZERO_BUBBLE ? 3 : 2) * (size_t)shape->chunks *
           (size_t)shape->micro_batches;
    actions = cddpi_zalloc_array(most, sizeof *actions);
    CDDPI_TRY_MEMORY(actions != NULL, "pipeline: no memory for %zu actions", most);
    count = order(shape, rank, actions);
    status = place_action(actions, count, shape);
    if (status != CDDP_OK) {
        cddpi_free(actions);
        return status;
    }
    *out = actions;
    *out_count = count;
    return CDDP_OK;
}

int cddpi_pipeline_slots(const struct cddpi_pipeline_action *actions, size_t count, int chunk,
                         int *out_kept)
{
    int slots = 0;

    *out_kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (actions[i].chunk == chunk) {
            slots = actions[i].slot >= slots ? actions[i].slot + 1 : slots;
            *out_kept = actions[i].kept >= *out_kept ? actions[i].kept + 1 : *out_kept;
        }
    }
    return slots;
}

/* Every pass takes time 1. If there are fewer micro-batches than ranks, a micro-batch's way to the
 * last rank and back takes longer than the work on the other micro-batches can fill. */
static double zero_bubble(const struct cddpi_pipeline_shape *shape)
{
    int works = 3 * shape->micro_batches;
    int missing = shape->ranks > shape->micro_batches ? shape->ranks - shape->micro_batches : 0;
    int waits = shape->ranks - 1 + missing;

    return (double)waits / (waits + works);
}

double cddpi_pipeline_bubble(const struct cddpi_pipeline_shape *shape)
{
    double waits = (double)(shape->ranks - 1) / shape->chunks;

    return shape->schedule == CDDPI_PIPELINE_ZERO_BUBBLE ? zero_bubble(shape)
                                                         : waits / (waits + shape->micro_batches);
}
