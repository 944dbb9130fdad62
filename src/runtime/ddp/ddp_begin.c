/* ddp_begin.c - owns which step a backward belongs to: cddp_ddp_begin(), a step's micro-batches,
 * and the ranks that follow the step of the others. */
#include "base/error.h"
#include "base/types.h"
#include "ddp/copies.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"
#include "ddp/micro_sums.h"
#include "group/device/group_device.h"

#include <cddp/sampler.h>
#include <stdio.h>

#define WRITE_THIS                                                                                 \
    "cddp_ddp_begin(ddp, &(cddp_step){CDDP_SIZED(cddp_step), .number = step, .samples = count})"

cddp_status cddpi_ddp_not_open(const char *call)
{
    return cddpi_fail(CDDP_ERR_STATE,
                      "%s: the backward was not begun; before its first gradient is ready, "
                      "write " WRITE_THIS,
                      call);
}

static cddp_status refuse_sum(const cddp_step *step, const char *why)
{
    return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                      "ddp_begin: step %llu is a sum over micro-batches, but %s",
                      (unsigned long long)step->number, why);
}

/* A sum over micro-batches: check what would make its bits depend on the number of ranks. */
static cddp_status check_sum(const cddp_ddp *ddp, const cddp_step *step)
{
    bool is_async = cddpi_device_is_async(ddp->device);
    char why[256];

    if (step->micro_batches == 0) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "ddp_begin: step %llu is a sum over micro-batches, but micro_batches is 0",
            (unsigned long long)step->number);
    }
    if (ddp->hook != cddp_hook_identity) {
        return refuse_sum(step, "with a hook, bits depend on the number of ranks");
    }
    if (is_async && !ddp->group->device->deterministic) {
        return refuse_sum(step, "the group is not deterministic, so bits depend on the number of "
                                "ranks");
    }
    if (cddpi_group_is_capturing(ddp->group)) {
        return refuse_sum(step, "a capture would repeat one micro-batch");
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        const struct cddpi_param *param = &ddp->params[ddp->slots[s].param];

        if (param->type != CDDP_F32 && (param->type != CDDP_F64 || is_async)) {
            snprintf(why, sizeof why, "%.200s is of type %s: partial sums would be rounded",
                     param->name, cddp_type_name(param->type));
            return refuse_sum(step, why);
        }
    }
    return CDDP_OK;
}

/* Read the step of the caller, and give micro_batches their number if the step is not divided. */
static cddp_status read_step(const cddp_ddp *ddp, const cddp_step *step, cddp_step *out)
{
    if (step == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp_begin: the step is NULL; write " WRITE_THIS);
    }
    CDDPI_TRY(cddpi_struct_read("step", "CDDP_STEP_INIT", step, sizeof *out, out));
    if ((unsigned)out->kind > CDDP_STEP_BY_MICRO_BATCHES) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp_begin: step %llu: there is no kind %d",
                          (unsigned long long)out->number, (int)out->kind);
    }
    CDDPI_TRY(cddpi_reserved_check("step", &out->reserved, sizeof out->reserved));
    if (out->micro_batches == 0 && out->micro_batch != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp_begin: step %llu: micro_batch is %llu, but micro_batches 0",
                          (unsigned long long)out->number, (unsigned long long)out->micro_batch);
    }
    if (out->kind == CDDP_STEP_BY_MICRO_BATCHES) {
        return check_sum(ddp, out);
    }
    if (out->micro_batches == 0) {
        out->micro_batches = (uint64_t)ddp->world_size;
        out->micro_batch = (uint64_t)ddp->rank;
    }
    return CDDP_OK;
}

/* Whether @p step goes on with the step that the last backward belonged to. */
static bool is_same(const cddp_step *step, const cddp_step *last)
{
    return step->number == last->number && step->kind == last->kind &&
           step->micro_batches == last->micro_batches;
}

/* Check that @p step comes next on this rank. @p out_last: it is the rank's last micro-batch. */
static cddp_status place(const cddp_ddp *ddp, const cddp_step *step, bool *out_last)
{
    const struct cddpi_ddp_backward *backward = &ddp->backward;
    cddp_share share = cddp_share_of(0, step->micro_batches, ddp->rank, ddp->world_size);

    if (backward->done > 0 && !is_same(step, &backward->step)) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "ddp_begin: step %llu (kind %d, %llu micro-batches) in the middle of step "
            "%llu (kind %d, %llu micro-batches), of which this rank has begun %llu",
            (unsigned long long)step->number, (int)step->kind,
            (unsigned long long)step->micro_batches, (unsigned long long)backward->step.number,
            (int)backward->step.kind, (unsigned long long)backward->step.micro_batches,
            (unsigned long long)backward->done);
    }
    if (share.count == 0 && step->kind == CDDP_STEP_BY_MICRO_BATCHES) {
        *out_last = true;
        return CDDP_OK;
    }
    if (share.count == 0) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "ddp_begin: step %llu has %llu micro-batches for %d ranks, so rank %d has "
            "none: it calls cddp_ddp_follow() instead",
            (unsigned long long)step->number, (unsigned long long)step->micro_batches,
            ddp->world_size, ddp->rank);
    }
    if (step->micro_batch != share.first + backward->done) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp_begin: step %llu: micro-batch %llu of %llu, but rank %d has %llu to "
                          "%llu (see cddp_share_of()), and %llu comes next",
                          (unsigned long long)step->number, (unsigned long long)step->micro_batch,
                          (unsigned long long)step->micro_batches, ddp->rank,
                          (unsigned long long)share.first,
                          (unsigned long long)(share.first + share.count - 1),
                          (unsigned long long)(share.first + backward->done));
    }
    *out_last = backward->done + 1 == share.count;
    return CDDP_OK;
}

/* Without memory for sums the step cannot go on, and the other ranks would wait for this one. */
static cddp_status begin_sum(cddp_ddp *ddp)
{
    cddp_status status = cddpi_micro_begin(ddp);

    return status == CDDP_OK ? CDDP_OK : cddpi_ddp_break(ddp, cddpi_ddp_abort(ddp->group, status));
}

cddp_status cddpi_ddp_open(cddp_ddp *ddp, const cddp_step *step)
{
    cddp_step read = CDDP_STEP_INIT;
    bool last = false;

    CDDPI_TRY(cddpi_ddp_usable(ddp));
    CDDPI_TRY(cddpi_ddp_between(ddp, "begin"));
    CDDPI_TRY(read_step(ddp, step, &read));
    CDDPI_TRY(place(ddp, &read, &last));
    ddp->backward.step = read;
    ddp->backward.accumulates = !last;
    ddp->backward.opened = true;
    return cddpi_is_by_micro_batches(ddp) ? begin_sum(ddp) : CDDP_OK;
}

void cddpi_ddp_close(cddp_ddp *ddp)
{
    ddp->backward.done = ddp->backward.accumulates ? ddp->backward.done + 1 : 0;
}

cddp_status cddp_ddp_begin(cddp_ddp *ddp, const cddp_step *step)
{
    CDDPI_ENTER_DDP(ddp, "ddp_begin");
    CDDPI_TRY(cddpi_ddp_open(ddp, step));
    return ddp->shards != NULL ? cddpi_shard_finish(ddp) : CDDP_OK;
}

/* The step whose backward is for all of this rank's micro-batches, as its first one's would be. */
static cddp_status read_run(const cddp_ddp *ddp, const cddp_step *step, cddp_step *out)
{
    if (step->kind != CDDP_STEP_BY_MICRO_BATCHES || ddp->backward.done > 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp_begin: step %llu: a run of micro-batches is a "
                          "whole step, and a sum over micro-batches",
                          (unsigned long long)step->number);
    }
    if (ddp->allow_unused) {
        return refuse_sum(step, "with allow_unused, a parameter's next gradient may be of any of "
                                "the run's micro-batches");
    }
    *out = *step;
    out->micro_batch = cddp_share_of(0, step->micro_batches, ddp->rank, ddp->world_size).first;
    return CDDP_OK;
}

cddp_status cddpi_ddp_begin_run(cddp_ddp *ddp, const cddp_step *step)
{
    cddp_step first = CDDP_STEP_INIT;
    cddp_status status;

    CDDPI_ENTER_DDP(ddp, "ddp_begin");
    CDDPI_TRY(read_run(ddp, step, &first));
    CDDPI_TRY(cddpi_ddp_open(ddp, &first));
    ddp->backward.accumulates = false;
    status = cddpi_micro_begin_run(ddp);
    if (status != CDDP_OK) {
        return cddpi_ddp_break(ddp, cddpi_ddp_abort(ddp->group, status));
    }
    return ddp->shards != NULL ? cddpi_shard_finish(ddp) : CDDP_OK;
}

/* The step of the other ranks, as far as this rank knows: of the kind that was begun or came last.
 * Its number is a guess for errors, until the step status tells it. */
static cddp_step step_of_others(const cddp_ddp *ddp)
{
    cddp_step step = ddp->backward.step;

    step.number += !ddp->backward.opened && ddp->stats.steps > 0;
    step.samples = 0;
    return step;
}

cddp_status cddp_ddp_follow(cddp_ddp *ddp, bool *out_all)
{
    cddp_status status;

    CDDPI_ENTER_DDP(ddp, "ddp_follow");
    CDDPI_TRY(out_all != NULL ? cddpi_ddp_usable(ddp)
                              : cddpi_fail(CDDP_ERR_ARGUMENT, "ddp_follow: out_all is NULL"));
    CDDPI_TRY(cddpi_ddp_between(ddp, "follow"));
    if (cddpi_is_by_micro_batches(ddp)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp_follow: step %llu is a sum over micro-batches: a rank without any "
                          "begins it and waits",
                          (unsigned long long)ddp->backward.step.number);
    }
    if (ddp->backward.done > 0) {
        return cddpi_fail(CDDP_ERR_INCOMPLETE,
                          "ddp: follow in the middle of step %llu: this rank has begun %llu of its "
                          "micro-batches; begin the others, which need no backward",
                          (unsigned long long)ddp->backward.step.number,
                          (unsigned long long)ddp->backward.done);
    }
    if (ddp->shards != NULL) {
        CDDPI_TRY(cddpi_shard_finish(ddp));
    }
    ddp->backward.step = step_of_others(ddp);
    ddp->backward.accumulates = false;
    ddp->backward.follows = true;
    status = cddpi_ddp_wait(ddp);
    ddp->backward.follows = false;
    if (status == CDDP_OK) {
        *out_all = ddp->end.all_follow;
    }
    return status;
}
