/* uneven.c - owns what a rank does that is through before others are: it takes part in their steps,
 * as a rank of weight 0 or with zeros, and learns from the step statuses when nobody has one. */
#include "base/error.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"

/* The kind of step that the others have, as far as this rank knows. */
static cddp_step step_of_others(const cddp_ddp *ddp)
{
    bool begun = ddp->backward.step.sum != 0 || ddp->backward.step.weight >= 0;
    cddp_step step = begun ? ddp->backward.step : ddp->end.last_step;

    step.no_sync = false;
    step.weight = step.weight >= 0 ? 0 : step.weight;
    return step;
}

static cddp_status join(cddp_ddp *ddp, bool *out_all)
{
    cddp_status status = out_all != NULL
                             ? cddpi_ddp_usable(ddp)
                             : cddpi_fail(CDDP_ERR_ARGUMENT, "ddp_join: out_all is NULL");

    if (status != CDDP_OK) {
        return status;
    }
    if (ddp->backward.begun) {
        return cddpi_fail(CDDP_ERR_STATE, "ddp: join in the middle of backward %llu",
                          (unsigned long long)ddp->backward.number);
    }
    if (ddp->shards != NULL) {
        status = cddpi_shard_finish(ddp);
        if (status != CDDP_OK) {
            return status;
        }
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        ddp->slots[s].used = false; /* what no_sync has accumulated is left out */
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
    cddp_status status = cddpi_ddp_enter(ddp, "ddp_join");

    return status == CDDP_OK ? cddpi_ddp_leave(ddp, join(ddp, out_all)) : status;
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

        /* the others' number, or once all are through one that nobody has passed */
        if (ddp->end.all_joined ? said->backward > ddp->backward.number
                                : (said->flags & CDDPI_STEP_JOINED) == 0) {
            ddp->backward.number = said->backward;
        }
    }
}
