/* save_behind.c - owns checkpoints that are written in the background: whether memory allows it,
 * when the thread is looked at and waited for, and what follows when a checkpoint is whole. */
#include "train/save_behind.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "group/group_info.h"
#include "train/checkpoint.h"
#include "train/save_request.h"
#include "train/trainer.h"

#include <cddp/group.h>
#include <cddp/process.h>
#include <time.h>

enum {
    ROUND_MS = 250,  /* how often ranks communicate while rank 0 waits */
    QUIET_MS = 2000, /* how long a run that ends waits before it says so */
    FINI_MS = 5000   /* how long a failed run waits: half of what cddp-run gives it (--grace) */
};

#define MS_OF_NS(ns) ((double)(ns)*1e-6)

cddp_status cddpi_save_behind_begin(struct cddpi_trainer *trainer, const cddp_snapshot *snapshot,
                                    const struct cddpi_snapshot_source *source, unsigned keep,
                                    unsigned spare, bool *out_begun)
{
    struct cddpi_save_behind *behind = &trainer->behind;
    const struct cddpi_saving_options options = {keep, spare, cddpi_checkpoint_check};
    cddp_status status;

    *out_begun = false;
    if (!behind->share.is_taken &&
        !cddpi_save_behind_may_copy(trainer, cddpi_snapshot_copy_bytes(snapshot),
                                    behind->copy.memory != NULL ? behind->copy.bytes : 0)) {
        return CDDP_OK;
    }
    behind->copy.shared = behind->share.is_taken ? &behind->share.copy : NULL;
    status = cddpi_snapshot_copy_take(&behind->copy, snapshot, source);
    if (status == CDDP_OK) {
        status = cddpi_saving_begin(trainer->folder.checkpoints, &behind->copy, &options,
                                    &behind->saving);
        *out_begun = status == CDDP_OK;
    }
    behind->step = trainer->cursor.step;
    behind->epoch = trainer->cursor.epoch;
    behind->progress = 0;
    behind->moved_ns = cddpi_now_ns();
    return status == CDDP_ERR_NO_MEMORY ? CDDP_OK : status; /* the caller writes it without */
}

/* Write a line of metrics: for how long training stood, and when the checkpoint was whole. */
static void add_line(struct cddpi_trainer *trainer, bool is_behind)
{
    const struct cddpi_save_behind *behind = &trainer->behind;
    int64_t took_ns = cddpi_now_ns() - behind->began_ns;
    struct timespec now;

    if (trainer->records.metrics == NULL) {
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    cddpi_metrics_add_object(
        trainer->records.metrics,
        json_pack("{s:s, s:I, s:I, s:b, s:f, s:f, s:I}", "kind", "checkpoint", "step",
                  (json_int_t)behind->step, "epoch", (json_int_t)behind->epoch, "async", is_behind,
                  "checkpoint_ms", MS_OF_NS(behind->stood_ns > 0 ? behind->stood_ns : took_ns),
                  "complete_ms", MS_OF_NS(took_ns), "time_ms",
                  (json_int_t)now.tv_sec * 1000 + (json_int_t)now.tv_nsec / 1000000));
}

/* Whether a checkpoint was asked for that has not begun: who has asked is told of that one. */
static bool is_followed(const struct cddpi_trainer *trainer)
{
    return trainer->behind.is_asked || cddpi_save_request_is_there();
}

static void note_whole(struct cddpi_trainer *trainer, bool is_behind, bool is_last)
{
    struct cddpi_save_behind *behind = &trainer->behind;

    trainer->folder.saved_step = behind->step;
    trainer->folder.whole_ns = behind->began_ns;
    add_line(trainer, is_behind);
    behind->untold = !is_last && is_followed(trainer);
    if (!behind->untold) {
        cddpi_launcher_report_saved();
    }
}

void cddpi_save_behind_note(struct cddpi_trainer *trainer, bool is_last)
{
    trainer->behind.step = trainer->cursor.step;
    trainer->behind.epoch = trainer->cursor.epoch;
    note_whole(trainer, false, is_last);
}

void cddpi_save_behind_tell_failure(struct cddpi_trainer *trainer, const char *end)
{
    cddpi_trainer_warn(trainer, "%s%s", cddp_last_error(), end);
    if (is_followed(trainer)) {
        return;
    }
    cddpi_launcher_report_unsaved();
    if (trainer->behind.untold) {
        trainer->behind.untold = false;
        cddpi_launcher_report_saved();
    }
}

/* The thread is done, with @p status. */
static void conclude(struct cddpi_trainer *trainer, cddp_status status, const char *end)
{
    struct cddpi_save_behind *behind = &trainer->behind;

    if (status == CDDP_OK) {
        note_whole(trainer, true, false);
    } else {
        (void)cddpi_fail_prefix(status, "checkpoint of step %llu",
                                (unsigned long long)behind->step);
        cddpi_save_behind_tell_failure(trainer, end);
    }
    cddp_saving_destroy(behind->saving);
    behind->saving = NULL;
}

void cddpi_save_behind_look(struct cddpi_trainer *trainer)
{
    bool done = false;
    cddp_status status;

    if (trainer->behind.saving == NULL) {
        return;
    }
    status = cddp_saving_test(trainer->behind.saving, &done);
    if (done) {
        conclude(trainer, status, CDDPI_TRAINING_GOES_ON);
    }
}

/* Say once that the run does not end yet. */
static void say_wait(struct cddpi_trainer *trainer)
{
    struct cddpi_save_behind *behind = &trainer->behind;

    if (!behind->told_wait && cddpi_now_ns() - behind->waits_ns >= QUIET_MS * INT64_C(1000000)) {
        behind->told_wait = true;
        cddpi_trainer_warn(trainer,
                           "the run waits with its end until the checkpoint of step %llu is "
                           "written",
                           (unsigned long long)behind->step);
    }
}

/* Rank 0: wait for up to ROUND_MS. @p out_again: the thread still writes. @p end: what follows a
 * failure's text; "": the run ends. */
static cddp_status wait_round(struct cddpi_trainer *trainer, const char *end, uint8_t *out_again)
{
    struct cddpi_save_behind *behind = &trainer->behind;
    uint32_t timeout_ms = cddpi_group_timeout_ms(trainer->group);
    bool done = false;
    uint64_t progress;
    cddp_status status;

    *out_again = 0;
    if (behind->saving == NULL) {
        return CDDP_OK;
    }
    status = cddpi_saving_wait_for(behind->saving, ROUND_MS, &done);
    if (done) {
        conclude(trainer, status, end);
        return CDDP_OK;
    }
    progress = cddpi_saving_progress(behind->saving);
    if (progress != behind->progress) {
        behind->progress = progress;
        behind->moved_ns = cddpi_now_ns();
    }
    if (end[0] == '\0' || cddp_stop_requested()) {
        say_wait(trainer);
    }
    *out_again = 1;
    return cddpi_now_ns() - behind->moved_ns < timeout_ms * INT64_C(1000000)
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_TIMEOUT,
                            "checkpoint of step %llu: the disk has taken nothing for %g s "
                            "(train.timeout)",
                            (unsigned long long)behind->step, (double)timeout_ms / 1000);
}

cddp_status cddpi_save_behind_settle(struct cddpi_trainer *trainer, const char *end)
{
    uint8_t again = 1;

    trainer->behind.waits_ns = cddpi_now_ns();
    trainer->behind.moved_ns = trainer->behind.waits_ns; /* nobody has looked before */
    while (again != 0) {
        if (trainer->rank == 0) {
            CDDPI_TRY(wait_round(trainer, end, &again));
            cddpi_launcher_report_alive();
        }
        CDDPI_TRY(cddp_broadcast(trainer->group, &again, 1, CDDP_U8, 0, NULL));
    }
    return CDDP_OK;
}

bool cddpi_save_behind_fini(struct cddpi_trainer *trainer)
{
    struct cddpi_save_behind *behind = &trainer->behind;
    int64_t limit_ns = FINI_MS * INT64_C(1000000);
    uint8_t again = behind->saving != NULL;

    behind->waits_ns = cddpi_now_ns();
    while (again != 0 && cddpi_now_ns() - behind->waits_ns < limit_ns &&
           wait_round(trainer, "", &again) == CDDP_OK) {
    }
    if (behind->saving == NULL) { /* else the thread uses the copy until the process ends */
        cddpi_snapshot_copy_release(&behind->copy);
    }
    return cddpi_save_share_fini(trainer);
}
