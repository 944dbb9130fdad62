/* sync_norm.c - owns normalisation over all ranks; refused until the process group is there. */
#include "base/error.h"
#include "nn/model_state.h"
#include "nn/ops/batch_norm.h"

static cddp_status refuse(void)
{
    return cddpi_fail(CDDP_ERR_UNAVAILABLE, "batch_norm with sync is not built in");
}

bool cddpi_sync_norm_wanted(const struct cddpi_model *model, const struct cddpi_op *op)
{
    return op->layer.sync && model->group != NULL;
}

cddp_status cddpi_sync_norm_plan(struct cddpi_plan *plan, int op, struct cddpi_sync_norm *norm)
{
    (void)plan;
    (void)op;
    (void)norm;
    return refuse();
}

cddp_status cddpi_sync_norm_forward(struct cddpi_run *run, const struct cddpi_sync_norm *norm)
{
    (void)run;
    (void)norm;
    return refuse();
}

cddp_status cddpi_sync_norm_backward(struct cddpi_run *run, const struct cddpi_sync_norm *norm)
{
    (void)run;
    (void)norm;
    return refuse();
}

cddp_status cddpi_sync_norm_idle_forward(struct cddpi_run *run)
{
    (void)run;
    return refuse();
}

cddp_status cddpi_sync_norm_idle_backward(struct cddpi_run *run)
{
    (void)run;
    return refuse();
}
