/* run_read.c - reads what a run has written. Files may be of strangers, or cut off. */
#include "report/run_read.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 1 << 22, MOST_CONFIG_BYTES = 1 << 20 };

static const char *const names[CDDPI_COLUMNS] = {
    [CDDPI_COLUMN_STEP] = "step",
    [CDDPI_COLUMN_LOSS] = "loss",
    [CDDPI_COLUMN_ACCURACY] = "accuracy",
    [CDDPI_COLUMN_EVAL_LOSS] = "eval_loss",
    [CDDPI_COLUMN_EVAL_ACCURACY] = "eval_accuracy",
    [CDDPI_COLUMN_SAMPLES_PER_S] = "samples_per_s",
    [CDDPI_COLUMN_STEP_MS] = "step_ms",
    [CDDPI_COLUMN_DATA_MS] = "data_ms",
    [CDDPI_COLUMN_FORWARD_MS] = "forward_ms",
    [CDDPI_COLUMN_BACKWARD_MS] = "backward_ms",
    [CDDPI_COLUMN_EXPOSED_MS] = "exposed_comm_ms",
    [CDDPI_COLUMN_OPTIMIZER_MS] = "optimizer_ms",
    [CDDPI_COLUMN_LR] = "lr",
    [CDDPI_COLUMN_GRAD_NORM] = "grad_norm",
    [CDDPI_COLUMN_PEAK_RSS_MIB] = "peak_rss_mib",
};

static bool make_room(struct cddpi_run_read *run, size_t *room)
{
    if (run->count < *room) {
        return true;
    }
    *room = *room > 0 ? *room * 2 : 256;
    for (int c = 0; c < CDDPI_COLUMNS; c++) {
        double *larger = cddpi_realloc(run->columns[c], *room * sizeof *larger);

        if (larger == NULL) {
            return false;
        }
        run->columns[c] = larger;
    }
    return true;
}

static void keep(json_t **place, json_t *object)
{
    json_decref(*place);
    *place = json_incref(object);
}

/* Take one line's object. */
static bool take(struct cddpi_run_read *run, json_t *object, size_t *room)
{
    const char *kind = json_string_value(json_object_get(object, "kind"));

    if (kind != NULL && strcmp(kind, "run") == 0) {
        keep(&run->begin, object);
        keep(&run->end, NULL);
        return true;
    }
    if (kind != NULL && strcmp(kind, "end") == 0) {
        keep(&run->end, object);
        return true;
    }
    if (kind != NULL || !json_is_number(json_object_get(object, "step")) ||
        run->count >= MOST_ROWS) {
        return true;
    }
    if (!make_room(run, room)) {
        return false;
    }
    for (int c = 0; c < CDDPI_COLUMNS; c++) {
        json_t *value = json_object_get(object, names[c]);

        run->columns[c][run->count] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    run->count++;
    return true;
}

static cddp_status read_metrics(struct cddpi_run_read *run)
{
    char *path = cddpi_format("%s/metrics.jsonl", run->dir);
    FILE *file = NULL;
    char *line = NULL;
    size_t line_room = 0;
    size_t room = 0;
    ssize_t bytes;
    cddp_status status = path != NULL ? cddpi_file_stream(path, "r", &file)
                                      : cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", run->dir);

    if (status != CDDP_OK) {
        cddpi_free(path);
        return status == CDDP_ERR_NOT_FOUND ? CDDP_ERR_IO : status;
    }
    while (status == CDDP_OK && (bytes = getline(&line, &line_room, file)) > 0) {
        json_t *object = json_loadb(line, (size_t)bytes, 0, NULL);

        if (object != NULL && !take(run, object, &room)) {
            status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for its lines", path);
        }
        json_decref(object);
    }
    free(line);
    fclose(file);
    if (status == CDDP_OK && run->count == 0 && run->begin == NULL) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s has no line of metrics", path);
    }
    cddpi_free(path);
    return status;
}

static void read_config(struct cddpi_run_read *run)
{
    char *path = cddpi_format("%s/train.conf", run->dir);
    FILE *file = NULL;
    size_t used;

    if (path != NULL && cddpi_file_stream(path, "r", &file) == CDDP_OK) {
        run->config = cddpi_zalloc(MOST_CONFIG_BYTES + 1);
        used = run->config != NULL ? fread(run->config, 1, MOST_CONFIG_BYTES, file) : 0;
        if (run->config != NULL) {
            run->config[used] = '\0';
        }
        fclose(file);
    }
    cddpi_free(path);
}

/* The last part of a path, whatever slashes are behind it. */
static char *name_of(const char *dir)
{
    size_t length = strlen(dir);
    size_t first;

    while (length > 1 && dir[length - 1] == '/') {
        length--;
    }
    first = length;
    while (first > 0 && dir[first - 1] != '/') {
        first--;
    }
    return cddpi_format("%.*s", (int)(length - first), dir + first);
}

cddp_status cddpi_run_read(const char *dir, struct cddpi_run_read *out)
{
    struct cddpi_run_read run = {.dir = cddpi_strdup(dir), .name = name_of(dir)};
    cddp_status status;

    if (run.dir == NULL || run.name == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", dir);
    } else {
        status = read_metrics(&run);
    }
    if (status != CDDP_OK) {
        cddpi_run_read_fini(&run);
        return status;
    }
    read_config(&run);
    *out = run;
    return CDDP_OK;
}

void cddpi_run_read_fini(struct cddpi_run_read *run)
{
    for (int c = 0; c < CDDPI_COLUMNS; c++) {
        cddpi_free(run->columns[c]);
    }
    cddpi_free(run->dir);
    cddpi_free(run->name);
    cddpi_free(run->config);
    json_decref(run->begin);
    json_decref(run->end);
    *run = (struct cddpi_run_read){0};
}

double cddpi_run_last(const struct cddpi_run_read *run, enum cddpi_column column)
{
    for (size_t i = run->count; i-- > 0;) {
        if (isfinite(run->columns[column][i])) {
            return run->columns[column][i];
        }
    }
    return NAN;
}

double cddpi_run_typical(const struct cddpi_run_read *run, enum cddpi_column column)
{
    double sum = 0;
    size_t there = 0;
    size_t seen = 0;
    size_t taken = 0;

    for (size_t i = 0; i < run->count; i++) {
        there += isfinite(run->columns[column][i]);
    }
    for (size_t i = 0; i < run->count; i++) {
        if (isfinite(run->columns[column][i]) && seen++ >= there / 2) {
            sum += run->columns[column][i];
            taken++;
        }
    }
    return taken > 0 ? sum / (double)taken : NAN;
}
