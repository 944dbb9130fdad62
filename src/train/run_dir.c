/* run_dir.c - the folder of a run: made if missing, held against other runs, an earlier run in it
 * put aside, train.conf as it was resolved. */
#include "train/run_dir.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/replace.h"
#include "train/config/write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool exists(const char *dir, const char *name)
{
    char *path = cddpi_format("%s/%s", dir, name);
    struct stat info;
    bool found = path != NULL && lstat(path, &info) == 0;

    cddpi_free(path);
    return found;
}

static cddp_status move(const char *dir, const char *name, const char *to)
{
    char *from_path = cddpi_format("%s/%s", dir, name);
    char *to_path = cddpi_format("%s/%s", to, name);
    cddp_status status = CDDP_OK;

    if (from_path == NULL || to_path == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", dir);
    } else if (rename(from_path, to_path) != 0 && errno != ENOENT) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "rename %s to %s", from_path, to_path);
    }
    cddpi_free(from_path);
    cddpi_free(to_path);
    return status;
}

static bool belongs_to_run(const char *name)
{
    return strcmp(name, "train.conf") == 0 || strcmp(name, "metrics.jsonl") == 0 ||
           strcmp(name, "checkpoints") == 0 || strcmp(name, "collectives") == 0 ||
           strcmp(name, "trace") == 0 || strcmp(name, "report.html") == 0 ||
           strncmp(name, "events.out.tfevents.", 20) == 0;
}

/* A new folder earlier-1, earlier-2 ... */
static cddp_status make_earlier(const char *dir, char **out)
{
    for (int number = 1; number < 1000000; number++) {
        char *path = cddpi_format("%s/earlier-%d", dir, number);

        if (path == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", dir);
        }
        if (mkdir(path, 0777) == 0) {
            *out = path;
            return CDDP_OK;
        }
        if (errno != EEXIST) {
            cddp_status status = cddpi_fail_errno(CDDP_ERR_IO, errno, "mkdir %s", path);

            cddpi_free(path);
            return status;
        }
        cddpi_free(path);
    }
    return cddpi_fail(CDDP_ERR_IO, "%s: a million earlier runs", dir);
}

static cddp_status put_aside(const char *dir, struct cddpi_progress *progress)
{
    char *aside = NULL;
    cddp_status status = make_earlier(dir, &aside);
    DIR *folder = status == CDDP_OK ? opendir(dir) : NULL;
    struct dirent *entry;

    if (status == CDDP_OK && folder == NULL) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "%s", dir);
    }
    while (status == CDDP_OK && (entry = readdir(folder)) != NULL) {
        if (belongs_to_run(entry->d_name)) {
            status = move(dir, entry->d_name, aside);
        }
    }
    if (status == CDDP_OK) {
        cddpi_progress_line(progress, "the earlier run in %s is now in %s", dir, aside);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    cddpi_free(aside);
    return status;
}

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

/* A run that was killed a moment ago may still be on its way out. */
static bool lock_soon(int fd)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000000};
    int64_t end = cddpi_now_ns() + 2 * (int64_t)1000000000;
    int result;

    while ((result = flock(fd, LOCK_EX | LOCK_NB)) != 0 &&
           (errno == EWOULDBLOCK || errno == EINTR) && cddpi_now_ns() < end) {
        nanosleep(&pause, NULL);
    }
    return result == 0 || errno != EWOULDBLOCK; /* some file systems have no locks: go on without */
}

/* The folder is held, so what lies beside its files is of writers that are gone. */
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
    DIR *folder = *held == NULL ? opendir(dir) : NULL;

    if (folder == NULL) {
        return CDDP_OK; /* held already, or not there yet; other errors show later */
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
    cddp_status status = cddpi_folder_make(dir);

    if (status == CDDP_OK) {
        status = cddpi_run_dir_hold(dir, held);
    }
    if (status == CDDP_OK) {
        sweep(dir);
    }
    if (status == CDDP_OK && !resumes &&
        (exists(dir, "metrics.jsonl") || exists(dir, "checkpoints"))) {
        status = put_aside(dir, progress);
    }
    return status == CDDP_OK ? write_config(config) : status;
}
