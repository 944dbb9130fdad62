/* metrics.c - owns metrics.jsonl: removes the lines of steps that a resumed run will repeat, and
 * appends lines. */
#include "report/metrics.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/replace.h"
#include "group/launch/launch_variable.h"
#include "report/tfevents.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool is_above_zero(const char *name)
{
    const char *text = cddpi_launch_variable(name);
    int64_t number;

    return text != NULL && cddpi_parse_integer(text, 1, INT64_MAX, &number);
}

/* cddp-run's random id, or the id that the user gives to all starts of one job. */
static bool name_of_cddp(struct cddpi_job_name *out)
{
    const char *job = cddpi_env(CDDPI_ENV_JOB);

    if (job == NULL) {
        return false;
    }
    snprintf(out->text, sizeof out->text, "%s", job);
    out->is_restart = cddpi_launch_variable("CDDP_GENERATION") == NULL ||
                      is_above_zero("CDDP_GENERATION");
    return true;
}

static bool name_of_torchrun(struct cddpi_job_name *out)
{
    const char *run = cddpi_launch_variable("TORCHELASTIC_RUN_ID");

    if (run == NULL || cddpi_env(CDDPI_ENV_RANK) != NULL) {
        return false; /* CDDP_RANK is set: cddp-run is the launcher */
    }
    snprintf(out->text, sizeof out->text, "torchrun %s", run);
    out->is_restart = is_above_zero("TORCHELASTIC_RESTART_COUNT");
    return true;
}

/* A torchrun keeps all its attempts in one folder, FOLDER/attempt_0/0/error.json. The folder
 * identifies restarts that torchrun does not count, because nodes joined or left. */
static bool name_of_agent(struct cddpi_job_name *out)
{
    const char *file = cddpi_launch_variable("TORCHELASTIC_ERROR_FILE");
    const char *attempt = file != NULL ? strstr(file, "/attempt_") : NULL;

    if (attempt == NULL || cddpi_env(CDDPI_ENV_RANK) != NULL) {
        return false;
    }
    snprintf(out->text, sizeof out->text, "torchrun of %.*s", (int)(attempt - file), file);
    out->is_restart = true;
    return true;
}

static bool name_of_slurm(struct cddpi_job_name *out)
{
    const char *job = cddpi_launch_variable("SLURM_JOB_ID");
    const char *step = cddpi_launch_variable("SLURM_STEP_ID");

    if (job == NULL) {
        return false;
    }
    snprintf(out->text, sizeof out->text, "Slurm %s%s%s", job, step != NULL ? "." : "",
             step != NULL ? step : "");
    out->is_restart = is_above_zero("SLURM_RESTART_COUNT");
    return true;
}

int cddpi_job_names(struct cddpi_job_name out[CDDPI_JOB_NAMES])
{
    static bool (*const rows[CDDPI_JOB_NAMES])(struct cddpi_job_name *) = {
        name_of_cddp, name_of_torchrun, name_of_agent, name_of_slurm};
    int count = 0;

    for (int i = 0; i < CDDPI_JOB_NAMES; i++) {
        count += rows[i](&out[count]) ? 1 : 0;
    }
    return count;
}

static const char RUN_BEGINS[] = "{\"kind\":\"run\","; /* the line that begins a run */

struct cddpi_metrics {
    int fd;
    char *path;
    struct cddpi_tfevents *events;       /* NULL: not configured, or failed */
    struct cddpi_prometheus *prometheus; /* NULL: not configured */
    bool failed;                         /* the user was warned about metrics.jsonl */
    bool has_evaluation;                 /* for the last step that was kept */
    double earlier_seconds;              /* of the processes that this one goes on from */
    int earlier_ranks;                   /* their number; 0: unknown, or not always the same */
};

/* Which lines of a file are kept, and what they say. */
struct metrics_cut {
    FILE *from;
    char *line;
    uint64_t step;           /* the last step that is kept */
    bool has_evaluation;     /* of that step */
    double seconds;          /* of the processes that have ended */
    double first_ms, end_ms; /* of the process whose lines are read; 0: no such line */
    int ranks;               /* of all processes; 0: not known yet, -1: not always the same */
};

/* Add the time of a process, of which there are no more lines. */
static void end_process(struct metrics_cut *cut)
{
    cut->seconds += cut->end_ms > cut->first_ms ? (cut->end_ms - cut->first_ms) * 1e-3 : 0;
    cut->first_ms = cut->end_ms = 0;
}

static void add_time(struct metrics_cut *cut, const json_t *object)
{
    const char *kind = json_string_value(json_object_get(object, "kind"));
    double seconds = json_number_value(json_object_get(object, "seconds"));
    double now_ms = json_number_value(json_object_get(object, "time_ms"));

    if (kind != NULL && strcmp(kind, "run") == 0) {
        end_process(cut);
    } else if (kind != NULL && strcmp(kind, "end") == 0) {
        cut->first_ms = cut->end_ms = 0; /* it knows better */
        cut->seconds += isfinite(seconds) && seconds > 0 ? seconds : 0;
    } else if (isfinite(now_ms) && now_ms > 0) {
        cut->first_ms = cut->first_ms > 0 ? cut->first_ms : now_ms;
        cut->end_ms = now_ms;
    }
}

/* Note the number of ranks, if the line begins a process. */
static void note_ranks(struct metrics_cut *cut, const json_t *object)
{
    json_int_t ranks = json_integer_value(json_object_get(object, "world_size"));

    if (ranks >= 1 && ranks <= INT32_MAX) {
        cut->ranks = cut->ranks == 0 || cut->ranks == ranks ? (int)ranks : -1;
    }
}

/* Whether to keep a line of the old file: a complete object of a step up to the cut. */
static bool keep_line(struct metrics_cut *cut)
{
    json_t *object = json_loads(cut->line, 0, NULL);
    json_t *number = json_object_get(object, "step");
    uint64_t step = (uint64_t)json_integer_value(number);
    bool keep = strchr(cut->line, '\n') != NULL && json_is_integer(number) &&
                json_integer_value(number) >= 0 && step <= cut->step;

    if (keep && step == cut->step && json_object_get(object, "eval_loss") != NULL) {
        cut->has_evaluation = true;
    }
    if (keep) {
        add_time(cut, object);
        note_ranks(cut, object);
    }
    json_decref(object);
    return keep;
}

/* Whether @p object, the line that begins a run, names the job @p name. */
static bool has_name(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, "job"));
    const json_t *all = json_object_get(object, "jobs");
    bool found = text != NULL && strcmp(text, name) == 0;

    for (size_t i = 0; i < json_array_size(all); i++) {
        text = json_string_value(json_array_get(all, i));
        found = found || (text != NULL && strcmp(text, name) == 0);
    }
    return found;
}

static const struct cddpi_job_name *find_name(const char *line, const struct cddpi_job_name *names,
                                              int count)
{
    const struct cddpi_job_name *found = NULL;
    json_t *object = NULL;

    if (strncmp(line, RUN_BEGINS, sizeof RUN_BEGINS - 1) == 0) {
        object = json_loads(line, 0, NULL);
    }
    for (int i = 0; found == NULL && i < count; i++) {
        found = names[i].is_restart && has_name(object, names[i].text) ? &names[i] : NULL;
    }
    json_decref(object);
    return found;
}

bool cddpi_metrics_next_line(FILE *file, char line[CDDPI_METRICS_LINE_BYTES])
{
    /* It stays 0 unless a line fills the memory. */
    char *last = line + CDDPI_METRICS_LINE_BYTES - 2;

    *last = '\0';
    if (fgets(line, CDDPI_METRICS_LINE_BYTES, file) == NULL) {
        return false;
    }
    if (*last != '\0' && *last != '\n') {
        for (int byte = 0; byte != EOF && byte != '\n';) {
            byte = fgetc(file);
        }
        line[0] = '\0';
    }
    return true;
}

/* Open DIR/metrics.jsonl, and get memory for a line. *out_file is NULL if there is no such file. */
static cddp_status open_lines(const char *path, FILE **out_file, char **out_line)
{
    cddp_status status;

    *out_line = cddpi_zalloc(CDDPI_METRICS_LINE_BYTES);
    CDDPI_TRY_MEMORY(*out_line != NULL, "metrics: no memory");
    status = cddpi_file_stream(path, "r", out_file);
    return status == CDDP_ERR_NOT_FOUND ? CDDP_OK : status;
}

cddp_status cddpi_metrics_find_job(const char *dir, const struct cddpi_job_name *names, int count,
                                   const struct cddpi_job_name **out)
{
    char *path = cddpi_format("%s/metrics.jsonl", dir);
    FILE *file = NULL;
    char *line = NULL;
    cddp_status status = path != NULL ? open_lines(path, &file, &line)
                                      : cddpi_fail(CDDP_ERR_NO_MEMORY, "metrics: no memory");

    *out = NULL;
    while (file != NULL && *out == NULL && cddpi_metrics_next_line(file, line)) {
        *out = find_name(line, names, count);
    }
    if (file != NULL && ferror(file)) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "read %s", path);
    }
    cddpi_stream_close(file);
    cddpi_free(line);
    cddpi_free(path);
    return status;
}

static cddp_status put_kept(void *context, struct cddpi_writer *writer)
{
    struct metrics_cut *cut = context;

    while (cddpi_metrics_next_line(cut->from, cut->line)) {
        if (keep_line(cut)) {
            CDDPI_TRY(cddpi_writer_put(writer, cut->line, strlen(cut->line)));
        }
    }
    return ferror(cut->from) ? cddpi_fail_errno(CDDP_ERR_IO, errno, "read %s", writer->shown)
                             : CDDP_OK;
}

double cddpi_metrics_earlier_seconds(const struct cddpi_metrics *metrics)
{
    return metrics->earlier_seconds;
}

int cddpi_metrics_earlier_ranks(const struct cddpi_metrics *metrics)
{
    return metrics->earlier_ranks;
}

bool cddpi_metrics_has_evaluation(const struct cddpi_metrics *metrics)
{
    return metrics->has_evaluation;
}

/* Replace the file, if it exists, by its lines up to @p step. */
static cddp_status cut_after(struct cddpi_metrics *metrics, uint64_t step)
{
    struct metrics_cut cut = {.step = step};
    const char *path = metrics->path;
    cddp_status status = open_lines(path, &cut.from, &cut.line);

    if (cut.from != NULL) {
        status = cddpi_file_replace(path, put_kept, &cut);
        fclose(cut.from);
    }
    cddpi_free(cut.line);
    end_process(&cut);
    metrics->has_evaluation = cut.has_evaluation;
    metrics->earlier_seconds = cut.seconds;
    metrics->earlier_ranks = cut.ranks > 0 ? cut.ranks : 0;
    return status;
}

cddp_status cddpi_metrics_open(const char *dir, uint64_t step, bool tensorboard,
                               struct cddpi_metrics **out)
{
    struct cddpi_metrics *metrics = cddpi_zalloc(sizeof *metrics);
    cddp_status status;

    CDDPI_TRY_MEMORY(metrics != NULL, "metrics: no memory");
    metrics->fd = -1;
    metrics->path = cddpi_format("%s/metrics.jsonl", dir);
    if (metrics->path == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "metrics: no memory");
        goto fail;
    }
    CDDPI_TRY_GOTO(fail, status, cut_after(metrics, step));
    status = cddpi_file_open_regular(metrics->path, O_WRONLY | O_CREAT | O_APPEND, 0666,
                                     &metrics->fd);
    if (status != CDDP_OK) {
        (void)cddpi_fail_prefix(status, "%s", metrics->path);
        goto fail;
    }
    if (tensorboard) {
        CDDPI_TRY_GOTO(fail, status,
                       cddpi_tfevents_open(dir, step > 0 ? step + 1 : 0, &metrics->events));
    }
    *out = metrics;
    return CDDP_OK;

fail:
    cddpi_metrics_close(metrics);
    return status;
}

bool cddpi_metrics_is_there(const struct cddpi_metrics *metrics)
{
    return access(metrics->path, F_OK) == 0 || errno != ENOENT;
}

void cddpi_metrics_export(struct cddpi_metrics *metrics, struct cddpi_prometheus *prometheus)
{
    metrics->prometheus = prometheus;
}

void cddpi_metrics_move_export(struct cddpi_metrics *from, struct cddpi_metrics *to)
{
    to->prometheus = from->prometheus;
    from->prometheus = NULL;
}

void cddpi_metrics_close(struct cddpi_metrics *metrics)
{
    if (metrics == NULL) {
        return;
    }
    cddpi_tfevents_close(metrics->events);
    cddpi_prometheus_close(metrics->prometheus);
    cddpi_fd_close(&metrics->fd);
    cddpi_free(metrics->path);
    cddpi_free(metrics);
}

void cddpi_metrics_add_object(struct cddpi_metrics *metrics, json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    char *line = text != NULL ? cddpi_format("%s\n", text) : NULL;
    size_t bytes = line != NULL ? strlen(line) : 0;
    ssize_t wrote = line != NULL ? write(metrics->fd, line, bytes) : -1;

    /* an incomplete line is removed when the run is resumed */
    if (wrote != (ssize_t)bytes && !metrics->failed) {
        metrics->failed = true;
        cddpi_log(CDDPI_LOG_WARN, "%s: a line of metrics is lost: %s", metrics->path,
                  line == NULL ? "no memory"
                  : wrote < 0  ? strerror(errno)
                               : "the disk is full");
    }
    cddpi_free(line);
    free(text);
    json_decref(object);
}

static void add_event(struct cddpi_metrics *metrics, const char *prefix, uint64_t step,
                      const char *const *names, const double *values, size_t count)
{
    if (metrics->events != NULL &&
        cddpi_tfevents_add(metrics->events, step, prefix, names, values, count) != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "no more events for TensorBoard: %s", cddp_last_error());
        cddpi_tfevents_close(metrics->events);
        metrics->events = NULL;
    }
}

void cddpi_metrics_add_generation(struct cddpi_metrics *metrics, uint64_t step, int generation,
                                  int ranks)
{
    static const char *const names[] = {"generation", "ranks"};

    add_event(metrics, "job", step, names, (const double[]){generation, ranks}, 2);
}

void cddpi_metrics_add(struct cddpi_metrics *metrics, const char *prefix, uint64_t step,
                       uint64_t epoch, const char *const *names, const double *values, size_t count)
{
    json_t *object = json_object();
    struct timespec now;

    (void)json_object_set_new(object, "step", json_integer((json_int_t)step));
    (void)json_object_set_new(object, "epoch", json_integer((json_int_t)epoch));
    for (size_t i = 0; i < count; i++) {
        (void)json_object_set_new(object, names[i],
                                  isfinite(values[i]) ? json_real(values[i]) : json_null());
    }
    clock_gettime(CLOCK_REALTIME, &now);
    (void)json_object_set_new(
        object, "time_ms",
        json_integer((json_int_t)now.tv_sec * 1000 + (json_int_t)now.tv_nsec / 1000000));
    cddpi_metrics_add_object(metrics, object);
    cddpi_prometheus_update(metrics->prometheus, step, epoch, names, values, count);
    add_event(metrics, prefix, step, names, values, count);
}
