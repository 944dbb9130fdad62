/* run_dir.c - owns the run folder: creates it, locks it against other runs, writes the resolved
 * train.conf, detects that the folder has disappeared, and makes a new one. */
#include "train/run_dir.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/launcher_report.h"
#include "base/log.h"
#include "base/replace.h"
#include "base/utf8.h"
#include "train/earlier_run.h"
#include "train/telemetry/train_report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LEAST_WAIT_MS = 2000 };

static cddp_status put_text(void *context, struct cddpi_writer *writer)
{
    const char *text = context;

    return cddpi_writer_put(writer, text, strlen(text));
}

static cddp_status write_config(const struct cddpi_config *config)
{
    char *path = cddpi_format("%s/train.conf", config->train.run_dir);
    char *text = cddpi_config_text(config, false);
    cddp_status status;

    if (path == NULL || text == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", config->train.run_dir);
    } else {
        status = cddpi_file_replace(path, put_text, text);
    }
    cddpi_free(path);
    free(text);
    return status;
}

/* For how long to wait for the lock. A run that was killed a moment ago may still be ending. The
 * rank 0 of an earlier generation of this job may stand still with its machine: it ends as soon as
 * it wakes, but may be in the middle of a checkpoint. The other ranks wait for twice as long. */
static int64_t patience_ms(void)
{
    bool has_earlier = cddpi_env_integer(CDDPI_ENV_GENERATION, 0, INT32_MAX, 0) > 0;
    int64_t half_ms = cddpi_env_timeout_ms() / 2;

    return has_earlier && half_ms > LEAST_WAIT_MS ? half_ms : LEAST_WAIT_MS;
}

static void say_wait(const char *dir, int64_t wait_ms)
{
    char text[4096 + 256];

    snprintf(text, sizeof text - 1,
             "cddp-train: %s: rank 0 of an earlier generation, which has not ended, still writes "
             "there: waiting for it for up to %g s (--timeout)",
             dir, (double)wait_ms / 1000);
    cddpi_text_clean(text, sizeof text - 1, false);
    strcat(text, "\n");
    cddpi_print(text);
}

/* Wait for the lock of folder @p dir. */
static bool lock_soon(const char *dir, int fd)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000000};
    int64_t begin_ns = cddpi_now_ns();
    int64_t wait_ms = patience_ms();
    bool has_said = wait_ms == LEAST_WAIT_MS;
    int result;

    while ((result = flock(fd, LOCK_EX | LOCK_NB)) != 0 &&
           (errno == EWOULDBLOCK || errno == EINTR) &&
           cddpi_now_ns() < begin_ns + wait_ms * 1000000) {
        if (!has_said && cddpi_now_ns() >= begin_ns + LEAST_WAIT_MS * INT64_C(1000000)) {
            has_said = true;
            say_wait(dir, wait_ms);
        }
        nanosleep(&pause, NULL);
    }
    return result == 0 || errno != EWOULDBLOCK; /* some file systems have no locks */
}

/* The folder is locked, so temporary files beside its files are left by writers that have ended. */
static void sweep(const char *dir)
{
    static const char *const names[] = {"train.conf", "metrics.jsonl", "report.html"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = cddpi_format("%s/%s", dir, names[i]);

        if (path != NULL) {
            cddpi_replacement_sweep(path);
        }
        cddpi_free(path);
    }
}

cddp_status cddpi_run_dir_hold(const char *dir, DIR **held)
{
    DIR *folder = NULL;
    cddp_status status = *held == NULL ? cddpi_folder_open(dir, &folder) : CDDP_OK;

    if (folder == NULL) {
        return status == CDDP_ERR_NOT_FOUND ? CDDP_OK : status; /* locked already, or missing */
    }
    if (!lock_soon(dir, dirfd(folder))) {
        closedir(folder);
        return cddpi_fail(
            CDDP_ERR_STATE,
            "%s: another run that has not ended writes there: wait for it, end it, or "
            "give this one its own folder with train.run_dir (cddp-run --run-dir)",
            dir);
    }
    *held = folder;
    cddpi_launcher_report_folder(dir);
    return CDDP_OK;
}

cddp_status cddpi_run_dir_prepare(const struct cddpi_config *config, bool resumes, DIR **held,
                                  struct cddpi_progress *progress)
{
    const char *dir = config->train.run_dir;
    bool has_earlier = false;

    CDDPI_TRY(cddpi_folder_make(dir));
    CDDPI_TRY(cddpi_run_dir_hold(dir, held));
    sweep(dir);
    CDDPI_TRY(cddpi_earlier_run_find(dir, &has_earlier));
    if (has_earlier && !resumes) {
        CDDPI_TRY(cddpi_earlier_run_put_aside(dir, progress));
    }
    return write_config(config);
}

enum { NAMES_TRIED = 1000 };

cddp_status cddpi_run_folder_init(struct cddpi_run_folder *folder, const char *run_dir,
                                  int64_t now_ns)
{
    *folder = (struct cddpi_run_folder){
        .saved_ns = now_ns, .whole_ns = now_ns, .saved_step = ~(uint64_t)0};
    folder->checkpoints = cddpi_format("%s/checkpoints", run_dir);
    return folder->checkpoints != NULL ? CDDP_OK
                                       : cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory");
}

void cddpi_run_folder_fini(struct cddpi_run_folder *folder)
{
    cddpi_free(folder->checkpoints);
    cddpi_free(folder->moved_to);
    if (folder->held != NULL) {
        closedir(folder->held);
    }
}

const char *cddpi_trainer_run_dir(const struct cddpi_trainer *trainer)
{
    return trainer->folder.moved_to != NULL ? trainer->folder.moved_to
                                            : trainer->config->train.run_dir;
}

/* Whether nothing has that name any more. Other errors may pass. */
static bool is_gone(const char *path)
{
    return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

/* What is missing, for the user; NULL: nothing. The folder is checked last: if it disappeared
 * between the two checks, it would otherwise look like a folder that lacks a file, and be made
 * again without a lock. */
static const char *find_loss(const struct cddpi_trainer *trainer, bool *out_folder)
{
    const struct cddpi_run_folder *folder = &trainer->folder;
    const struct cddpi_metrics *metrics = trainer->records.metrics;
    const char *path = cddpi_trainer_run_dir(trainer);
    const char *inside = NULL;
    struct stat named, held;

    if (folder->saved_step != ~(uint64_t)0 && is_gone(folder->checkpoints)) {
        inside = "/checkpoints";
    } else if (metrics != NULL && !cddpi_metrics_is_there(metrics)) {
        inside = "/metrics.jsonl";
    }
    *out_folder = is_gone(path) ||
                  (stat(path, &named) == 0 && fstat(dirfd(folder->held), &held) == 0 &&
                   (named.st_dev != held.st_dev || named.st_ino != held.st_ino));
    return *out_folder ? "" : inside;
}

/* Make the folders above @p path. */
static cddp_status make_parents(const char *path)
{
    char *parents = cddpi_strdup(path);
    char *slash = parents != NULL ? strrchr(parents, '/') : NULL;
    cddp_status status = parents != NULL ? CDDP_OK
                                         : cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", path);

    if (slash != NULL && slash != parents) {
        *slash = '\0';
        status = cddpi_folder_make(parents);
    }
    cddpi_free(parents);
    return status;
}

/* Make and lock a new folder. It gets another name if the old name is taken. */
static cddp_status make_fresh(const char *wanted, char **out_path, DIR **out_held)
{
    CDDPI_TRY(make_parents(wanted));
    for (int number = 0; number < NAMES_TRIED; number++) {
        char *path = number == 0 ? cddpi_strdup(wanted)
                                 : cddpi_format("%s.recovered-%d", wanted, number);
        cddp_status status = CDDP_OK;

        CDDPI_TRY_MEMORY(path != NULL, "%s: no memory", wanted);
        if (cddpi_file_mkdirat(AT_FDCWD, path) == 0) {
            status = cddpi_run_dir_hold(path, out_held);
        } else if (errno != EEXIST) {
            status = cddpi_fail_errno(CDDP_ERR_IO, errno, "make the folder %s", path);
        }
        if (*out_held != NULL) {
            *out_path = path;
            return CDDP_OK;
        }
        cddpi_free(path);
        if (status != CDDP_OK && status != CDDP_ERR_STATE) { /* no other run has taken it */
            return status;
        }
    }
    return cddpi_fail(CDDP_ERR_IO, "%s: no other name for the folder is free", wanted);
}

static cddp_status change_folder(struct cddpi_trainer *trainer)
{
    struct cddpi_run_folder *folder = &trainer->folder;
    char *path = NULL;
    char *checkpoints;
    DIR *held = NULL;

    CDDPI_TRY(make_fresh(trainer->config->train.run_dir, &path, &held));
    checkpoints = cddpi_format("%s/checkpoints", path);
    if (checkpoints == NULL) {
        closedir(held);
        cddpi_free(path);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", trainer->config->train.run_dir);
    }
    cddpi_run_folder_fini(folder);
    folder->held = held;
    folder->checkpoints = checkpoints;
    folder->moved_to = path;
    if (strcmp(path, trainer->config->train.run_dir) == 0) {
        folder->moved_to = NULL;
        cddpi_free(path);
    }
    return CDDP_OK;
}

/* Write the files that a run has from its beginning. */
static cddp_status begin_files(struct cddpi_trainer *trainer)
{
    const char *path = cddpi_trainer_run_dir(trainer);
    struct cddpi_config config = *trainer->config; /* a copy that borrows all pointers */
    struct cddpi_metrics *metrics = NULL;

    config.train.run_dir = (char *)(uintptr_t)path;
    CDDPI_TRY(
        cddpi_run_dir_prepare(&config, true, &trainer->folder.held, &trainer->records.progress));
    if (trainer->records.metrics != NULL) {
        CDDPI_TRY(
            cddpi_metrics_open(path, trainer->cursor.step, config.train.tensorboard, &metrics));
        cddpi_metrics_move_export(trainer->records.metrics, metrics);
        cddpi_metrics_close(trainer->records.metrics);
        trainer->records.metrics = metrics;
        cddpi_trainer_report_begin(trainer);
    }
    return CDDP_OK;
}

cddp_status cddpi_trainer_keep_run_dir(struct cddpi_trainer *trainer)
{
    struct cddpi_run_folder *folder = &trainer->folder;
    bool has_folder_gone = false;
    const char *loss = folder->held != NULL ? find_loss(trainer, &has_folder_gone) : NULL;
    char *gone;
    const char *shown;
    cddp_status status;

    /* A checkpoint in the background is written where the folder is now. The next call sees it. */
    if (loss == NULL || trainer->behind.saving != NULL) {
        return CDDP_OK;
    }
    gone = cddpi_format("%s%s", cddpi_trainer_run_dir(trainer), loss);
    shown = gone != NULL ? gone : "the folder";
    status = has_folder_gone ? change_folder(trainer) : CDDP_OK;
    if (status == CDDP_OK) {
        status = begin_files(trainer);
    }
    if (status == CDDP_OK) {
        folder->lost = folder->saved_step != ~(uint64_t)0 && strcmp(loss, "/metrics.jsonl") != 0;
        folder->saved_step = folder->lost ? ~(uint64_t)0 : folder->saved_step;
        cddpi_trainer_warn(trainer,
                           "%s was removed or moved while the run was writing there; it goes on in "
                           "%s%s",
                           shown, cddpi_trainer_run_dir(trainer),
                           folder->lost ? ", and writes a new checkpoint" : "");
    } else if (!folder->has_reported) {
        cddpi_trainer_warn(trainer, "%s was removed or moved while the run was writing there: %s",
                           shown, cddp_last_error());
    }
    folder->has_reported = status != CDDP_OK;
    cddpi_free(gone);
    return status;
}
