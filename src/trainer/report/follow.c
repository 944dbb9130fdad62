/* follow.c - owns the view of a run that goes on: reads the lines that metrics.jsonl gets, and
 * draws the view again. The file is another one after the run has been resumed. */
#include "report/follow.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/streams.h"
#include "base/terminal.h"
#include "report/follow_state.h"
#include "report/follow_watch.h"
#include "report/metrics.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 250 };

struct follow {
    const char *dir;
    char *path;
    char *line; /* CDDPI_METRICS_LINE_BYTES */
    FILE *file; /* NULL: the run has not begun */
    struct stat info;
    off_t offset; /* behind the last line that was taken */
    struct cddpi_follow_watch watch;
    bool on_terminal, is_utf8;
    int drawn_columns; /* the width of the view that is on the terminal; 0: there is none */
    struct cddpi_follow_state state;
};

/* Open the file, or open it again if it has been replaced or cut off: then everything is read
 * again. */
static cddp_status open_file(struct follow *follow)
{
    struct stat now;
    cddp_status status;

    if (follow->file != NULL && stat(follow->path, &now) == 0 &&
        now.st_ino == follow->info.st_ino && now.st_dev == follow->info.st_dev &&
        now.st_size >= follow->offset) {
        return CDDP_OK;
    }
    cddpi_stream_close(follow->file);
    follow->file = NULL;
    status = cddpi_file_stream(follow->path, "r", &follow->file);
    if (status == CDDP_ERR_NOT_FOUND) {
        follow->file = NULL;
        return CDDP_OK;
    }
    CDDPI_TRY(status);
    if (fstat(fileno(follow->file), &follow->info) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "read %s", follow->path);
    }
    follow->offset = 0;
    cddpi_follow_init(&follow->state);
    return CDDP_OK;
}

/* Take all complete lines. */
static cddp_status take_lines(struct follow *follow)
{
    if (follow->file == NULL) {
        return CDDP_OK;
    }
    clearerr(follow->file);
    if (fseeko(follow->file, follow->offset, SEEK_SET) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "read %s", follow->path);
    }
    while (cddpi_metrics_next_line(follow->file, follow->line)) {
        enum cddpi_follow_kind kind = CDDPI_FOLLOW_OTHER;
        json_t *object;

        if (feof(follow->file)) {
            break; /* the rest of this line is still to come */
        }
        follow->offset = ftello(follow->file);
        cddpi_follow_watch_line(&follow->watch, cddpi_now_ns());
        object = json_loads(follow->line, 0, NULL);
        if (object != NULL) {
            kind = cddpi_follow_take(&follow->state, object);
            json_decref(object);
        }
        if (!follow->on_terminal) {
            cddpi_follow_print(&follow->state, kind, stdout);
        }
    }
    return ferror(follow->file) ? cddpi_fail_errno(CDDP_ERR_IO, errno, "read %s", follow->path)
                                : CDDP_OK;
}

static cddp_status show(struct follow *follow)
{
    int columns = cddpi_terminal_columns(STDOUT_FILENO);

    if (follow->on_terminal && follow->file != NULL) {
        if (follow->drawn_columns == columns) { /* another width may have wrapped the old view */
            printf("\033[%dA", CDDPI_FOLLOW_LINES);
        }
        follow->drawn_columns = columns;
        cddpi_follow_draw(&follow->state, follow->dir, columns,
                          (double)(cddpi_now_ns() - follow->watch.line_ns) * 1e-9,
                          follow->watch.told_ns != 0, follow->is_utf8, stdout);
    }
    return fflush(stdout) == 0 ? CDDP_OK
                               : cddpi_fail_errno(CDDP_ERR_IO, errno, "write standard output");
}

/* Whether locks of other processes are seen in the folder @p fd: those of other machines are not.
 */
static bool has_local_locks(int fd)
{
    /* from <linux/magic.h>, which has no zfs; overlayfs is what containers have */
    static const unsigned long local[] = {0xEF53 /* ext4 */,
                                          0x58465342 /* xfs */,
                                          0x9123683E /* btrfs */,
                                          0x01021994 /* tmpfs */,
                                          0x794C7630 /* overlayfs */,
                                          0xF2F52010 /* f2fs */,
                                          0x2FC12FC1 /* zfs */};
    struct statfs info;

    for (size_t i = 0; fstatfs(fd, &info) == 0 && i < sizeof local / sizeof *local; i++) {
        if ((unsigned long)info.f_type == local[i]) {
            return true;
        }
    }
    return false;
}

/* Whether the process that writes the metrics is on this machine. If not, its lock may be invisible
 * here even in a local folder: this machine may export the folder, or be the host of a virtual
 * machine that writes there. */
static bool runs_here(const struct follow *follow)
{
    char host[sizeof follow->state.host] = "";

    return follow->state.host[0] != '\0' && gethostname(host, sizeof host - 1) == 0 &&
           strcmp(follow->state.host, host) == 0;
}

/* Whether a run holds the lock of its folder (train/run_dir.c). A run that begins at this moment
 * tries for the lock again. */
static enum cddpi_follow_writer find_writer(const struct follow *follow)
{
    enum cddpi_follow_writer writer = CDDPI_FOLLOW_WRITER_UNKNOWN;
    DIR *folder;

    if (cddpi_folder_open(follow->dir, &folder) != CDDP_OK) {
        return writer;
    }
    if (runs_here(follow) && has_local_locks(dirfd(folder))) {
        if (flock(dirfd(folder), LOCK_SH | LOCK_NB) == 0) {
            writer = CDDPI_FOLLOW_WRITER_GONE;
        } else if (errno == EWOULDBLOCK) {
            writer = CDDPI_FOLLOW_WRITER_RUNS;
        }
    }
    closedir(folder); /* which unlocks it */
    return writer;
}

/* Say for what we wait when no line comes. On a terminal the view says it. */
static cddp_status watch_silence(struct follow *follow)
{
    int64_t now_ns = cddpi_now_ns();
    int64_t silent_ns = now_ns - follow->watch.line_ns;

    if (follow->state.has_ended || follow->file == NULL ||
        silent_ns < CDDPI_FOLLOW_LOOK_MS * INT64_C(1000000)) {
        return CDDP_OK;
    }
    switch (cddpi_follow_watch_look(&follow->watch, find_writer(follow), now_ns)) {
    case CDDPI_FOLLOW_QUIET:
        if (!follow->on_terminal) {
            cddpi_say(stderr, "cddp-report: nothing new in %s for %.0f s: waiting (Ctrl-C ends)\n",
                      follow->path, (double)silent_ns * 1e-9);
        }
        break;
    case CDDPI_FOLLOW_GONE:
        if (!follow->on_terminal) {
            cddpi_say(stderr,
                      "cddp-report: no process writes to %s any more, and its metrics have no end: "
                      "waiting %d s for a restart\n",
                      follow->dir, CDDPI_FOLLOW_RESTART_S);
        }
        break;
    case CDDPI_FOLLOW_GIVEN_UP:
        return cddpi_fail(
            CDDP_ERR_PEER,
            "the run in %s failed or was killed: no process has written there for %d s, "
            "and its metrics have no end. Its logs and what it printed say why; "
            "train.resume=auto continues it",
            follow->dir, CDDPI_FOLLOW_RESTART_S);
    case CDDPI_FOLLOW_NO_NEWS:
        break;
    }
    return CDDP_OK;
}

static cddp_status follow_to_end(struct follow *follow)
{
    static const struct timespec pause = {0, POLL_MS * 1000000};
    bool told = false;

    while (!follow->state.has_ended) {
        CDDPI_TRY(open_file(follow));
        CDDPI_TRY(take_lines(follow));
        if (follow->file == NULL && !told) {
            cddpi_say(stdout, "%s does not exist: waiting for the run to begin (Ctrl-C ends)\n",
                      follow->path);
            told = true;
        }
        CDDPI_TRY(show(follow));
        CDDPI_TRY(watch_silence(follow));
        if (!follow->state.has_ended) {
            (void)nanosleep(&pause, NULL);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_report_follow(const char *dir)
{
    struct follow *follow = cddpi_zalloc(sizeof *follow);
    cddp_status status;

    CDDPI_TRY_MEMORY(follow != NULL, "no memory to follow %s", dir);
    follow->dir = dir;
    follow->path = cddpi_format("%s/metrics.jsonl", dir);
    follow->line = cddpi_zalloc(CDDPI_METRICS_LINE_BYTES);
    cddpi_follow_watch_begin(&follow->watch, cddpi_now_ns());
    follow->on_terminal = cddpi_terminal_redraws(STDOUT_FILENO);
    (void)setlocale(LC_CTYPE, "");
    follow->is_utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    cddpi_follow_init(&follow->state);
    status = follow->path != NULL && follow->line != NULL
                 ? follow_to_end(follow)
                 : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory to follow %s", dir);
    cddpi_stream_close(follow->file);
    cddpi_free(follow->line);
    cddpi_free(follow->path);
    cddpi_free(follow);
    return status;
}
