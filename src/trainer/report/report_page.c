/* report_page.c - owns report.html: inserts the timelines and the runs' JSON into page.html. */
#include "report/report_page.h"

#include "base/error.h"
#include "base/replace.h"
#include "report/page_parts.h"
#include "report/run_read.h"
#include "report/timeline.h"

#include <stdio.h>
#include <string.h>

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
    char *const *dirs;
    int count;
    json_t *runs; /* an array of objects by cddpi_run_read() */
};

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
    struct report_page page = {dirs, count, json_array()};
    cddp_status status = CDDP_OK;

    for (int i = 0; i < count; i++) {
        json_t *run = NULL;

        CDDPI_TRY_GOTO(out, status, cddpi_run_read(dirs[i], &run));
        if (json_array_append_new(page.runs, run) != 0) {
            status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for %d runs", count);
            goto out;
        }
    }
    status = cddpi_file_replace(path, put_page, &page);

out:
    json_decref(page.runs);
    return status;
}
