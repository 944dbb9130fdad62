/* uneven.c - owns uneven inputs: what a rank does after its last step while other ranks still have
 * steps. It takes part in their steps, with weight 0 or with zeros, until the step statuses say
 * that no rank has steps left. */
#include "base/error.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"

/* The kind of step (mean, weighted, sum) that the other ranks have, as far as this rank knows. */
static cddp_step step_of_others(const cddp_ddp *ddp)
{
    bool begun = ddp->backward.step.sum != 0 || ddp->backward.step.weight >= 0;
    cddp_step step = begun ? ddp->backward.step : ddp->end.last_step;

    step.no_sync = false;
    step.weight = step.weight >= 0 ? 0 : step.weight;
    return step;
}

static cddp_status join_step(cddp_ddp *ddp, bool *out_all)
{
    cddp_status status;

    CDDPI_TRY(out_all != NULL ? cddpi_ddp_usable(ddp)
                              : cddpi_fail(CDDP_ERR_ARGUMENT, "ddp_join: out_all is NULL"));
    if (ddp->backward.begun) {
        return cddpi_fail(CDDP_ERR_STATE, "ddp: join in the middle of backward %llu",
                          (unsigned long long)ddp->backward.number);
    }
    if (ddp->shards != NULL) {
        CDDPI_TRY(cddpi_shard_finish(ddp));
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        ddp->slots[s].used = false; /* gradients accumulated under no_sync are left out */
    }
    ddp->backward.step = step_of_others(ddp);
    ddp->backward.joined = true;
    status = cddpi_ddp_wait(ddp);
    ddp->backward.joined = false;
    if (status == CDDP_OK) {
        *out_all = ddp->end.all_joined;
    }
    return status;
}

cddp_status cddp_ddp_join(cddp_ddp *ddp, bool *out_all)
{
    CDDPI_TRY(cddpi_ddp_enter(ddp, "ddp_join"));
    return cddpi_ddp_leave(ddp, join_step(ddp, out_all));
}

void cddpi_ddp_read_joined(cddp_ddp *ddp)
{
    ddp->end.all_joined = true;
    for (int rank = 0; rank < ddp->world_size; rank++) {
        const struct cddpi_step_status *said = &ddp->end.statuses[rank];

        ddp->end.all_joined = ddp->end.all_joined && (said->flags & CDDPI_STEP_JOINED) != 0;
    }
    for (int rank = 0; rank < ddp->world_size && ddp->backward.joined; rank++) {
        const struct cddpi_step_status *said = &ddp->end.statuses[rank];

        /* take the number of the ranks that have a step; if no rank has one, the highest number */
        if (ddp->end.all_joined ? said->backward > ddp->backward.number
                                : (said->flags & CDDPI_STEP_JOINED) == 0) {
            ddp->backward.number = said->backward;
        }
    }
}
