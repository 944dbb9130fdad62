/* ctl_run.c - reads the end of a run's metrics.jsonl. The lines are not trusted. */
#include "launcher/ctl/ctl_run.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TAIL_BYTES = 256 * 1024, LATEST_BYTES = 64 };

/* Read the last @p room - 1 bytes of @p path into @p out, and a NUL. Returns their number. */
static size_t read_tail(const char *path, char *out, size_t room, bool *out_is_cut)
{
    struct stat info;
    ssize_t got = 0;
    off_t from = 0;
    int fd;

    *out_is_cut = false;
    if (cddpi_file_open_regular(path, O_RDONLY | O_CLOEXEC, 0, &fd) == CDDP_OK) {
        if (fstat(fd, &info) == 0 && info.st_size > (off_t)room - 1) {
            from = info.st_size - ((off_t)room - 1);
            *out_is_cut = true;
        }
        got = pread(fd, out, room - 1, from);
        close(fd);
    }
    out[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

static double number_of(const json_t *line, const char *name)
{
    const json_t *value = json_object_get(line, name);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void add_point(struct cddpi_ctl_run *run)
{
    if (run->points == CDDPI_CTL_POINTS) {
        run->points--;
        memmove(run->losses, run->losses + 1, (size_t)run->points * sizeof *run->losses);
        memmove(run->rates, run->rates + 1, (size_t)run->points * sizeof *run->rates);
    }
    run->losses[run->points] = run->loss;
    run->rates[run->points++] = run->steps_per_s;
}

static void take_step(struct cddpi_ctl_run *run, json_t *line)
{
    double step_ms = number_of(line, "step_ms");
    double exposed_ms = number_of(line, "exposed_comm_ms");

    run->step = number_of(line, "step");
    run->epoch = number_of(line, "epoch");
    run->loss = number_of(line, "loss");
    run->samples_per_s = number_of(line, "samples_per_s");
    run->tokens_per_s = number_of(line, "tokens_per_s");
    run->steps_per_s = step_ms > 0 ? 1000 / step_ms : NAN;
    run->exposed = step_ms > 0 ? exposed_ms / step_ms : NAN;
    run->peer_wait = step_ms > 0 ? number_of(line, "peer_wait_ms") / step_ms : NAN;
    add_point(run);
    json_decref(run->line);
    run->line = json_incref(line);
}

static void take_line(struct cddpi_ctl_run *run, const char *text)
{
    json_t *line = json_loads(text, 0, NULL);

    if (json_object_get(line, "kind") == NULL && isfinite(number_of(line, "step"))) {
        if (json_object_get(line, "eval_loss") != NULL) {
            run->eval_step = number_of(line, "step");
            run->eval_loss = number_of(line, "eval_loss");
            run->eval_accuracy = number_of(line, "eval_accuracy");
        } else if (json_object_get(line, "loss") != NULL) {
            take_step(run, line);
        }
    }
    json_decref(line);
}

static void read_metrics(const char *dir, struct cddpi_ctl_run *run)
{
    char *path = cddpi_format("%s/metrics.jsonl", dir);
    char *text = cddpi_zalloc(TAIL_BYTES);
    bool is_cut = false;

    if (path != NULL && text != NULL && read_tail(path, text, TAIL_BYTES, &is_cut) > 0) {
        char *at = is_cut ? strchr(text, '\n') : text; /* the first line may have lost its begin */
        char *end;

        at = is_cut && at != NULL ? at + 1 : at;
        for (; at != NULL && (end = strchr(at, '\n')) != NULL; at = end + 1) {
            *end = '\0';
            take_line(run, at);
        }
    }
    cddpi_free(text);
    cddpi_free(path);
}

static void read_latest(const char *dir, struct cddpi_ctl_run *run)
{
    char *path = cddpi_format("%s/checkpoints/latest", dir);
    char name[LATEST_BYTES];
    bool is_cut = true;

    if (path != NULL && read_tail(path, name, sizeof name, &is_cut) > 0 && !is_cut) {
        name[strcspn(name, "\n")] = '\0';
        if (name[0] != '\0' && strchr(name, '/') == NULL) {
            int length = snprintf(run->checkpoint, sizeof run->checkpoint, "%s/checkpoints/%s", dir,
                                  name);

            if (length >= (int)sizeof run->checkpoint) {
                run->checkpoint[0] = '\0';
            }
        }
    }
    cddpi_free(path);
}

void cddpi_ctl_run_read(const char *dir, struct cddpi_ctl_run *out)
{
    *out = (struct cddpi_ctl_run){.points = 0};
    out->step = out->epoch = out->loss = out->steps_per_s = NAN;
    out->samples_per_s = out->tokens_per_s = out->exposed = out->peer_wait = NAN;
    out->eval_step = out->eval_loss = out->eval_accuracy = NAN;
    out->has_folder = dir != NULL;
    if (dir != NULL) {
        read_metrics(dir, out);
        read_latest(dir, out);
    }
}

void cddpi_ctl_run_fini(struct cddpi_ctl_run *run)
{
    json_decref(run->line);
    run->line = NULL;
}
