/* gather_state.c - owns gathering what a sharded optimizer has divided among ranks: parameters,
 * into the caller's memory, and the optimizer's state, of which each rank has its spans. */
#include "base/alloc.h"
#include "base/error.h"
#include "ddp/copies.h"
#include "ddp/ddp.h"

#include <cddp/exchange.h>

static cddp_status unshard_params(cddp_ddp *ddp)
{
    CDDPI_TRY(cddpi_ddp_usable(ddp));
    if (ddp->backward.begun) {
        return cddpi_fail(CDDP_ERR_STATE, "ddp: unshard in the middle of backward %llu",
                          (unsigned long long)ddp->backward.number);
    }
    CDDPI_TRY(cddpi_ddp_params_whole(ddp));
    for (size_t s = 0; s < ddp->slot_count && ddp->shards != NULL; s++) {
        const struct cddpi_param *param = &ddp->params[ddp->slots[s].param];

        CDDPI_TRY(cddpi_ddp_copy(ddp, param->home, param->data, ddp->slots[s].bytes));
    }
    return CDDP_OK;
}

cddp_status cddp_ddp_unshard(cddp_ddp *ddp)
{
    CDDPI_TRY(cddpi_ddp_enter(ddp, "ddp_unshard"));
    return cddpi_ddp_leave(ddp, unshard_params(ddp));
}

/* How many elements of parameter @p index each rank updates. */
static void count_spans(const cddp_ddp *ddp, size_t index, size_t *counts)
{
    for (int rank = 0; rank < ddp->world_size; rank++) {
        size_t count;
        const cddp_span *spans = cddp_ddp_spans(ddp, rank, &count);

        for (size_t s = 0; s < count; s++) {
            counts[rank] += spans[s].param == index ? spans[s].count : 0;
        }
    }
}

static cddp_status gather_state(cddp_ddp *ddp, size_t index, const void *own, cddp_type type,
                                void *out)
{
    size_t *counts;
    cddp_status status;

    if (ddp->shards == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: the optimizer is not sharded");
    }
    CDDPI_TRY(cddpi_ddp_usable(ddp));
    if (index >= ddp->param_count || ddp->params[index].slot == UINT32_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: parameter %zu is %s", index,
                          index < ddp->param_count ? "frozen" : "not registered");
    }
    if (out == NULL && ddp->params[index].count > 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: state of parameter %zu: out is NULL", index);
    }
    counts = cddpi_zalloc_array((size_t)ddp->world_size, sizeof *counts);
    if (counts == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory for %d counts", ddp->world_size);
        cddp_group_abort(ddp->group,
                         cddp_last_error()); /* the other ranks would wait in the gather */
        return status;
    }
    count_spans(ddp, index, counts);
    /* a parameter's spans are in the order of ranks, so the gathered state is in order */
    status = cddp_all_gatherv(ddp->group, own, ddp->params[index].count > 0 ? out : counts, counts,
                              type, NULL);
    cddpi_free(counts);
    return status == CDDP_OK ? CDDP_OK
                             : cddpi_fail_prefix(status, "ddp: state of parameter %zu (%.200s)",
                                                 index, ddp->params[index].name);
}

cddp_status cddp_ddp_gather_state(cddp_ddp *ddp, size_t index, const void *own, cddp_type type,
                                  void *out)
{
    CDDPI_TRY(cddpi_ddp_enter(ddp, "ddp_gather_state"));
    return cddpi_ddp_leave(ddp, gather_state(ddp, index, own, type, out));
}
