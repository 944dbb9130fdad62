/* plan_threads.c - owns the choice of the number of threads of each op in an invariant model, whose
 * bits must not depend on $CDDP_THREADS.
 *
 * Our own loops and oneDNN's generated convolutions divide their outputs among threads, so each sum
 * is made by one thread in one order. Matrix products do not promise that: a library may divide a
 * sum, or choose another kernel for what is left to a thread. So they run on one thread, as they do
 * by default. */
#include "nn/plan/model_plan.h"

#include "base/error.h"
#include "base/hash.h"
#include "nn/cpu/dnnl.h"
#include "nn/cpu/threads.h"
#include "nn/model_state.h"

#include <string.h>

/* Plan the op again from the start, with @p threads threads. */
static cddp_status plan_with(struct cddpi_plan *plan, int index, size_t threads,
                             struct cddpi_plan_mark mark)
{
    const struct cddpi_op_kernels *kernels = cddpi_plan_op_of(plan, index)->kernels;
    struct cddpi_plan_op *op = &plan->ops[index];
    size_t team = cddpi_team_size();
    cddp_status status;

    if (kernels->unplan != NULL) {
        kernels->unplan(op->state);
    }
    memset(op->state, 0, kernels->state_bytes);
    cddpi_plan_rollback(plan, mark);
    op->one_thread = threads == 1;
    cddpi_team_resize(threads);
    status = kernels->plan(plan, index);
    cddpi_team_resize(team);
    return status;
}

/* What was planned since @p mark: a hash of the names of kernels and of the output's layout. */
static uint64_t hash_of_kernels(const struct cddpi_plan *plan, int index,
                                struct cddpi_plan_mark mark)
{
    int output = cddpi_plan_op_of(plan, index)->output;
    uint64_t hash = cddpi_hash_add(cddpi_hash_start, (uint64_t)plan->values[output].block);

    for (int i = mark.parts; i < plan->part_count; i++) {
        hash = cddpi_hash_text(hash, plan->parts[i].name);
    }
    return hash;
}

/* Whether all kernels planned since @p mark are generated ones, not products of matrices. */
static bool are_generated(const struct cddpi_plan *plan, struct cddpi_plan_mark mark)
{
    for (int i = mark.parts; i < plan->part_count; i++) {
        if (!cddpi_dnnl_is_generated(plan->parts[i].name)) {
            return false;
        }
    }
    return true;
}

cddp_status cddpi_plan_by_kernels(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op_kernels *kernels = cddpi_plan_op_of(plan, index)->kernels;
    struct cddpi_plan_mark mark = cddpi_plan_mark(plan);
    size_t team = cddpi_team_size();
    uint64_t alone;

    if (!plan->model->invariant || kernels->threads == CDDPI_THREADS_FREE || team == 1) {
        return kernels->plan(plan, index);
    }
    CDDPI_TRY(plan_with(plan, index, 1, mark));
    if (kernels->threads == CDDPI_THREADS_PRODUCTS || !are_generated(plan, mark)) {
        return CDDP_OK;
    }
    alone = hash_of_kernels(plan, index, mark);
    CDDPI_TRY(plan_with(plan, index, team, mark));
    return hash_of_kernels(plan, index, mark) == alone ? CDDP_OK : plan_with(plan, index, 1, mark);
}
