/* run_dir.c - owns the run folder: creates it, locks it against other runs, and writes the resolved
 * train.conf. */
#include "train/run_dir.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/replace.h"
#include "train/config/config_write.h"
#include "train/earlier_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

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

/* Wait for the lock: a run that was killed a moment ago may still be ending. */
static bool lock_soon(int fd)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000000};
    int64_t end = cddpi_now_ns() + 2 * (int64_t)1000000000;
    int result;

    while ((result = flock(fd, LOCK_EX | LOCK_NB)) != 0 &&
           (errno == EWOULDBLOCK || errno == EINTR) && cddpi_now_ns() < end) {
        nanosleep(&pause, NULL);
    }
    return result == 0 || errno != EWOULDBLOCK; /* some file systems have no locks */
}

/* The folder is locked, so temporary files beside its files are left by writers that have ended. */
static void sweep(const char *dir)
{
    static const char *const names[] = {"train.conf", "metrics.jsonl"};

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
    if (!lock_soon(dirfd(folder))) {
        closedir(folder);
        return cddpi_fail(
            CDDP_ERR_STATE,
            "%s: another run that has not ended writes there: wait for it, end it, or "
            "give this one its own folder with train.run_dir (cddp-run --run-dir)",
            dir);
    }
    *held = folder;
    return CDDP_OK;
}

cddp_status cddpi_run_dir_prepare(const struct cddpi_config *config, bool resumes, DIR **held,
                                  struct cddpi_progress *progress)
{
    const char *dir = config->train.run_dir;
    bool has_earlier = false;
    cddp_status status = cddpi_folder_make(dir);

    if (status == CDDP_OK) {
        status = cddpi_run_dir_hold(dir, held);
    }
    if (status == CDDP_OK) {
        sweep(dir);
        status = cddpi_earlier_run_find(dir, &has_earlier);
    }
    if (status == CDDP_OK && has_earlier && !resumes) {
        status = cddpi_earlier_run_put_aside(dir, progress);
    }
    return status == CDDP_OK ? write_config(config) : status;
}
