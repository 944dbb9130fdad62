/* pace_report.c - gathers the ranks' times on rank 0. */
#include "train/telemetry/pace_report.h"

#include "base/alloc.h"
#include "base/error.h"

enum { LEAST_NS = 1000000000 }; /* of steps, between two comparisons */

/* Whether a rank's time contains waiting for other ranks that nobody measures: a stage on a device
 * waits inside its passes. */
static bool hides_waits(const struct cddpi_trainer *trainer)
{
    return cddpi_trainer_parts(trainer) > 1 && cddpi_device_is_async(trainer->device);
}

void cddpi_pace_note(struct cddpi_trainer *trainer)
{
    struct cddpi_interval *interval = &trainer->records.interval;
    struct cddpi_rank_pace *pace = &trainer->records.pace;

    cddpi_rank_pace_add(pace, interval);
    interval->compares = trainer->rank == 0 && trainer->world_size > 1 &&
                         pace->step_ns >= LEAST_NS && !hides_waits(trainer);
}

/* Rank 0: @p all are the ranks' times. */
static cddp_status tell(const struct cddpi_trainer *trainer, const struct cddpi_rank_pace *all,
                        struct cddpi_pace_result *out)
{
    double *room = cddpi_zalloc_array((size_t)trainer->world_size, sizeof *room);

    CDDPI_TRY_MEMORY(room != NULL, "metrics: no memory for %d ranks", trainer->world_size);
    cddpi_rank_paces_compare(all, trainer->world_size, room, out);
    cddpi_free(room);
    cddpi_launcher_report_slow(out->slow, out->count, (int64_t)(all[0].step_ns * 1e-6));
    return CDDP_OK;
}

cddp_status cddpi_pace_compare(struct cddpi_trainer *trainer, struct cddpi_pace_result *out)
{
    struct cddpi_rank_pace *own = &trainer->records.pace;
    struct cddpi_rank_pace *all = NULL;
    cddp_status status;

    out->slowest = -1;
    if (trainer->rank == 0) {
        all = cddpi_zalloc_array((size_t)trainer->world_size, sizeof *all);
        CDDPI_TRY_MEMORY(all != NULL, "metrics: no memory for %d ranks", trainer->world_size);
    }
    own->part = trainer->rank % cddpi_trainer_parts(trainer);
    status = cddp_gather(trainer->group, own, all, sizeof *own, CDDP_U8, 0, NULL);
    *own = (struct cddpi_rank_pace){.steps = 0};
    if (status == CDDP_OK && trainer->rank == 0) {
        status = tell(trainer, all, out);
    }
    cddpi_free(all);
    return status;
}
