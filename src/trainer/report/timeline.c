/* timeline.c - draws one step of all ranks as SVG. The texts in it are not trusted. */
#include "report/timeline.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/utf8.h"
#include "report/report_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void cddpi_html_put(FILE *out, const char *text)
{
    char *clean = cddpi_utf8_clean(text, strlen(text));

    for (const char *at = clean; at != NULL && *at != '\0'; at++) {
        switch (*at) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            fputc(*at, out);
        }
    }
    cddpi_free(clean);
}

enum {
    WIDTH = 1000,
    LEFT = 76,
    RIGHT = 16,
    TOP = 56,
    COMPUTE_HEIGHT = 26,
    CALL_HEIGHT = 12,
    RANK_HEIGHT = COMPUTE_HEIGHT + CALL_HEIGHT + 22,
    DEVICE_HEIGHT = 16,
    MOST_DEVICES = 16, /* per rank */
    MOST_RANKS = 16,
    MOST_STEPS = 1000 /* to choose the median from */
};

/* The kinds of bars; the kinds of spans come first. */
static const struct {
    const char *name, *title;
    bool is_span;
} kinds[] = {{"data", "waiting for data", true},
             {"forward", "forward", true},
             {"backward", "backward", true},
             {"weights", "weights", true},
             {"wait", "waiting for communication", true},
             {"optimizer", "optimizer", true},
             {"call", "collectives", false},
             {"bucket", "bucket, as compute sees it", false}};

struct timeline {
    const struct cddpi_traced_step *step;
    double per_ns; /* pixels per nanosecond */
    FILE *out;
};

/* Draw the part of [@p begin, @p end) that is in the step as a bar, with @p label inside if it
 * fits. The tooltip also has @p details. */
static void draw_bar(const struct timeline *timeline, const char *kind, const char *label,
                     const char *details, int64_t begin, int64_t end, double y, double height)
{
    const struct cddpi_traced_step *step = timeline->step;
    int64_t from = begin > step->begin_ns ? begin : step->begin_ns;
    int64_t to = end < step->end_ns ? end : step->end_ns;
    double x = LEFT + (double)(from - step->begin_ns) * timeline->per_ns;
    double width = (double)(to - from) * timeline->per_ns;
    char text[200];

    if (from >= to) {
        return;
    }
    snprintf(text, sizeof text, "%s: %.3f ms%s%s", label, (double)(end - begin) * 1e-6,
             details[0] != '\0' ? "\n" : "", details);
    fprintf(timeline->out,
            "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" rx=\"1.5\">"
            "<title>",
            kind, x, y, width > 0.6 ? width : 0.6, height);
    cddpi_html_put(timeline->out, text);
    fputs("</title></rect>\n", timeline->out);
    if (height >= COMPUTE_HEIGHT && width > 7.0 * (double)strlen(label) + 6) {
        fprintf(timeline->out,
                "<text class=\"inside\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
                x + width / 2, y + height / 2 + 4);
        cddpi_html_put(timeline->out, label);
        fputs("</text>\n", timeline->out);
    }
}

/* The number of the rank's devices that have spans. */
static int devices_of(const struct cddpi_traced_rank *rank)
{
    int devices = 0;

    for (size_t i = 0; i < rank->span_count; i++) {
        devices = rank->spans[i].device >= devices ? rank->spans[i].device + 1 : devices;
    }
    return devices < MOST_DEVICES ? devices : MOST_DEVICES;
}

static double height_of(const struct cddpi_traced_rank *rank)
{
    return RANK_HEIGHT + DEVICE_HEIGHT * devices_of(rank);
}

/* The kind of bar for a span; NULL: it is not drawn in the rank's first row. */
static const char *kind_of(const struct cddpi_traced_span *span)
{
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        if (kinds[k].is_span && strcmp(kinds[k].name, span->name) == 0) {
            return kinds[k].name;
        }
    }
    return NULL;
}

/* Draw a row per device of the rank. Transfers between devices look like collectives. */
static void draw_devices(const struct timeline *timeline, const struct cddpi_traced_rank *rank,
                         double y)
{
    int devices = devices_of(rank);

    for (int d = 0; d < devices; d++) {
        fprintf(timeline->out,
                "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">device %d</text>\n",
                LEFT - 10, y + d * DEVICE_HEIGHT + CALL_HEIGHT - 2, d);
    }
    for (size_t i = 0; i < rank->span_count; i++) {
        const struct cddpi_traced_span *span = &rank->spans[i];
        char label[CDDPI_TRACE_NAME_BYTES + 24];

        if (span->device < 0 || span->device >= devices) {
            continue;
        }
        snprintf(label, sizeof label, "%s", span->name);
        if (span->number >= 0) {
            snprintf(label, sizeof label, "%s %lld", span->name, (long long)span->number);
        }
        draw_bar(timeline, kind_of(span) != NULL ? kind_of(span) : "call", label, "",
                 span->begin_ns, span->end_ns, y + span->device * DEVICE_HEIGHT, CALL_HEIGHT);
    }
}

/* Draw the rank's computing at @p y, and its buckets at @p below. */
static void draw_spans(const struct timeline *timeline, const struct cddpi_traced_rank *rank,
                       double y, double below)
{
    for (size_t i = 0; i < rank->span_count; i++) {
        const struct cddpi_traced_span *span = &rank->spans[i];
        const char *kind = kind_of(span);
        char label[64];
        char details[64];

        if (span->device < 0 && kind != NULL) {
            draw_bar(timeline, kind, kind, "", span->begin_ns, span->end_ns, y, COMPUTE_HEIGHT);
        } else if (strcmp(span->name, "bucket") == 0) {
            snprintf(label, sizeof label, "bucket %lld", (long long)span->number);
            snprintf(details, sizeof details, "%llu bytes", (unsigned long long)span->bytes);
            draw_bar(timeline, "bucket", label, details, span->begin_ns, span->end_ns, below,
                     CALL_HEIGHT);
        }
    }
}

static void draw_calls(const struct timeline *timeline, const struct cddpi_traced_rank *rank,
                       double y)
{
    for (size_t i = 0; i < rank->call_count; i++) {
        const struct cddpi_traced_call *call = &rank->calls[i];
        int64_t begin = call->started_ns != INT64_MIN ? call->started_ns : call->enqueued_ns;
        int64_t end = call->finished_ns != INT64_MIN ? call->finished_ns : timeline->step->end_ns;
        char label[96];
        char details[96];
        int used;

        if (begin == INT64_MIN) {
            continue;
        }
        snprintf(label, sizeof label, "%s #%llu", call->operation,
                 (unsigned long long)call->number);
        used = snprintf(details, sizeof details, "%llu bytes of %s",
                        (unsigned long long)call->bytes, call->type);
        if (call->bucket >= 0) {
            snprintf(details + used, sizeof details - (size_t)used, ", bucket %lld",
                     (long long)call->bucket);
        }
        draw_bar(timeline, "call", label, details, begin, end, y, CALL_HEIGHT);
    }
}

/* The smallest of 1, 2 or 5 times a power of ten that divides @p span into at most ten parts. */
static double tick_of(double span)
{
    double power = pow(10, floor(log10(span / 10)));

    return power * (span <= 10 * power ? 1 : span <= 20 * power ? 2 : span <= 50 * power ? 5 : 10);
}

static void draw_axis(const struct timeline *timeline, double height)
{
    double span_ms = (double)(timeline->step->end_ns - timeline->step->begin_ns) * 1e-6;
    double tick = span_ms > 0 ? tick_of(span_ms) : 1;

    for (int i = 0; i * tick <= span_ms * 1.0001; i++) {
        double x = LEFT + i * tick * 1e6 * timeline->per_ns;

        fprintf(timeline->out,
                "<path class=\"grid\" d=\"M%.1f %dV%.1f\"/><text class=\"soft\" x=\"%.1f\" "
                "y=\"%.1f\" text-anchor=\"middle\">%.4g</text>\n",
                x, TOP - 6, height - 38, x, height - 22, i * tick);
    }
    fprintf(timeline->out,
            "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">milliseconds since "
            "the step began on the first rank</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, height - 6);
}

static bool has_weights(const struct cddpi_traces *traces)
{
    for (int r = 0; r < traces->count; r++) {
        for (size_t i = 0; i < traces->ranks[r].span_count; i++) {
            if (strcmp(traces->ranks[r].spans[i].name, "weights") == 0) {
                return true;
            }
        }
    }
    return false;
}

static void draw_legend(const struct cddpi_traces *traces, FILE *out)
{
    double x = LEFT;

    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        if (strcmp(kinds[k].name, "weights") == 0 && !has_weights(traces)) {
            continue;
        }
        fprintf(out,
                "<rect class=\"%s\" x=\"%.1f\" y=\"30\" width=\"11\" height=\"11\" rx=\"2\"/>"
                "<text class=\"soft\" x=\"%.1f\" y=\"40\">%s</text>\n",
                kinds[k].name, x, x + 16, kinds[k].title);
        x += 16 + 6.1 * (double)strlen(kinds[k].title) + 18;
    }
}

static void draw_ranks(const struct timeline *timeline, const struct cddpi_traces *traces,
                       int count, double y)
{
    for (int r = 0; r < count; r++) {
        const struct cddpi_traced_rank *rank = &traces->ranks[r];
        double below = y + COMPUTE_HEIGHT + 3;

        fprintf(timeline->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">rank %d</text>\n",
                LEFT - 10, y + COMPUTE_HEIGHT / 2.0 + 4, rank->rank);
        draw_spans(timeline, rank, y, below);
        draw_calls(timeline, rank, below);
        draw_devices(timeline, rank, below + CALL_HEIGHT + 5);
        y += height_of(rank);
    }
}

static void draw(const struct cddpi_traces *traces, const struct cddpi_traced_step *step,
                 bool alone, FILE *out)
{
    double span_ns = (double)(step->end_ns - step->begin_ns);
    struct timeline timeline = {step, (WIDTH - LEFT - RIGHT) / fmax(span_ns, 1), out};
    int shown = traces->count < MOST_RANKS ? traces->count : MOST_RANKS;
    double height = TOP + 34;

    for (int r = 0; r < shown; r++) {
        height += height_of(&traces->ranks[r]);
    }
    fprintf(out,
            "<svg class=\"timeline\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
            "role=\"img\" aria-label=\"timeline of step %llu\">\n",
            WIDTH, height, (unsigned long long)step->step);
    if (alone) {
        fprintf(out, "<style>%s</style><rect class=\"ground\" width=\"%d\" height=\"%.0f\"/>\n",
                cddpi_picture_style, WIDTH, height);
    }
    fprintf(out, "<text class=\"title\" x=\"%d\" y=\"18\">step %llu: %.2f ms</text>\n", LEFT,
            (unsigned long long)step->step, span_ns * 1e-6);
    if (shown < traces->count) {
        fprintf(out,
                "<text class=\"soft\" x=\"%d\" y=\"18\" text-anchor=\"end\">the first %d of %d "
                "ranks</text>\n",
                WIDTH - RIGHT, shown, traces->count);
    }
    draw_legend(traces, out);
    draw_axis(&timeline, height);
    draw_ranks(&timeline, traces, shown, TOP + 4);
    fputs("</svg>\n", out);
}

cddp_status cddpi_timeline_put(const struct cddpi_traces *traces,
                               const struct cddpi_traced_step *step, bool alone,
                               struct cddpi_writer *writer)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    cddp_status status;

    if (memory != NULL) {
        draw(traces, step, alone, memory);
    }
    status = memory != NULL && fclose(memory) == 0
                 ? cddpi_writer_put(writer, text, bytes)
                 : cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the picture of a step");
    free(text);
    return status;
}

static int by_time(const void *a, const void *b)
{
    const struct cddpi_traced_step *x = a;
    const struct cddpi_traced_step *y = b;
    int64_t x_ns = x->end_ns - x->begin_ns;
    int64_t y_ns = y->end_ns - y->begin_ns;

    return (x_ns > y_ns) - (x_ns < y_ns);
}

bool cddpi_timeline_choose(const struct cddpi_traces *traces, struct cddpi_traced_step *out)
{
    struct cddpi_traced_step steps[MOST_STEPS];
    size_t count = 0;

    while (count < MOST_STEPS && cddpi_traces_step(traces, count, &steps[count])) {
        count++;
    }
    if (count == 0) {
        return false;
    }
    qsort(steps, count, sizeof *steps, by_time);
    *out = steps[count / 2];
    return true;
}
