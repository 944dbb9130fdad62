/* step_status.c - owns the small exchange that ends each synchronised step. In the same step every
 * rank learns whether all ranks took part, which one was late, and what failed on other ranks.
 *
 * It also owns uneven inputs: what a rank does after its last step while other ranks still have
 * steps. It takes part in their steps, with weight 0 or with zeros, until the step statuses say
 * that no rank has steps left. */
#include "base/clock.h"
#include "base/error.h"
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
    if (ddp->backward.follows) {
        flags |= CDDPI_STEP_FOLLOWS;
    }
    return flags | (uint32_t)ddp->backward.step.kind << CDDPI_STEP_KIND_SHIFT;
}

cddp_status cddpi_step_status_start(cddp_ddp *ddp)
{
    struct cddpi_step_status *own = &ddp->end.statuses[ddp->rank];
    cddp_status status;

    own->status = ddp->failure.pending.status;
    own->flags = own_flags(ddp);
    own->number = ddp->backward.step.number;
    own->micro_batches = ddp->backward.step.micro_batches;
    own->samples = ddp->backward.step.samples;
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
    return status == CDDP_OK ? CDDP_OK
                             : cddpi_fail_prefix(status, "ddp: end of step %llu",
                                                 (unsigned long long)own->number);
}

static const char *kind_name(cddp_step_kind kind)
{
    switch (kind) {
    case CDDP_STEP_BY_SAMPLES:
        return "CDDP_STEP_BY_SAMPLES";
    case CDDP_STEP_BY_RANKS:
        return "CDDP_STEP_BY_RANKS";
    case CDDP_STEP_SUM:
        return "CDDP_STEP_SUM";
    case CDDP_STEP_BY_MICRO_BATCHES:
        return "CDDP_STEP_BY_MICRO_BATCHES";
    case CDDP_STEP_KIND_MAX_ENUM_:
        break;
    }
    return "no kind";
}

/* Compare what ranks @p a and @p b have begun. A rank that follows has only guessed the number. */
static cddp_status compare_steps(const cddp_ddp *ddp, int a, int b)
{
    const struct cddpi_step_status *one = &ddp->end.statuses[a];
    const struct cddpi_step_status *other = &ddp->end.statuses[b];
    bool follows = ((one->flags | other->flags) & CDDPI_STEP_FOLLOWS) != 0;

    if (!follows && one->number != other->number) {
        return cddpi_fail(CDDP_ERR_MISMATCH,
                          "ranks disagree about the step: rank %d has begun step %llu, rank %d "
                          "step %llu",
                          a, (unsigned long long)one->number, b, (unsigned long long)other->number);
    }
    if (!follows && one->micro_batches != other->micro_batches) {
        return cddpi_fail(CDDP_ERR_MISMATCH,
                          "ranks disagree about step %llu: rank %d has begun it with %llu "
                          "micro-batches, rank %d with %llu",
                          (unsigned long long)one->number, a,
                          (unsigned long long)one->micro_batches, b,
                          (unsigned long long)other->micro_batches);
    }
    if (cddpi_step_kind_of(one) != cddpi_step_kind_of(other)) {
        return cddpi_fail(
            CDDP_ERR_MISMATCH,
            "ranks disagree about step %llu: rank %d has begun it as %s, rank %d as "
            "%s%s",
            (unsigned long long)ddp->backward.step.number, a, kind_name(cddpi_step_kind_of(one)), b,
            kind_name(cddpi_step_kind_of(other)), follows ? " (see cddp_ddp_follow())" : "");
    }
    return CDDP_OK;
}

/* Compare the steps of all ranks, since not every bucket's reduction does. */
static cddp_status check_steps(const cddp_ddp *ddp)
{
    int first = 0; /* the first rank that has a backward of its own */

    while (first + 1 < ddp->world_size &&
           (ddp->end.statuses[first].flags & CDDPI_STEP_FOLLOWS) != 0) {
        first++;
    }
    for (int rank = 0; rank < ddp->world_size; rank++) {
        CDDPI_TRY(compare_steps(ddp, first, rank));
    }
    return CDDP_OK;
}

static cddp_status check_samples(const cddp_ddp *ddp)
{
    bool any = ddp->backward.step.kind != CDDP_STEP_BY_SAMPLES || ddp->end.all_follow;

    for (int rank = 0; rank < ddp->world_size; rank++) {
        any = any || ddp->end.statuses[rank].samples != 0;
    }
    return any ? CDDP_OK
               : cddpi_fail(CDDP_ERR_STATE,
                            "step %llu has 0 samples on every rank: nothing was contributed, so "
                            "there is no mean (see cddp_step.samples)",
                            (unsigned long long)ddp->backward.step.number);
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

/* Learn whether any rank had a backward of its own, and the number of its step. */
static void read_followers(cddp_ddp *ddp)
{
    ddp->end.all_follow = true;
    for (int rank = 0; rank < ddp->world_size; rank++) {
        const struct cddpi_step_status *said = &ddp->end.statuses[rank];
        bool follows = (said->flags & CDDPI_STEP_FOLLOWS) != 0;

        ddp->end.all_follow = ddp->end.all_follow && follows;
        if (ddp->backward.follows && !follows) {
            ddp->backward.step.number = said->number;
        }
    }
}

cddp_status cddpi_step_status_finish(cddp_ddp *ddp)
{
    cddp_work *work = ddp->end.status_work;
    cddp_status status = work != NULL ? cddp_work_wait(work) : CDDP_OK;

    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: end of step %llu",
                                 (unsigned long long)ddp->backward.step.number);
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
    read_followers(ddp);
    status = check_steps(ddp);
    if (status == CDDP_OK) {
        status = check_samples(ddp);
    }
    if (status != CDDP_OK) {
        ddp->failure.reported = true;
        return status;
    }
    return check_status(ddp);
}
