/* kept_state.c - owns when the state of a run is kept, its way from and to a device, and which run
 * it is of. */
#include "train/kept_state.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "group/device/group_device.h"
#include "group/group_info.h"
#include "train/checkpoint.h"
#include "train/device/device_step.h"
#include "train/device/host_copy.h"
#include "train/kept_list.h"
#include "train/step.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

/* The number of the run that writes to train.run_dir, with its data; not 0. Rank 0 may be on
 * another machine next time, which has the folder elsewhere, so only the end of its path counts. */
static uint64_t number_run(const struct cddpi_trainer *trainer)
{
    const char *dir = trainer->config->train.run_dir;
    char here[PATH_MAX] = "";
    const char *name = dir[0] != '/' && getcwd(here, sizeof here) != NULL ? strrchr(here, '/')
                                                                          : NULL;
    uint64_t run = cddpi_hash_text(cddpi_hash_start, name);

    run = cddpi_hash_text(cddpi_hash_add(run, '/'), dir);
    for (int i = 0; i < CDDPI_DATA_DIGESTS; i++) {
        run = cddpi_hash_add(run, trainer->data.digests[i]);
    }
    return run != 0 ? run : 1;
}

/* Of a sharded optimizer, this rank's parameters are complete without those of others. */
static cddp_status fetch_state(void *self)
{
    struct cddpi_trainer *trainer = self;
    const struct cddpi_device_ops *ops = trainer->device->ops;
    uint32_t timeout_ms = cddpi_group_timeout_ms(trainer->group);

    if (!cddpi_device_is_async(trainer->device)) {
        return CDDP_OK;
    }
    for (struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        CDDPI_TRY(cddpi_optim_fetch(each->step.optim));
    }
    CDDPI_TRY(ops->finish(trainer->device, timeout_ms)); /* with a deadline, unlike the copies */
    for (size_t i = 0; i < trainer->kept.copy_count; i++) {
        const struct cddpi_kept_copy *copy = &trainer->kept.copies[i];

        CDDPI_TRY(
            ops->copy(trainer->device, CDDPI_STREAM_COMPUTE, copy->to, copy->from, copy->bytes));
    }
    CDDPI_TRY(ops->finish(trainer->device, timeout_ms));
    /* what a failed reduction has made must not be kept (cddpi_trainer_assemble()) */
    return cddpi_group_verify(trainer->group);
}

static cddp_status send_state(void *self)
{
    struct cddpi_trainer *trainer = self;

    for (struct cddpi_trainer *each = trainer; each != NULL; each = each->next) {
        CDDPI_TRY(cddpi_optim_send(each->step.optim));
    }
    if (cddpi_checkpoint_has_scale(trainer)) {
        CDDPI_TRY(cddpi_device_step_send_scale(trainer->step.device));
    }
    return cddpi_trainer_copy_to_device(trainer);
}

static void warn_user(void *self, const char *text)
{
    cddpi_trainer_warn(self, "%s", text);
}

static void tell_user(void *self, const char *text)
{
    struct cddpi_trainer *trainer = self;

    cddpi_progress_line(&trainer->records.progress, "%s", text);
}

bool cddpi_kept_state_is_possible(const struct cddpi_trainer *trainer)
{
    return trainer->config->train.recovery != CDDPI_RECOVERY_CHECKPOINT;
}

cddp_status cddpi_kept_state_open(struct cddpi_trainer *trainer)
{
    struct cddpi_kept_state *kept = &trainer->kept;
    bool is_auto = trainer->config->train.recovery == CDDPI_RECOVERY_AUTO;
    uint64_t layout;

    if (!cddpi_kept_state_is_possible(trainer)) {
        return CDDP_OK;
    }
    kept->owner = (struct cddpi_keep_owner){.name = "train.recovery",
                                            .self = trainer,
                                            .is_frugal = is_auto,
                                            .list = cddpi_kept_list,
                                            .fetch = fetch_state,
                                            .send = send_state,
                                            .warn = warn_user,
                                            .tell = tell_user};
    CDDPI_TRY(cddpi_kept_layout(trainer, &layout));
    CDDPI_TRY(cddpi_keep_open(&kept->keep, trainer->group, &kept->owner,
                              trainer->rank == 0 ? number_run(trainer) : 0, layout));
    if (trainer->rank == 0 && !kept->keep.is_on && !is_auto) {
        cddpi_trainer_warn(trainer, "train.recovery = memory: no launcher holds memory for it; "
                                    "cddp-run does with --max-restarts, --elastic or --nnodes "
                                    "MIN:MAX");
    }
    return CDDP_OK;
}

cddp_status cddpi_kept_state_begin(struct cddpi_trainer *trainer)
{
    return trainer->kept.keep.owner != NULL ? cddpi_keep_begin(&trainer->kept.keep) : CDDP_OK;
}

void cddpi_kept_state_close(struct cddpi_kept_state *state)
{
    cddpi_keep_close(&state->keep);
    cddpi_free(state->model);
    cddpi_free(state->copies);
    state->model = NULL;
    state->copies = NULL;
}

/* Where replicas are compared, a state is made of parts of several, so before a comparison damage
 * would spread from one of them to all. Of a sharded optimizer, each part is that of all anyway. */
static bool is_compared(const struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    uint64_t every = (uint64_t)config->train.check_replicas;

    return every == 0 || config->ddp.shard_optimizer || trainer->replicas.count == 1 ||
           ((trainer->cursor.step + 1) % every == 0 &&
            trainer->cursor.step + 1 < trainer->plan.last_step);
}

bool cddpi_kept_state_is_due(const struct cddpi_trainer *trainer)
{
    const struct cddpi_keep *keep = &trainer->kept.keep;

    return trainer->rank == 0 && is_compared(trainer) &&
           (trainer->config->train.recovery == CDDPI_RECOVERY_MEMORY ? keep->is_on && !keep->is_off
                                                                     : cddpi_keep_is_due(keep));
}

cddp_status cddpi_kept_state_step(struct cddpi_trainer *trainer)
{
    if (trainer->kept.keep.is_off) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_trainer_collect_results(trainer, 0, NULL)); /* a device may still compute */
    return cddpi_keep_step(&trainer->kept.keep, trainer->cursor.step);
}

cddp_status cddpi_kept_state_restore(struct cddpi_trainer *trainer, uint64_t checkpoint,
                                     bool *out_found)
{
    CDDPI_TRY(cddpi_keep_restore(&trainer->kept.keep, checkpoint));
    *out_found = trainer->kept.keep.restored.step > 0;
    return CDDP_OK;
}
