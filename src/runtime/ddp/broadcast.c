/* broadcast.c - owns how one rank's parameters and buffers reach all ranks. It starts all
 * broadcasts before it waits for any, since most buffers are small. */
#include "base/error.h"
#include "ddp/ddp_create.h"
#include "ddp/ddp_shard.h"
#include "group/engine/handles.h"
#include "group/group.h"

/* Start a broadcast of each tensor. @p out_last owns the handles of all others and is done after
 * them. */
static cddp_status start_all(cddp_group *group, const char *what, const struct cddpi_param *tensors,
                             size_t count, int root, cddp_work **out_last)
{
    for (size_t i = 0; i < count; i++) {
        cddp_work *work = NULL;
        cddp_status status = cddp_broadcast(group, tensors[i].data, tensors[i].count,
                                            tensors[i].type, root, &work);

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "ddp: broadcast of %s %zu (%.200s)", what, i,
                                     tensors[i].name);
        }
        work->before = *out_last;
        *out_last = work;
    }
    return CDDP_OK;
}

cddp_status cddpi_ddp_broadcast(cddp_group *group, const char *what,
                                const struct cddpi_param *tensors, size_t count, int root)
{
    struct cddpi_failure failure;
    cddp_work *last = NULL;
    cddp_status status = start_all(group, what, tensors, count, root, &last);

    if (status == CDDP_OK && last != NULL) {
        status = cddp_work_wait(last, 0);
        if (status != CDDP_OK) {
            (void)cddpi_fail_prefix(status, "ddp: broadcast of %zu %ss", count, what);
        }
    } else if (status != CDDP_OK) {
        failure = *cddpi_last_failure();
        cddp_group_abort(group, cddp_last_error()); /* other ranks wait for the rest */
        (void)cddpi_fail_again(status, &failure);
    }
    failure = *cddpi_last_failure();
    cddp_work_destroy(last);
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_again(status, &failure);
}

static cddp_status check_broadcast(const cddp_ddp *ddp, int root)
{
    CDDPI_TRY(cddpi_ddp_usable(ddp));
    if (root < 0 || root >= ddp->world_size) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: broadcast: rank %d is not in the group", root);
    }
    if (ddp->backward.begun) {
        return cddpi_fail(CDDP_ERR_STATE, "ddp: broadcast in the middle of backward %llu",
                          (unsigned long long)ddp->backward.number);
    }
    return CDDP_OK;
}

static cddp_status broadcast(cddp_ddp *ddp, int root, bool params, bool buffers)
{
    cddp_status status = CDDP_OK;

    CDDPI_TRY(check_broadcast(ddp, root));
    if (params && ddp->shards != NULL) {
        CDDPI_TRY_GOTO(broken, status, cddpi_shard_finish(ddp));
    }
    if (params) {
        CDDPI_TRY_GOTO(
            broken, status,
            cddpi_ddp_broadcast(ddp->group, "parameter", ddp->params, ddp->param_count, root));
    }
    if (buffers) {
        CDDPI_TRY_GOTO(
            broken, status,
            cddpi_ddp_broadcast(ddp->group, "buffer", ddp->buffers, ddp->buffer_count, root));
    }
    return CDDP_OK;

broken:
    return cddpi_ddp_break(ddp, status);
}

cddp_status cddp_ddp_broadcast(cddp_ddp *ddp, int root, bool params, bool buffers)
{
    CDDPI_TRY(cddpi_ddp_enter(ddp, "ddp_broadcast"));
    return cddpi_ddp_leave(ddp, broadcast(ddp, root, params, buffers));
}
