/* report_page.c - owns report.html: reads the files of runs, and inserts their JSON and timelines
 * into page.html. The files are not trusted, and may end in the middle of a line. */
#include "report/report_page.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/replace.h"
#include "base/utf8.h"
#include "report/conf_keys.h"
#include "report/metrics.h"
#include "report/run_generations.h"
#include "report/sheets.h"
#include "report/timeline.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ROWS = 1 << 22, MOST_CONFIG_BYTES = 1 << 20 };
enum { MOST_POINTS = 1000, MOST_TEXTS = 20, MOST_TEXT_BYTES = 1 << 14 };

static const char *const columns[] = {
    "step",
    "loss",
    "accuracy",
    "eval_loss",
    "eval_accuracy",
    "step_ms",
    "data_ms",
    "forward_ms",
    "backward_ms",
    "exposed_comm_ms",
    "lr",
    "grad_norm",
    "samples_per_s",
    "optimizer_ms",
    "peak_rss_mib",
    "eval_perplexity",
    "tokens_per_s",
    "peer_wait_ms",
    "loss_g",
    "slowest_rank_ms",
    "median_rank_ms",
    "gpu_clock_mhz",
    "gpu_temperature_c",
    "gpu_memory_mib",
};
enum { STEP, COLUMNS = sizeof columns / sizeof columns[0] };

struct run_rows {
    double (*rows)[COLUMNS]; /* NaN: the line lacks this number */
    size_t count, room;
};

/* A page's numbers are doubles, so a larger integer, such as a seed, is passed as text. */
static void spell_large_integers(json_t *object)
{
    const json_int_t most = (json_int_t)1 << 53;

    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        json_int_t value = json_integer_value(json_object_iter_value(at));

        if (value > most || value < -most) {
            (void)json_object_iter_set_new(object, at, json_sprintf("%lld", (long long)value));
        }
    }
}

static cddp_status take_row(struct run_rows *rows, const json_t *line)
{
    if (rows->count == rows->room) {
        size_t room = rows->room > 0 ? rows->room * 2 : 256;
        void *larger = cddpi_realloc(rows->rows, room * sizeof *rows->rows);

        CDDPI_TRY_MEMORY(larger != NULL, "no memory for %zu lines of metrics", room);
        rows->rows = larger;
        rows->room = room;
    }
    for (size_t c = 0; c < COLUMNS; c++) {
        const json_t *value = json_object_get(line, columns[c]);

        rows->rows[rows->count][c] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    rows->count++;
    return CDDP_OK;
}

/* Copy @p text, with U+FFFD for everything that is not text; NULL becomes null. */
static json_t *to_clean_string(const char *text, size_t bytes)
{
    char *clean = cddpi_utf8_clean(text, bytes);
    json_t *string = clean != NULL ? json_string(clean) : json_null();

    cddpi_free(clean);
    return string;
}

/* A page shows the beginning of a text that is very long. */
static json_t *cut_string(const json_t *string)
{
    size_t bytes = json_string_length(string);

    return to_clean_string(json_is_string(string) ? json_string_value(string) : "",
                           bytes < MOST_TEXT_BYTES ? bytes : MOST_TEXT_BYTES);
}

/* Keep a text that the model wrote, and drop the oldest one where there are too many. */
static cddp_status take_text(const json_t *line, json_t *texts)
{
    const json_t *prompt = json_object_get(line, "prompt");
    const json_t *text = json_object_get(line, "text");
    const json_t *step = json_object_get(line, "step");
    json_t *kept;

    if (!json_is_string(text) || !json_is_number(step)) {
        return CDDP_OK;
    }
    kept = json_pack("{s:f, s:o, s:o}", "step", json_number_value(step), "prompt",
                     cut_string(prompt), "text", cut_string(text));
    CDDPI_TRY_MEMORY(kept != NULL && json_array_append_new(texts, kept) == 0,
                     "no memory for the texts of a run");
    if (json_array_size(texts) > MOST_TEXTS) {
        (void)json_array_remove(texts, 0);
    }
    return CDDP_OK;
}

static cddp_status take_line(json_t *line, json_t *run, struct run_rows *rows)
{
    const char *kind = json_string_value(json_object_get(line, "kind"));

    if (kind != NULL && strcmp(kind, "run") == 0) {
        cddpi_generation_collect(line, json_object_get(run, "generations"));
        spell_large_integers(line);
        (void)json_object_set(run, "begin", line);
        (void)json_object_set_new(run, "end", json_null());
    } else if (kind != NULL && strcmp(kind, "end") == 0) {
        (void)json_object_set(run, "end", line);
    } else if (kind != NULL && strcmp(kind, "sample") == 0) {
        return take_text(line, json_object_get(run, "texts"));
    } else if (kind == NULL && json_is_number(json_object_get(line, "step")) &&
               rows->count < MOST_ROWS) {
        return take_row(rows, line);
    }
    return CDDP_OK;
}

/* Summarise one column, as read_run() describes; NULL: the column has no number. */
static json_t *summarize_column(const struct run_rows *rows, size_t column)
{
    json_t *x = json_array();
    json_t *y = json_array();
    size_t count = 0;
    size_t seen = 0;
    double last = 0;
    double later_sum = 0;
    double sum_x = 0;
    double sum_y = 0;

    for (size_t i = 0; i < rows->count; i++) {
        count += isfinite(rows->rows[i][column]);
    }
    for (size_t i = 0, of_point = 0; i < rows->count; i++) {
        if (!isfinite(rows->rows[i][column])) {
            continue;
        }
        last = rows->rows[i][column];
        later_sum += seen++ >= count / 2 ? last : 0;
        sum_x += rows->rows[i][STEP];
        sum_y += last;
        if (++of_point < (count + MOST_POINTS - 1) / MOST_POINTS && seen < count) {
            continue;
        }
        if (isfinite(sum_x) && isfinite(sum_y) && column != STEP) {
            (void)json_array_append_new(x, json_real(sum_x / (double)of_point));
            (void)json_array_append_new(y, json_real(sum_y / (double)of_point));
        }
        of_point = 0;
        sum_x = sum_y = 0;
    }
    later_sum /= (double)(count - count / 2);
    return json_pack("{s:f, s:f, s:o, s:o}", "last", last, "typical",
                     isfinite(later_sum) ? later_sum : last, "x", x, "y", y);
}

static json_t *summarize_columns(const struct run_rows *rows)
{
    json_t *metrics = json_object();

    for (size_t c = 0; c < COLUMNS; c++) {
        for (size_t i = 0; i < rows->count; i++) {
            if (isfinite(rows->rows[i][c])) {
                (void)json_object_set_new(metrics, columns[c], summarize_column(rows, c));
                break;
            }
        }
    }
    return metrics;
}

static cddp_status read_lines(FILE *file, char *line, json_t *run, struct run_rows *rows)
{
    while (cddpi_metrics_next_line(file, line)) {
        json_t *object = json_loads(line, 0, NULL);
        cddp_status status = object != NULL ? take_line(object, run, rows) : CDDP_OK;

        json_decref(object);
        CDDPI_TRY(status);
    }
    return CDDP_OK;
}

static cddp_status read_metrics(const char *dir, json_t *run)
{
    char *path = cddpi_format("%s/metrics.jsonl", dir);
    char *line = cddpi_zalloc(CDDPI_METRICS_LINE_BYTES);
    struct run_rows rows = {0};
    FILE *file = NULL;
    cddp_status status;

    if (path == NULL || line == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory to read its metrics", dir);
        goto out;
    }
    CDDPI_TRY_GOTO(out, status, cddpi_file_stream(path, "r", &file));
    CDDPI_TRY_GOTO(out, status, read_lines(file, line, run, &rows));
    if (rows.count == 0 && json_is_null(json_object_get(run, "begin"))) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s has no line of metrics", path);
        goto out;
    }
    if (json_object_set_new(run, "metrics", summarize_columns(&rows)) != 0) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for its curves", path);
    }

out:
    cddpi_stream_close(file);
    cddpi_free(rows.rows);
    cddpi_free(line);
    cddpi_free(path);
    return status;
}

static json_t *read_config(const char *dir)
{
    char *path = cddpi_format("%s/train.conf", dir);
    char *text = cddpi_zalloc(MOST_CONFIG_BYTES);
    json_t *config = NULL;
    FILE *file;

    if (path != NULL && text != NULL && cddpi_file_stream(path, "r", &file) == CDDP_OK) {
        config = to_clean_string(text, fread(text, 1, MOST_CONFIG_BYTES, file));
        fclose(file);
    }
    cddpi_free(text);
    cddpi_free(path);
    return config != NULL ? config : json_null();
}

/* Read run @p dir as the object that page.html draws:
 *    dir, name   the path of the folder, and its own name
 *    begin, end  the last line of kind "run", and the "end" that follows it; null: no such line
 *    config      the text of train.conf; null: no such file
 *    metrics     for each column that has a number: last; typical, the mean of the later half; x
 *                (steps) and y, at most a thousand points. If there are more steps, each point is
 *                the mean of several. Column "step" has only last.
 *    generations where the job's generations begin, in order, as run_generations.h describes them
 *    texts       what a language model wrote last, at most MOST_TEXTS: step, prompt, text
 *    differs     in which keys of train.conf the runs differ: see compare_configs()
 *    sheets      sheets of generated images, as sheets.h describes them
 *  Lines that are not metrics are skipped. All text is UTF-8. */
static cddp_status read_run(const char *dir, json_t **out)
{
    size_t end = strlen(dir);
    size_t name;
    json_t *run;
    cddp_status status;

    while (end > 1 && dir[end - 1] == '/') {
        end--;
    }
    for (name = end; name > 0 && dir[name - 1] != '/';) {
        name--;
    }
    run = json_pack("{s:o, s:o, s:n, s:n, s:[], s:[]}", "dir", to_clean_string(dir, strlen(dir)),
                    "name", to_clean_string(dir + name, end - name), "begin", "end", "texts",
                    "generations");
    CDDPI_TRY_MEMORY(run != NULL, "%s: no memory", dir);
    status = read_metrics(dir, run);
    status = status == CDDP_OK ? cddpi_sheets_read(dir, run) : status;
    if (status == CDDP_OK && json_object_set_new(run, "config", read_config(dir)) != 0) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", dir);
    }
    if (status != CDDP_OK) {
        json_decref(run);
        return status;
    }
    *out = run;
    return CDDP_OK;
}

/* Set "differs" of each run: the keys whose values are not the same in the train.conf's of all runs
 * that have one, with its own value; a run that lacks the key has null. Where a run's files are is
 * no difference. */
static cddp_status compare_configs(json_t *runs)
{
    size_t count = json_array_size(runs);
    struct cddpi_conf_keys *lists = cddpi_zalloc_array(count + 1, sizeof *lists);
    json_t **of_list = cddpi_zalloc_array(count + 1, sizeof *of_list);
    cddp_status status = CDDP_OK;
    size_t compared = 0;
    size_t at = 0;
    const char *path;

    if (lists == NULL || of_list == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory to compare %zu configurations", count);
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        json_t *run = json_array_get(runs, i);
        const char *text = json_string_value(json_object_get(run, "config"));

        (void)json_object_set_new(run, "differs", json_object());
        if (text != NULL) {
            of_list[compared] = run;
            CDDPI_TRY_GOTO(out, status, cddpi_conf_keys_read(text, &lists[compared++]));
        }
    }
    while ((path = cddpi_conf_keys_differ(lists, compared, &at)) != NULL) {
        for (size_t i = 0; strcmp(path, "train.run_dir") != 0 && i < compared; i++) {
            const char *value = cddpi_conf_keys_value(&lists[i], path);

            (void)json_object_set_new(json_object_get(of_list[i], "differs"), path,
                                      value != NULL ? to_clean_string(value, strlen(value))
                                                    : json_null());
        }
    }

out:
    for (size_t i = 0; lists != NULL && i < compared; i++) {
        cddpi_conf_keys_fini(&lists[i]);
    }
    cddpi_free(lists);
    cddpi_free(of_list);
    return status;
}

static cddp_status put_text(struct cddpi_writer *writer, const char *text)
{
    return cddpi_writer_put(writer, text, strlen(text));
}

struct json_writer {
    struct cddpi_writer *writer;
    cddp_status status;
};

/* Write a part of a JSON text inside <script>. Only "<" can begin something that ends the script.
 * In JSON, "<" occurs only in strings, where \u003c means the same. */
static int put_json(const char *text, size_t bytes, void *context)
{
    struct json_writer *json = context;

    for (const char *end = text + bytes; text < end && json->status == CDDP_OK;) {
        const char *mark = memchr(text, '<', (size_t)(end - text));

        if (mark == text) {
            json->status = put_text(json->writer, "\\u003c");
            text++;
            continue;
        }
        json->status = cddpi_writer_put(json->writer, text,
                                        (size_t)((mark != NULL ? mark : end) - text));
        text = mark != NULL ? mark : end;
    }
    return json->status == CDDP_OK ? 0 : -1;
}

static cddp_status put_runs(struct cddpi_writer *writer, const json_t *runs)
{
    struct json_writer json = {writer, CDDP_OK};

    if (json_dump_callback(runs, put_json, &json, JSON_COMPACT | JSON_REAL_PRECISION(9)) != 0 &&
        json.status == CDDP_OK) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a page about %zu runs",
                          json_array_size(runs));
    }
    return json.status;
}

/* Write a run's timeline. A run has none if it has no trace, or an unreadable one. */
static cddp_status put_timeline(struct cddpi_writer *writer, const char *dir, int number)
{
    struct cddpi_traces traces;
    struct cddpi_traced_step step;
    cddp_status status = CDDP_OK;
    char head[80];

    if (cddpi_traces_read_folder(dir, &traces) != CDDP_OK) {
        return CDDP_OK;
    }
    if (cddpi_timeline_choose(&traces, &step)) {
        snprintf(head, sizeof head, "<figure class=\"card scroll\" data-run=\"%d\">\n", number);
        CDDPI_TRY_GOTO(out, status, put_text(writer, head));
        CDDPI_TRY_GOTO(out, status, cddpi_timeline_put(&traces, &step, false, writer));
        CDDPI_TRY_GOTO(out, status, put_text(writer, "</figure>\n"));
    }

out:
    cddpi_traces_fini(&traces);
    return status;
}

struct report_page {
    const char **dirs; /* borrowed */
    int count;
    json_t *runs; /* an array of objects by read_run() */
};

/* Read the run in @p dir. One that ended before it began to train has no metrics, and is left out
 * if there are others. A folder that does not exist is a mistake in its name. */
static cddp_status add_run(struct report_page *page, const char *dir, bool may_lack)
{
    json_t *run = NULL;
    cddp_status status = read_run(dir, &run);

    if (may_lack && (status == CDDP_ERR_NOT_FOUND || status == CDDP_ERR_FORMAT) &&
        access(dir, F_OK) == 0) {
        cddpi_log(CDDPI_LOG_WARN, "%s: it is left out", cddp_last_error());
        return CDDP_OK;
    }
    CDDPI_TRY(status);
    CDDPI_TRY_MEMORY(json_array_append_new(page->runs, run) == 0, "%s: no memory", dir);
    page->dirs[page->count++] = dir;
    return CDDP_OK;
}

static cddp_status put_page(void *context, struct cddpi_writer *writer)
{
    const struct report_page *page = context;

    CDDPI_TRY(put_text(writer, cddpi_page_head));
    for (int i = 0; i < page->count; i++) {
        CDDPI_TRY(put_timeline(writer, page->dirs[i], i));
    }
    CDDPI_TRY(put_text(writer, cddpi_page_body));
    CDDPI_TRY(put_runs(writer, page->runs));
    return put_text(writer, cddpi_page_tail);
}

cddp_status cddpi_report_page_write(char *const *dirs, int count, const char *path)
{
    struct report_page page = {.dirs = cddpi_zalloc_array((size_t)count + 1, sizeof *page.dirs),
                               .runs = json_array()};
    cddp_status status = CDDP_OK;

    if (page.dirs == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d runs", count);
        goto out;
    }
    for (int i = 0; i < count; i++) {
        bool may_lack = page.count > 0 || i + 1 < count;

        CDDPI_TRY_GOTO(out, status, add_run(&page, dirs[i], may_lack));
    }
    CDDPI_TRY_GOTO(out, status, compare_configs(page.runs));
    status = cddpi_file_replace(path, put_page, &page);

out:
    json_decref(page.runs);
    cddpi_free(page.dirs);
    return status;
}
