/* step_status.c - owns the small exchange that ends each synchronised step. In the same step every
 * rank learns whether all ranks took part, which one was late, and what failed on other ranks.
 *
 * It also owns uneven inputs: what a rank does after its last step while other ranks still have
 * steps. It takes part in their steps, with weight 0 or with zeros, until the step statuses say
 * that no rank has steps left. */
#include "base/clock.h"
#include "base/error.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"
#include "group/join/group_agree.h"

enum { MOST_REASONS = 3 };

static uint32_t own_flags(const cddp_ddp *ddp)
{
    uint32_t flags = 0;

    for (size_t s = 0; s < ddp->slot_count; s++) {
        if (ddp->slots[s].zero_filled) {
            flags |= CDDPI_STEP_ZERO_FILLED;
        }
    }
    if (ddp->backward.arrival_count == ddp->slot_count) {
        flags |= CDDPI_STEP_ORDER_KNOWN;
    }
    if (ddp->planning.may_move) {
        flags |= CDDPI_STEP_MAY_MOVE;
    }
    if (ddp->backward.step.sum != 0) {
        flags |= CDDPI_STEP_SUM;
    }
    if (ddp->backward.joined) {
        flags |= CDDPI_STEP_JOINED;
    }
    return flags;
}

cddp_status cddpi_step_status_start(cddp_ddp *ddp)
{
    struct cddpi_step_status *own = &ddp->end.statuses[ddp->rank];
    cddp_status status;

    own->status = ddp->failure.pending.status;
    own->flags = own_flags(ddp);
    own->backward = ddp->backward.number;
    own->weight = ddp->backward.step.weight;
    if (cddpi_device_is_async(ddp->device)) {
        own->arrival_ns = -(int64_t)ddp->stats.exposed_ns;
        own->wait_ns = (int64_t)ddp->end.times_known;
    } else {
        own->arrival_ns = ddp->backward.arrival_ns - ddp->end.clock_origin_ns;
        own->wait_ns = ddp->backward.wait_ns - ddp->end.clock_origin_ns;
    }
    if (ddp->in_place &&
        !cddpi_device_is_async(ddp->device)) { /* a single rank has no one to exchange with */
        status = cddpi_group_usable(ddp->group);
    } else {
        status = cddp_all_gather(ddp->group, own, ddp->end.statuses, sizeof *own, CDDP_U8,
                                 &ddp->end.status_work);
    }
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "ddp: end of the step");
}

/* Compare the numbers of the ranks' backward passes: if a rank skipped or added a no_sync backward,
 * its step would be reduced with a different step of the other ranks. */
static cddp_status check_backward(const cddp_ddp *ddp)
{
    int first = -1; /* the first rank that has a backward of its own */

    for (int rank = 0; rank < ddp->world_size; rank++) {
        if ((ddp->end.statuses[rank].flags & CDDPI_STEP_JOINED) != 0) {
            continue;
        }
        first = first < 0 ? rank : first;
        if (ddp->end.statuses[rank].backward != ddp->end.statuses[first].backward) {
            return cddpi_fail(CDDP_ERR_MISMATCH,
                              "ranks disagree about no_sync: rank %d synchronised its backward "
                              "%llu, rank %d its backward %llu",
                              first, (unsigned long long)ddp->end.statuses[first].backward, rank,
                              (unsigned long long)ddp->end.statuses[rank].backward);
        }
    }
    return CDDP_OK;
}

/* Compare how the ranks weight the step, since not every bucket's reduction compares that. */
static cddp_status check_weights(const cddp_ddp *ddp)
{
    uint32_t sum = ddp->end.statuses[0].flags & CDDPI_STEP_SUM;
    bool any = sum != 0 || ddp->end.statuses[0].weight != 0;

    for (int rank = 1; rank < ddp->world_size; rank++) {
        if ((ddp->end.statuses[rank].flags & CDDPI_STEP_SUM) != sum) {
            return cddpi_fail(CDDP_ERR_MISMATCH,
                              "ranks disagree about backward %llu: rank %d adds gradients up, rank "
                              "%d takes their mean",
                              (unsigned long long)ddp->backward.number, sum != 0 ? 0 : rank,
                              sum != 0 ? rank : 0);
        }
        if (sum != 0) {
            continue;
        }
        any = any || ddp->end.statuses[rank].weight != 0;
        if ((ddp->end.statuses[rank].weight < 0) != (ddp->end.statuses[0].weight < 0)) {
            return cddpi_fail(CDDP_ERR_MISMATCH,
                              "ranks disagree about the weight of backward %llu: it is %g on rank "
                              "0, %g on rank %d",
                              (unsigned long long)ddp->backward.number, ddp->end.statuses[0].weight,
                              ddp->end.statuses[rank].weight, rank);
        }
    }
    if (!any && !ddp->end.all_joined) {
        return cddpi_fail(CDDP_ERR_STATE,
                          "the weight of backward %llu is 0 on every rank: nothing was "
                          "contributed, so there is no mean",
                          (unsigned long long)ddp->backward.number);
    }
    return CDDP_OK;
}

/* If some rank has failed, exchange the failures. Steps without a failure save that exchange. */
static cddp_status check_status(cddp_ddp *ddp)
{
    bool failed = false;
    cddp_status status;

    for (int rank = 0; rank < ddp->world_size; rank++) {
        failed = failed || ddp->end.statuses[rank].status != CDDP_OK;
    }
    if (!failed) {
        return CDDP_OK;
    }
    status = cddpi_agree_on_failure(ddp->group, &ddp->failure.pending, MOST_REASONS);
    ddp->failure.reported = true;
    return status;
}

/* Find out how much of its wait this rank spent waiting for slower ranks. */
static void split_wait(cddp_ddp *ddp)
{
    const struct cddpi_step_status *own = &ddp->end.statuses[ddp->rank];
    const struct cddpi_step_status *slowest =
        &ddp->end.statuses[ddp->world_size > 1 ? ddp->stats.slowest_rank : 0];

    ddp->end.peers_ns = 0;
    if (!cddpi_device_is_async(ddp->device)) {
        for (int rank = 0; rank < ddp->world_size; rank++) {
            int64_t later = ddp->end.statuses[rank].wait_ns - own->wait_ns;

            ddp->end.peers_ns = later > ddp->end.peers_ns ? later : ddp->end.peers_ns;
        }
        return;
    }
    for (int rank = 0; rank < ddp->world_size; rank++) {
        if (ddp->end.statuses[rank].wait_ns != own->wait_ns) {
            return; /* the ranks' latest known times are of different steps: not comparable */
        }
    }
    if ((uint64_t)own->wait_ns == ddp->end.split_steps) {
        return; /* the wait of that step was split before */
    }
    ddp->end.split_steps = (uint64_t)own->wait_ns;
    ddp->stats.transfer_ns = (uint64_t)-slowest->arrival_ns;
    ddp->stats.peer_wait_ns = (uint64_t)(slowest->arrival_ns - own->arrival_ns);
    ddp->stats.total_transfer_ns += ddp->stats.transfer_ns;
    ddp->stats.total_peer_wait_ns += ddp->stats.peer_wait_ns;
}

/* Learn whether any rank had a step of its own, and the number of its backward. */
static void read_joined(cddp_ddp *ddp)
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

cddp_status cddpi_step_status_finish(cddp_ddp *ddp)
{
    cddp_work *work = ddp->end.status_work;
    cddp_status status = work != NULL ? cddp_work_wait(work) : CDDP_OK;

    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: end of the step of backward %llu",
                                 (unsigned long long)ddp->backward.number);
    }
    cddp_work_destroy(work);
    ddp->end.status_work = NULL;
    ddp->stats.slowest_rank = ddp->world_size > 1 ? 0 : -1;
    for (int rank = 1; rank < ddp->world_size; rank++) {
        if (ddp->end.statuses[rank].arrival_ns >
            ddp->end.statuses[ddp->stats.slowest_rank].arrival_ns) {
            ddp->stats.slowest_rank = rank;
        }
    }
    split_wait(ddp);
    if (!ddp->one_machine) {
        ddp->end.clock_origin_ns = cddpi_now_ns();
    }
    status = check_backward(ddp);
    read_joined(ddp);
    if (status == CDDP_OK) {
        status = check_weights(ddp);
    }
    if (status != CDDP_OK) {
        ddp->failure.reported = true;
        return status;
    }
    return check_status(ddp);
}

/* The kind of step (mean, weighted, sum) that the other ranks have, as far as this rank knows. */
static cddp_step step_of_others(const cddp_ddp *ddp)
{
    bool begun = ddp->backward.step.sum != 0 || ddp->backward.step.weight >= 0;
    cddp_step step = begun ? ddp->backward.step : ddp->end.last_step;

    step.no_sync = false;
    step.weight = step.weight >= 0 ? 0 : step.weight;
    return step;
}

cddp_status cddp_ddp_follow(cddp_ddp *ddp, bool *out_all)
{
    cddp_status status;

    CDDPI_ENTER_DDP(ddp, "ddp_follow");
    CDDPI_TRY(out_all != NULL ? cddpi_ddp_usable(ddp)
                              : cddpi_fail(CDDP_ERR_ARGUMENT, "ddp_follow: out_all is NULL"));
    if (ddp->backward.begun) {
        return cddpi_fail(CDDP_ERR_INCOMPLETE, "ddp: follow in the middle of backward %llu",
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
