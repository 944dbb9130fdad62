/* follow.c - owns the view of a run that goes on: reads the lines that metrics.jsonl gets, and
 * draws the view again. The file is another one after the run has been resumed. */
#include "report/follow.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/streams.h"
#include "base/terminal.h"
#include "report/follow_state.h"
#include "report/metrics.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 250, SILENT_S = 30 };

struct follow {
    const char *dir;
    char *path;
    char *line; /* CDDPI_METRICS_LINE_BYTES */
    FILE *file; /* NULL: the run has not begun */
    struct stat info;
    off_t offset; /* behind the last line that was taken */
    int64_t changed_ns;
    bool on_terminal, is_utf8, has_told_silence;
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

/* The last line was written when the file was: long ago, if the run was killed. */
static void note_change(struct follow *follow)
{
    struct stat info;
    int64_t age_s = fstat(fileno(follow->file), &info) == 0 ? time(NULL) - info.st_mtime : 0;

    follow->changed_ns = cddpi_now_ns() - (age_s > 0 ? age_s : 0) * INT64_C(1000000000);
    follow->has_told_silence = false;
}

/* On a pipe, which has no view: say once that no line comes. */
static void tell_silence(struct follow *follow)
{
    int64_t silent_s = (cddpi_now_ns() - follow->changed_ns) / INT64_C(1000000000);

    if (follow->on_terminal || follow->file == NULL || follow->has_told_silence ||
        follow->state.has_ended || silent_s < SILENT_S) {
        return;
    }
    cddpi_say(stdout,
              "no new line for %lld s: the run may have been killed; waiting for it to go on "
              "(Ctrl-C ends)\n",
              (long long)silent_s);
    follow->has_told_silence = true;
}

/* Take all complete lines. */
static cddp_status take_lines(struct follow *follow)
{
    bool has_news = false;

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
        has_news = true;
        object = json_loads(follow->line, 0, NULL);
        if (object != NULL) {
            kind = cddpi_follow_take(&follow->state, object);
            json_decref(object);
        }
        if (!follow->on_terminal) {
            cddpi_follow_print(&follow->state, kind, stdout);
        }
    }
    if (has_news) {
        note_change(follow);
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
                          (double)(cddpi_now_ns() - follow->changed_ns) * 1e-9, follow->is_utf8,
                          stdout);
    }
    return fflush(stdout) == 0 ? CDDP_OK
                               : cddpi_fail_errno(CDDP_ERR_IO, errno, "write standard output");
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
        tell_silence(follow);
        CDDPI_TRY(show(follow));
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
    follow->changed_ns = cddpi_now_ns();
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
