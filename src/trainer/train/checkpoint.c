/* checkpoint.c - writes checkpoints, during a run and at its end. Only rank 0 uses files. */
#include "train/checkpoint.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "checkpoint/snapshot.h"
#include "train/engines/engine.h"
#include "train/replicas.h"

#include <cddp/process.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* Write the snapshot, or begin to write a copy of it: then @p out_behind is set. */
static cddp_status write_snapshot(struct cddpi_trainer *trainer, const cddp_snapshot *snapshot,
                                  bool last, struct cddpi_snapshot_room *room, bool *out_behind)
{
    unsigned keep = (unsigned)trainer->config->train.keep;
    unsigned spare = last || keep < 2 ? 1 : keep - 1;
    struct cddpi_snapshot_source source = {.fetch = NULL};
    cddp_status status;

    if (trainer->engine->prepare_save != NULL) {
        CDDPI_TRY(trainer->engine->prepare_save(trainer, &source));
    }
    if (!last) {
        CDDPI_TRY(cddpi_save_behind_begin(trainer, snapshot, &source, keep, spare, out_behind));
    }
    if (*out_behind) {
        return CDDP_OK;
    }
    status = cddpi_checkpoint_check(snapshot);
    if (status != CDDP_OK) {
        if (last) { /* training does not go on, and the next process would fail like this one */
            cddpi_keep_refuse(&trainer->kept.keep);
        }
        return status;
    }
    return cddpi_snapshot_write(trainer->folder.checkpoints, snapshot, &source, keep, spare, room);
}

static cddp_status write_checkpoint(struct cddpi_trainer *trainer, const char *text, bool last,
                                    struct cddpi_snapshot_room *room, bool *out_behind)
{
    const struct cddpi_save_share *share = &trainer->behind.share;
    struct cddpi_checkpoint_list list;
    cddp_status status = cddpi_checkpoint_begin_list(trainer, &list);

    list.snapshot.step = trainer->cursor.step;
    list.snapshot.state_json = text;
    if (status == CDDP_OK && share->is_taken) {
        cddpi_shared_copy_bind(&share->copy, CDDPI_SNAPSHOT_MODEL, list.tensors,
                               list.all.model_count);
        cddpi_shared_copy_bind(&share->copy, CDDPI_SNAPSHOT_OPTIMIZER,
                               list.tensors + list.all.model_count, list.all.optimizer_count);
    }
    if (status == CDDP_OK) {
        status = write_snapshot(trainer, &list.snapshot, last, room, out_behind);
    }
    cddpi_checkpoint_end_list(&list);
    return status;
}

/* Servers come back, descriptors are freed, tickets are renewed, and disks are mounted again: only
 * an error that cannot go away while the run waits is final. */
static enum cddpi_save_again why_again(cddp_status status, bool wants_room)
{
    static const int final[] = {0,     ENOTDIR, EISDIR, ENAMETOOLONG, ELOOP,
                                EFBIG, EINVAL,  ENOSYS, EOPNOTSUPP,   ENODEV};
    int error_number = cddpi_last_errno();

    if (wants_room) {
        return CDDPI_SAVE_WITH_ROOM;
    }
    if (status == CDDP_ERR_NO_MEMORY) {
        return CDDPI_SAVE_LATER;
    }
    for (size_t i = 0; i < sizeof final / sizeof *final; i++) {
        if (error_number == final[i]) {
            return CDDPI_SAVE_NEVER;
        }
    }
    return status == CDDP_ERR_IO || status == CDDP_ERR_NOT_FOUND ? CDDPI_SAVE_LATER
                                                                 : CDDPI_SAVE_NEVER;
}

cddp_status cddpi_trainer_save(struct cddpi_trainer *trainer, bool last,
                               enum cddpi_save_again *out_why_again)
{
    struct cddpi_snapshot_room room = {.is_missing = false};
    char *text = cddpi_checkpoint_state(trainer);
    bool is_behind = false;
    cddp_status status;

    *out_why_again = CDDPI_SAVE_NEVER;
    trainer->folder.saved_ns = cddpi_now_ns();
    CDDPI_TRY_MEMORY(text != NULL, "checkpoint: no memory");
    status = cddpi_trainer_keep_run_dir(trainer);
    trainer->folder.lost = false; /* if this save fails, the next regular checkpoint replaces it */
    if (status == CDDP_OK) {
        status = write_checkpoint(trainer, text, last, &room, &is_behind);
    }
    if (status == CDDP_OK && !is_behind) {
        cddpi_save_behind_note(trainer, last);
    } else if (status != CDDP_OK) {
        *out_why_again = why_again(status, room.is_missing);
        (void)cddpi_fail_prefix(status, "checkpoint of step %llu",
                                (unsigned long long)trainer->cursor.step);
    }
    free(text);
    return status;
}

/* Seconds between two tries; each pause is twice the previous one, because each try may write many
 * bytes before the disk is full. Meanwhile, ranks communicate every ROUND_MS milliseconds. */
enum { FIRST_PAUSE_S = 1, LONGEST_PAUSE_S = 30, ROUND_MS = 250 };

#define NS_OF_S(seconds) ((int64_t)((seconds)*1e9))

/* The state of retrying, on rank 0. */
struct patience {
    int64_t end_ns;
    int64_t next_ns; /* when to try again */
    int64_t pause_ns;
    bool was_stopped; /* before the first try: a later request to stop ends the retries */
    bool has_reported;
};

/* Whether to retry after a failure of kind @p why. Prints a warning once. */
static bool is_patient(struct cddpi_trainer *trainer, struct patience *patience, int64_t now_ns,
                       enum cddpi_save_again why)
{
    if (why == CDDPI_SAVE_NEVER || now_ns >= patience->end_ns ||
        (cddp_stop_requested() && !patience->was_stopped)) {
        return false;
    }
    if (!patience->has_reported) {
        cddpi_trainer_warn(
            trainer,
            why == CDDPI_SAVE_WITH_ROOM
                ? "%s. Free disk space: retrying for %g s (train.full_disk_seconds)%s"
                : "%s. Retrying for %g s (train.full_disk_seconds)%s",
            cddp_last_error(), trainer->config->train.full_disk_seconds,
            patience->was_stopped ? "" : ", or until the run is asked to stop");
    }
    patience->has_reported = true;
    return true;
}

/* Rank 0: try if the pause is over, else wait for one round. @p out_again: not done yet. */
static cddp_status try_once(struct cddpi_trainer *trainer, struct patience *patience,
                            uint8_t *out_again)
{
    static const struct timespec round = {.tv_nsec = ROUND_MS * 1000000L};
    bool stops = cddp_stop_requested() && !patience->was_stopped;
    enum cddpi_save_again why = CDDPI_SAVE_NEVER;
    cddp_status status;

    *out_again = trainer->folder.saved_step != trainer->cursor.step;
    cddpi_launcher_report_alive();
    if (*out_again == 0) {
        return CDDP_OK;
    }
    if (cddpi_now_ns() < patience->next_ns && !stops) {
        nanosleep(&round, NULL);
        return CDDP_OK;
    }
    trainer->behind.began_ns = cddpi_now_ns();
    trainer->behind.stood_ns = 0;
    status = cddpi_trainer_save(trainer, true, &why);
    if (status == CDDP_OK) {
        *out_again = 0;
        return CDDP_OK;
    }
    if (!is_patient(trainer, patience, cddpi_now_ns(), why)) {
        return status;
    }
    patience->next_ns = cddpi_now_ns() + patience->pause_ns;
    if (patience->pause_ns < NS_OF_S(LONGEST_PAUSE_S)) {
        patience->pause_ns *= 2;
    }
    return CDDP_OK;
}

/* After each round, rank 0 tells the others whether it will try again, so that its waiting does not
 * look like a failure. */
static cddp_status save_patiently(struct cddpi_trainer *trainer)
{
    struct patience patience = {
        .end_ns = cddpi_now_ns() + NS_OF_S(trainer->config->train.full_disk_seconds),
        .pause_ns = NS_OF_S(FIRST_PAUSE_S),
        .was_stopped = cddp_stop_requested(),
    };
    uint8_t again = 1;

    while (again != 0) {
        if (trainer->rank == 0) {
            CDDPI_TRY(try_once(trainer, &patience, &again));
        }
        CDDPI_TRY(cddpi_engine_call(trainer->engine->end_save, trainer));
        CDDPI_TRY(cddp_broadcast(trainer->group, &again, 1, CDDP_U8, 0, NULL));
    }
    return CDDP_OK;
}

cddp_status cddpi_trainer_save_last(struct cddpi_trainer *trainer)
{
    cddp_status status;

    CDDPI_TRY_GOTO(end, status, cddpi_trainer_assemble(trainer, true));
    CDDPI_TRY_GOTO(end, status, cddpi_replicas_check_last(trainer));
    CDDPI_TRY_GOTO(end, status, cddpi_save_behind_settle(trainer, ""));
    if (trainer->config->train.checkpoint_at_end) {
        status = save_patiently(trainer);
    }
end:
    cddpi_trainer_end_assembled(trainer);
    return status == CDDP_OK ? cddp_barrier(trainer->group, NULL) : status;
}
