/* save_share.c - owns who copies which part of a checkpoint that is shared out among ranks. */
#include "train/save_share.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "group/join/group_agree.h"
#include "train/checkpoint.h"
#include "train/engines/engine.h"
#include "train/save_behind.h"

#include <string.h>

enum { HELPER_MS = 5000 }; /* how long a helper may take to end: as what waits for it */

/* What rank 0 tells the others before a checkpoint. */
struct share_plan {
    uint64_t is_shared;
    uint64_t number, bytes; /* of the memory */
    struct cddpi_shared_place place;
};

bool cddpi_save_share_is_possible(const struct cddpi_config *config)
{
    const struct cddpi_engine *engine = cddpi_engine_of(config);

    return config->train.checkpoint_async != CDDPI_ASYNC_FALSE && engine->prepare_save == NULL &&
           !engine->owns_devices;
}

/* Find out which ranks are on rank 0's machine. Collective. */
static cddp_status find_parts(struct cddpi_trainer *trainer)
{
    struct cddpi_save_share *share = &trainer->behind.share;
    cddp_group_info info = CDDP_GROUP_INFO_INIT;
    const int *hosts;
    void *all = NULL;

    CDDPI_TRY(cddp_group_get_info(trainer->group, &info));
    CDDPI_TRY(cddpi_all_gather_bytes(trainer->group, &info.host, sizeof info.host, &all));
    hosts = all;
    share->part = -1;
    for (int rank = 0; rank < trainer->world_size; rank++) {
        if (hosts[rank] == hosts[0]) {
            share->part = rank == trainer->rank ? share->parts : share->part;
            share->parts++;
        }
    }
    cddpi_free(all);
    return CDDP_OK;
}

/* Whether to share out the copy as far as all ranks know. Collective. */
static cddp_status find_way(struct cddpi_trainer *trainer, bool *out)
{
    struct cddpi_save_share *share = &trainer->behind.share;
    const struct cddpi_config *config = trainer->config;

    *out = trainer->world_size > 1 && cddpi_save_share_is_possible(config) &&
           !cddpi_device_is_async(trainer->device);
    if (*out && share->parts == 0) {
        CDDPI_TRY(find_parts(trainer));
    }
    *out = *out && share->parts > 1 &&
           (!config->ddp.shard_optimizer || share->parts == trainer->world_size);
    return CDDP_OK;
}

/* Rank 0: decide, and have memory for it. */
static struct share_plan make_plan(struct cddpi_trainer *trainer,
                                   const struct cddpi_shared_layout *layout)
{
    struct cddpi_save_share *share = &trainer->behind.share;
    bool is_there = share->copy.head != NULL && share->copy.bytes >= layout->whole;
    struct share_plan plan = {.is_shared = 0};

    if (!cddpi_save_behind_may_copy(trainer, layout->whole, is_there ? layout->whole : 0)) {
        return plan;
    }
    if (!is_there) {
        cddpi_shared_copy_close(&share->copy);
        share->number++;
        if (cddpi_shared_copy_create((size_t)layout->whole, &share->copy) != CDDP_OK) {
            cddpi_log(CDDPI_LOG_INFO, "checkpoint: not shared out: %s", cddp_last_error());
            return plan;
        }
    }
    cddpi_shared_copy_begin(&share->copy, trainer->cursor.step);
    return (struct share_plan){.is_shared = 1,
                               .place = share->copy.place,
                               .number = share->number,
                               .bytes = share->copy.bytes};
}

/* Another rank: open the memory that rank 0 has made. */
static cddp_status follow_plan(struct cddpi_save_share *share, const struct share_plan *plan)
{
    if (share->part < 0 || (share->copy.head != NULL && share->number == plan->number)) {
        return CDDP_OK;
    }
    cddpi_shared_copy_close(&share->copy);
    share->number = plan->number;
    return cddpi_shared_copy_open(&plan->place, (size_t)plan->bytes, &share->copy);
}

/* Lay out the checkpoint. */
static cddp_status lay_out(struct cddpi_trainer *trainer, struct cddpi_shared_layout *out)
{
    struct cddpi_checkpoint_list list;
    cddp_status status = cddpi_checkpoint_begin_list(trainer, &list);

    if (status == CDDP_OK) {
        cddpi_shared_lay_out(&list.snapshot, out);
    }
    cddpi_checkpoint_end_list(&list);
    return status;
}

/* Whether all ranks have @p is_ready. Collective, and when it returns, no helper is at work. */
static cddp_status are_ready(const struct cddpi_trainer *trainer, bool is_ready, bool *out)
{
    const uint8_t own = is_ready;
    void *all = NULL;

    CDDPI_TRY(cddpi_all_gather_bytes(trainer->group, &own, sizeof own, &all));
    *out = true;
    for (int rank = 0; rank < trainer->world_size; rank++) {
        *out = *out && ((const uint8_t *)all)[rank] != 0;
    }
    cddpi_free(all);
    return CDDP_OK;
}

cddp_status cddpi_save_share_plan(struct cddpi_trainer *trainer, bool *out)
{
    struct cddpi_save_share *share = &trainer->behind.share;
    struct cddpi_shared_layout layout = {.whole = 0};
    struct share_plan plan = {.is_shared = 0};
    cddp_status status = CDDP_OK;

    if (cddpi_helper_end(share->helper, HELPER_MS)) {
        share->helper = NULL;
    } else {
        status = cddpi_fail(CDDP_ERR_TIMEOUT, "the disk does not answer a thread that writes");
    }
    share->is_taken = false;
    CDDPI_TRY(find_way(trainer, out));
    if (!*out) {
        return CDDP_OK;
    }
    if (status == CDDP_OK) {
        status = lay_out(trainer, &layout);
    }
    if (trainer->rank == 0 && status == CDDP_OK) {
        plan = make_plan(trainer, &layout);
    }
    CDDPI_TRY(cddp_broadcast(trainer->group, &plan, sizeof plan, CDDP_U8, 0, NULL));
    *out = plan.is_shared != 0;
    if (!*out) {
        return CDDP_OK;
    }
    if (trainer->rank != 0 && status == CDDP_OK) {
        status = follow_plan(share, &plan);
    }
    if (status != CDDP_OK) {
        cddpi_log(CDDPI_LOG_INFO, "checkpoint: not shared out: %s", cddp_last_error());
    }
    share->copy.layout = layout;
    return are_ready(trainer, status == CDDP_OK, out);
}

/* Copy this rank's parts of the state of the sharded optimizer of @p each. */
static void copy_shards(const struct cddpi_trainer *each, const struct cddpi_checkpoint_list *list,
                        const cddp_tensor *places, struct cddpi_shared_copy *copy)
{
    const struct cddpi_optim_spec spec = cddpi_trainer_optim_spec(each->config);
    size_t moments = cddpi_optim_moments_of(&spec);
    size_t count, at = list->all.model_count;
    const cddp_param *tensors = cddpi_optim_tensors(each->step.optim, &count);

    for (size_t i = 0; moments > 0 && i < cddpi_optim_part_count(each->step.optim); i++) {
        const struct cddpi_optim_part part = cddpi_optim_part(each->step.optim, i);
        size_t own = cddpi_optim_part_tensor(each->step.optim, i);

        while (list->tensors[at].name != tensors[own].name) { /* found: the list has them all */
            at = at + 1 < list->all.model_count + list->all.optimizer_count ? at + 1
                                                                            : list->all.model_count;
        }
        for (size_t m = 0; m < moments; m++) {
            cddpi_shared_copy_put(copy, &places[at + m], part.first * sizeof(float),
                                  part.moments[m], part.count * sizeof(float));
        }
    }
}

/* Running statistics differ among ranks: those of rank 0 are saved. */
static void copy_statistics(const struct cddpi_trainer *trainer, struct cddpi_checkpoint_list *list,
                            const cddp_tensor *places, struct cddpi_shared_copy *copy)
{
    size_t at = 0;

    for (const struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        at += each->params.count;
        for (size_t i = 0; i < each->buffers.count; i++, at++) {
            cddp_tensor *tensor = &list->tensors[at];

            if (trainer->rank == 0 && cddpi_tensor_size(tensor) > 0) {
                cddpi_shared_copy_put(copy, &places[at], 0, tensor->data,
                                      cddpi_tensor_size(tensor));
            }
            tensor->data = NULL; /* not among what all ranks have */
        }
    }
}

/* Copy this rank's part of what @p list has. */
static cddp_status copy_part(struct cddpi_trainer *trainer, struct cddpi_checkpoint_list *list)
{
    struct cddpi_save_share *share = &trainer->behind.share;
    size_t model = list->all.model_count;
    size_t count = model + list->all.optimizer_count;
    cddp_tensor *places = cddpi_zalloc_array(count, sizeof *places);

    CDDPI_TRY_MEMORY(places != NULL, "checkpoint: no memory");
    memcpy(places, list->tensors, count * sizeof *places);
    cddpi_shared_copy_bind(&share->copy, CDDPI_SNAPSHOT_MODEL, places, model);
    cddpi_shared_copy_bind(&share->copy, CDDPI_SNAPSHOT_OPTIMIZER, places + model, count - model);
    copy_statistics(trainer, list, places, &share->copy);
    cddpi_shared_copy_tensors(&share->copy, &list->snapshot, share->part, share->parts);
    for (const struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        if (trainer->config->ddp.shard_optimizer) {
            copy_shards(each, list, places, &share->copy);
        }
    }
    cddpi_free(places);
    return CDDP_OK;
}

cddp_status cddpi_save_share_take(struct cddpi_trainer *trainer)
{
    struct cddpi_save_share *share = &trainer->behind.share;
    struct cddpi_checkpoint_list list;
    cddp_status status;

    CDDPI_TRY(cddpi_trainer_settle(trainer, false));
    if (share->part >= 0) {
        status = cddpi_checkpoint_begin_list(trainer, &list);
        status = status == CDDP_OK ? copy_part(trainer, &list) : status;
        cddpi_checkpoint_end_list(&list);
        if (status != CDDP_OK) { /* the others would wait for this rank */
            cddp_group_abort(trainer->group, cddp_last_error());
            return status;
        }
    }
    CDDPI_TRY(cddp_barrier(trainer->group, NULL));
    share->is_taken = share->part >= 0;
    if (trainer->rank == 0 && !cddpi_shared_copy_is_whole(&share->copy)) {
        cddpi_shared_copy_end(&share->copy);
        return cddpi_fail(CDDP_ERR_STATE, "checkpoint: ranks have not copied each byte once");
    }
    return CDDP_OK;
}

void cddpi_save_share_help(struct cddpi_trainer *trainer)
{
    struct cddpi_save_share *share = &trainer->behind.share;

    if (!share->is_taken) {
        return;
    }
    if (trainer->rank != 0) {
        /* without memory for a thread, the others do it */
        (void)!cddpi_helper_begin(&share->copy, trainer->folder.checkpoints, share->part,
                                  share->parts, &share->helper);
    } else if (trainer->behind.saving == NULL) {
        cddpi_shared_copy_end(&share->copy);
    }
    share->is_taken = false;
}

bool cddpi_save_share_fini(struct cddpi_trainer *trainer)
{
    struct cddpi_save_share *share = &trainer->behind.share;

    if (!cddpi_helper_end(share->helper, HELPER_MS) || trainer->behind.saving != NULL) {
        return false;
    }
    share->helper = NULL;
    cddpi_shared_copy_close(&share->copy);
    return true;
}
