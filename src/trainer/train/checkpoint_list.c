/* checkpoint_list.c - owns what a checkpoint holds: the list of its tensors, and bringing them to
 * host memory and to rank 0. */
#include "base/alloc.h"
#include "base/error.h"
#include "ddp/copies.h"
#include "group/device/group_device.h"
#include "train/checkpoint.h"
#include "train/device/host_copy.h"
#include "train/engines/engine.h"

bool cddpi_checkpoint_has_scale(const struct cddpi_trainer *trainer)
{
    return trainer->config->train.precision == CDDPI_PRECISION_FP16;
}

void cddpi_checkpoint_release(struct cddpi_snapshot_params *all)
{
    cddpi_free((void *)(uintptr_t)all->model);
    cddpi_free((void *)(uintptr_t)all->optimizer);
}

cddp_status cddpi_checkpoint_add_optimizer(struct cddpi_snapshot_params *all,
                                           const cddp_param *tensors, size_t count)
{
    size_t before = all->optimizer_count;
    cddp_param *joined = cddpi_zalloc_array(before + count + 1, sizeof *joined);

    CDDPI_TRY_MEMORY(joined != NULL, "checkpoint: no memory");
    for (size_t i = 0; i < before + count; i++) {
        joined[i] = i < before ? all->optimizer[i] : tensors[i - before];
    }
    cddpi_free((void *)(uintptr_t)all->optimizer);
    all->optimizer = joined;
    all->optimizer_count = before + count;
    return CDDP_OK;
}

cddp_status cddpi_trainer_settle(struct cddpi_trainer *trainer, bool everywhere)
{
    bool sharded = trainer->config->ddp.shard_optimizer;

    /* They tell which steps were skipped. */
    CDDPI_TRY(cddpi_trainer_collect_results(trainer, 0, NULL));
    for (const struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        if (sharded) { /* make the parameters complete on their device */
            CDDPI_TRY(cddpi_ddp_params_whole(each->ddp));
        }
        if (sharded || each->replicas.rank == 0) {
            CDDPI_TRY(cddpi_optim_fetch(each->step.optim));
        }
    }
    if (everywhere || trainer->replicas.rank == 0) { /* rank 0, and the other stages of its model */
        CDDPI_TRY(cddpi_trainer_copy_to_host(trainer));
    }
    /* When a rank or a device fails, reductions end early, and parameters that were updated from
     * them must not be saved. The failure is known by now, although perhaps no call has returned it
     * yet. */
    if (cddpi_device_is_async(trainer->device)) {
        CDDPI_TRY(cddpi_group_verify(trainer->group));
    }
    return CDDP_OK;
}

cddp_status cddpi_trainer_assemble(struct cddpi_trainer *trainer, bool everywhere)
{
    CDDPI_TRY(cddpi_trainer_settle(trainer, everywhere));
    for (struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        CDDPI_TRY(cddpi_optim_gather_full_state(each->step.optim));
    }
    return CDDP_OK;
}

void cddpi_trainer_end_assembled(struct cddpi_trainer *trainer)
{
    for (; trainer != NULL; trainer = trainer->next) {
        cddpi_optim_free_full_state(trainer->step.optim);
    }
}

cddp_status cddpi_checkpoint_begin_list(struct cddpi_trainer *trainer,
                                        struct cddpi_checkpoint_list *out)
{
    struct cddpi_snapshot_params *all = &out->all;

    *out = (struct cddpi_checkpoint_list){.snapshot = CDDP_SNAPSHOT_INIT};
    CDDPI_TRY(trainer->engine->list_tensors(trainer, all));
    out->tensors = cddpi_zalloc_array(all->model_count + all->optimizer_count,
                                      sizeof *out->tensors);
    CDDPI_TRY_MEMORY(out->tensors != NULL, "checkpoint: no memory");
    out->snapshot.model = out->tensors;
    out->snapshot.model_count = all->model_count;
    out->snapshot.optimizer = out->tensors + all->model_count;
    out->snapshot.optimizer_count = all->optimizer_count;
    CDDPI_TRY(cddp_tensors_of(all->model, all->model_count, out->tensors));
    return cddp_tensors_of(all->optimizer, all->optimizer_count, out->tensors + all->model_count);
}

void cddpi_checkpoint_end_list(struct cddpi_checkpoint_list *list)
{
    cddpi_free(list->tensors);
    cddpi_checkpoint_release(&list->all);
}
