/* report_page.c - owns what a page about runs shows, and in which order. */
#include "report/report_page.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/replace.h"
#include "report/chart.h"
#include "report/html.h"
#include "report/run_read.h"
#include "report/timeline.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct report_page {
    struct cddpi_run_read *runs;
    int count;
    FILE *out;
};

/* printf() as escaped text. */
static void put(const struct report_page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put(const struct report_page *page, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cddpi_html_put(page->out, text);
}

static void put_tile(const struct report_page *page, const char *what, const char *format,
                     double value)
{
    char text[64];

    if (!isfinite(value)) {
        return;
    }
    snprintf(text, sizeof text, format, value);
    fputs("<div class=\"tile\"><b>", page->out);
    put(page, "%s", text);
    fputs("</b><span>", page->out);
    put(page, "%s", what);
    fputs("</span></div>\n", page->out);
}

static double of_end(const struct cddpi_run_read *run, const char *name)
{
    const json_t *value = json_object_get(run->end, name);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static double exposed_percent(const struct cddpi_run_read *run)
{
    return 100 * cddpi_run_typical(run, CDDPI_COLUMN_EXPOSED_MS) /
           cddpi_run_typical(run, CDDPI_COLUMN_STEP_MS);
}

/* What became of a run, as far as its files say. */
static const char *state_of(const struct cddpi_run_read *run)
{
    return run->end == NULL                                          ? "not ended"
           : json_is_true(json_object_get(run->end, "stopped")) != 0 ? "stopped early"
                                                                     : "complete";
}

/* The numbers of a summary: as tiles of one run, as columns of several. */
static const struct {
    const char *what, *format;
} numbers[] = {{"test accuracy", "%.2f %%"},
               {"test loss", "%.4f"},
               {"training loss", "%.4f"},
               {"samples per second", "%.0f"},
               {"ms per step", "%.2f"},
               {"exposed communication", "%.1f %%"},
               {"peak memory, rank 0", "%.0f MiB"},
               {"seconds in all", "%.1f"}};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static double number_of(const struct cddpi_run_read *run, int which)
{
    switch (which) {
    case 0:
        return 100 * cddpi_run_last(run, CDDPI_COLUMN_EVAL_ACCURACY);
    case 1:
        return cddpi_run_last(run, CDDPI_COLUMN_EVAL_LOSS);
    case 2:
        return cddpi_run_last(run, CDDPI_COLUMN_LOSS);
    case 3:
        return cddpi_run_typical(run, CDDPI_COLUMN_SAMPLES_PER_S);
    case 4:
        return cddpi_run_typical(run, CDDPI_COLUMN_STEP_MS);
    case 5:
        return exposed_percent(run);
    case 6:
        return run->end != NULL ? of_end(run, "peak_rss_mib")
                                : cddpi_run_last(run, CDDPI_COLUMN_PEAK_RSS_MIB);
    default:
        return of_end(run, "seconds");
    }
}

static void put_comparison(const struct report_page *page)
{
    fputs("<div class=\"card scroll\"><table><tr><th>run</th>", page->out);
    for (int n = 0; n < NUMBERS; n++) {
        fputs("<th class=\"n\">", page->out);
        put(page, "%s", numbers[n].what);
        fputs("</th>", page->out);
    }
    fputs("<th>state</th></tr>\n", page->out);
    for (int r = 0; r < page->count; r++) {
        fprintf(page->out, "<tr><td><span class=\"swatch\" style=\"background:var(--c%d)\"></span>",
                r % CDDPI_CURVE_COLOURS);
        put(page, "%s", page->runs[r].name);
        fputs("</td>", page->out);
        for (int n = 0; n < NUMBERS; n++) {
            double value = number_of(&page->runs[r], n);
            char text[64] = "–";

            if (isfinite(value)) {
                snprintf(text, sizeof text, numbers[n].format, value);
            }
            fputs("<td class=\"n\">", page->out);
            put(page, "%s", text);
            fputs("</td>", page->out);
        }
        fprintf(page->out, "<td>%s</td></tr>\n", state_of(&page->runs[r]));
    }
    fputs("</table></div>\n", page->out);
}

static void put_head(const struct report_page *page)
{
    const struct cddpi_run_read *first = &page->runs[0];

    fputs("<h1>", page->out);
    if (page->count == 1) {
        put(page, "%s", first->name);
    } else {
        put(page, "%d runs", page->count);
    }
    fputs("</h1>\n<div class=\"dim\">", page->out);
    if (page->count == 1) {
        put(page, "%s, %.0f steps, %s", first->dir, cddpi_run_last(first, CDDPI_COLUMN_STEP),
            state_of(first));
    } else {
        put(page, "compared by cddp-report");
    }
    fputs("</div>\n", page->out);
    if (page->count > 1) {
        put_comparison(page);
        return;
    }
    fputs("<div class=\"tiles\">\n", page->out);
    for (int n = 0; n < NUMBERS; n++) {
        put_tile(page, numbers[n].what, numbers[n].format, number_of(first, n));
    }
    fputs("</div>\n", page->out);
}

/* Of each run a curve of @p column, and a dashed one of @p second (CDDPI_COLUMNS: none). */
static void put_chart(const struct report_page *page, const char *title, const char *unit,
                      bool from_zero, enum cddpi_column column, enum cddpi_column second)
{
    struct cddpi_curve *curves = cddpi_zalloc_array((size_t)page->count * 2, sizeof *curves);
    char(*names)[160] = cddpi_zalloc_array((size_t)page->count, sizeof *names);
    struct cddpi_chart chart = {title, unit, from_zero, curves, 0};

    for (int r = 0; curves != NULL && names != NULL && r < page->count; r++) {
        const struct cddpi_run_read *run = &page->runs[r];

        snprintf(names[r], sizeof names[r], "%.120s%s%s", page->count > 1 ? run->name : "",
                 page->count > 1 ? ", " : "", "training");
        curves[chart.curve_count++] = (struct cddpi_curve){
            second != CDDPI_COLUMNS && page->count == 1 ? "test" : run->name,
            r,
            false,
            run->columns[CDDPI_COLUMN_STEP],
            run->columns[column],
            run->count};
        if (second != CDDPI_COLUMNS) {
            curves[chart.curve_count++] = (struct cddpi_curve){names[r],
                                                               page->count == 1 ? 1 : r,
                                                               true,
                                                               run->columns[CDDPI_COLUMN_STEP],
                                                               run->columns[second],
                                                               run->count};
        }
    }
    if (curves != NULL && names != NULL && cddpi_chart_has_points(&chart)) {
        fputs("<div class=\"card\">\n", page->out);
        cddpi_chart_draw(&chart, page->out);
        fputs("</div>\n", page->out);
    }
    cddpi_free(curves);
    cddpi_free(names);
}

static void put_charts(const struct report_page *page)
{
    static const char second[] = "test; dashed: training";

    fputs("<h2>Training</h2>\n<div class=\"charts\">\n", page->out);
    put_chart(page, "loss", page->count > 1 ? second : "", false, CDDPI_COLUMN_EVAL_LOSS,
              CDDPI_COLUMN_LOSS);
    put_chart(page, "accuracy", page->count > 1 ? second : "", false, CDDPI_COLUMN_EVAL_ACCURACY,
              CDDPI_COLUMN_ACCURACY);
    put_chart(page, "throughput", "samples per second", true, CDDPI_COLUMN_SAMPLES_PER_S,
              CDDPI_COLUMNS);
    put_chart(page, "exposed communication", "ms per step", true, CDDPI_COLUMN_EXPOSED_MS,
              CDDPI_COLUMNS);
    put_chart(page, "time of a step", "ms", true, CDDPI_COLUMN_STEP_MS, CDDPI_COLUMNS);
    put_chart(page, "peak memory of rank 0", "MiB", true, CDDPI_COLUMN_PEAK_RSS_MIB, CDDPI_COLUMNS);
    put_chart(page, "learning rate", "", true, CDDPI_COLUMN_LR, CDDPI_COLUMNS);
    put_chart(page, "norm of the gradient", "", true, CDDPI_COLUMN_GRAD_NORM, CDDPI_COLUMNS);
    fputs("</div>\n", page->out);
}

/* How a step's time divides, as one bar for each run. */
static void put_parts(const struct report_page *page)
{
    static const struct {
        const char *kind, *title;
        enum cddpi_column column;
    } parts[] = {{"data", "waiting for data", CDDPI_COLUMN_DATA_MS},
                 {"forward", "forward", CDDPI_COLUMN_FORWARD_MS},
                 {"backward", "backward", CDDPI_COLUMN_BACKWARD_MS},
                 {"wait", "waiting for communication", CDDPI_COLUMN_EXPOSED_MS},
                 {"optimizer", "optimizer", CDDPI_COLUMN_OPTIMIZER_MS}};
    double longest = 0;
    int row = 0;

    for (int r = 0; r < page->count; r++) {
        longest = fmax(longest, cddpi_run_typical(&page->runs[r], CDDPI_COLUMN_STEP_MS));
    }
    if (!(longest > 0)) {
        return;
    }
    fprintf(page->out,
            "<h2>Where a step's time goes</h2>\n<div class=\"card\"><svg class=\"timeline\" "
            "viewBox=\"0 0 1000 %d\" role=\"img\" aria-label=\"parts of a step\">\n",
            34 + 34 * page->count);
    for (size_t p = 0, x = 130; p < sizeof parts / sizeof parts[0]; p++) {
        fprintf(page->out,
                "<rect class=\"%s\" x=\"%zu\" y=\"6\" width=\"11\" height=\"11\" rx=\"2\"/><text "
                "class=\"soft\" x=\"%zu\" y=\"16\">%s</text>\n",
                parts[p].kind, x, x + 16, parts[p].title);
        x += 40 + 6 * strlen(parts[p].title);
    }
    for (int r = 0; r < page->count; r++, row++) {
        double x = 130;
        double y = 30 + 34.0 * row;
        char name[24];

        snprintf(name, sizeof name, "%.18s", page->runs[r].name);
        fprintf(page->out, "<text x=\"120\" y=\"%.1f\" text-anchor=\"end\">", y + 17);
        put(page, "%s", name);
        fputs("</text>\n", page->out);
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            double ms = cddpi_run_typical(&page->runs[r], parts[p].column);
            double width = isfinite(ms) ? ms / longest * 760 : 0;

            if (width > 0) {
                fprintf(page->out,
                        "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"24\" "
                        "data-tip=\"%s: %.3f ms\"><title>%s: %.3f ms</title></rect>\n",
                        parts[p].kind, x, y, width, parts[p].title, ms, parts[p].title, ms);
                x += width;
            }
        }
        fprintf(page->out, "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\">%.2f ms</text>\n",
                130 + 760 * cddpi_run_typical(&page->runs[r], CDDPI_COLUMN_STEP_MS) / longest + 10,
                y + 17, cddpi_run_typical(&page->runs[r], CDDPI_COLUMN_STEP_MS));
    }
    fputs("</svg></div>\n", page->out);
}

static void put_timeline(const struct report_page *page, const struct cddpi_run_read *run)
{
    struct cddpi_traces traces;
    struct cddpi_traced_step step;

    if (cddpi_traces_read_folder(run->dir, &traces) != CDDP_OK) {
        return;
    }
    if (cddpi_timeline_choose(&traces, &step)) {
        fputs("<h2>", page->out);
        put(page, "One step of all ranks%s%s", page->count > 1 ? ": " : "",
            page->count > 1 ? run->name : "");
        fputs("</h2>\n<div class=\"card\">\n", page->out);
        cddpi_timeline_draw(&traces, &step, false, page->out);
        fputs("</div>\n", page->out);
    }
    cddpi_traces_fini(&traces);
}

static void put_value(const struct report_page *page, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));

    if (json_is_string(value)) {
        cddpi_html_put(page->out, json_string_value(value));
    } else if (text != NULL) {
        cddpi_html_put(page->out, text);
    }
    free(text);
}

/* The line with which a run begins: who ran it where. */
static void put_machine(const struct report_page *page)
{
    static const char *const names[] = {
        "version",       "world_size",   "device",     "backend",     "host",
        "threads",       "products",     "batch_size", "accumulate",  "parameters",
        "train_samples", "test_samples", "seed",       "peak_tflops", "job"};

    fputs("<h2>Machine and run</h2>\n<div class=\"card scroll\"><table>\n", page->out);
    if (page->count > 1) {
        fputs("<tr><th></th>", page->out);
        for (int r = 0; r < page->count; r++) {
            fputs("<th>", page->out);
            put(page, "%s", page->runs[r].name);
            fputs("</th>", page->out);
        }
        fputs("</tr>\n", page->out);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool any = false;

        for (int r = 0; r < page->count; r++) {
            any = any || json_object_get(page->runs[r].begin, names[i]) != NULL;
        }
        if (!any) {
            continue;
        }
        fprintf(page->out, "<tr><th>%s</th>", names[i]);
        for (int r = 0; r < page->count; r++) {
            const json_t *value = json_object_get(page->runs[r].begin, names[i]);

            fputs("<td>", page->out);
            if (value != NULL) {
                put_value(page, value);
            }
            fputs("</td>", page->out);
        }
        fputs("</tr>\n", page->out);
    }
    fputs("</table></div>\n", page->out);
}

static void put_configs(const struct report_page *page)
{
    fputs("<h2>Configuration</h2>\n", page->out);
    for (int r = 0; r < page->count; r++) {
        const struct cddpi_run_read *run = &page->runs[r];

        if (run->config == NULL) {
            continue;
        }
        fprintf(page->out, "<details%s><summary>", page->count == 1 ? " open" : "");
        put(page, "%s/train.conf", run->name);
        fputs("</summary>\n<div class=\"card scroll\"><pre>", page->out);
        cddpi_html_put(page->out, run->config);
        fputs("</pre></div></details>\n", page->out);
    }
}

static void put_page(const struct report_page *page)
{
    cddpi_html_begin(page->out, page->count == 1 ? page->runs[0].name : "cddp runs");
    put_head(page);
    put_charts(page);
    put_parts(page);
    for (int r = 0; r < page->count; r++) {
        put_timeline(page, &page->runs[r]);
    }
    put_machine(page);
    put_configs(page);
    cddpi_html_end(page->out);
}

static cddp_status put_all(void *context, struct cddpi_writer *writer)
{
    struct report_page *page = context;
    char *text = NULL;
    size_t bytes = 0;
    cddp_status status = CDDP_OK;

    page->out = open_memstream(&text, &bytes);
    if (page->out != NULL) {
        put_page(page);
    }
    if (page->out == NULL || fclose(page->out) != 0) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a page about %d runs", page->count);
    }
    if (status == CDDP_OK) {
        status = cddpi_writer_put(writer, text, bytes);
    }
    free(text);
    return status;
}

cddp_status cddpi_report_page_write(char *const *dirs, int count, const char *path)
{
    struct report_page page = {cddpi_zalloc_array((size_t)count, sizeof *page.runs), 0, NULL};
    cddp_status status = CDDP_OK;

    if (page.runs == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d runs", count);
    }
    while (page.count < count && status == CDDP_OK) {
        status = cddpi_run_read(dirs[page.count], &page.runs[page.count]);
        page.count += status == CDDP_OK;
    }
    if (status == CDDP_OK) {
        status = cddpi_file_replace(path, put_all, &page);
    }
    for (int r = 0; r < page.count; r++) {
        cddpi_run_read_fini(&page.runs[r]);
    }
    cddpi_free(page.runs);
    return status;
}
