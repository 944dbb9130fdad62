/* timeline.c - draws one step of all ranks as SVG. */
#include "report/timeline.h"

#include "base/alloc.h"
#include "report/html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 1000,
    LEFT = 76,
    RIGHT = 16,
    TOP = 56,
    COMPUTE_HEIGHT = 26,
    CALL_HEIGHT = 12,
    RANK_HEIGHT = COMPUTE_HEIGHT + CALL_HEIGHT + 22,
    DEVICE_HEIGHT = 16,
    MOST_DEVICES = 16, /* of a rank */
    MOST_RANKS = 16
};

/* What bars are drawn as: the kinds of spans first. */
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

struct scale {
    const struct cddpi_traced_step *step;
    double per_ns; /* pixels */
};

static double place(const struct scale *scale, int64_t ns)
{
    return LEFT + (double)(ns - scale->step->begin_ns) * scale->per_ns;
}

/* The part of [begin, end) that is in the step; false: none of it. */
static bool clip(const struct scale *scale, int64_t *begin, int64_t *end)
{
    *begin = *begin > scale->step->begin_ns ? *begin : scale->step->begin_ns;
    *end = *end < scale->step->end_ns ? *end : scale->step->end_ns;
    return *begin < *end;
}

/* A bar, with its text in it where that fits; @p details go into its tooltip. */
static void draw_bar(const struct scale *scale, const char *kind, const char *label,
                     const char *details, int64_t begin, int64_t end, double y, double height,
                     FILE *out)
{
    double took_ms = (double)(end - begin) * 1e-6;
    int64_t from = begin;
    double x;
    double width;
    char text[160];

    if (!clip(scale, &from, &end)) {
        return;
    }
    x = place(scale, from);
    width = (double)(end - from) * scale->per_ns;
    snprintf(text, sizeof text, "%s: %.3f ms%s%s", label, took_ms, details[0] != '\0' ? "\n" : "",
             details);
    fprintf(out,
            "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" rx=\"1.5\" "
            "data-tip=\"",
            kind, x, y, width > 0.6 ? width : 0.6, height);
    cddpi_html_put(out, text);
    fputs("\"><title>", out);
    cddpi_html_put(out, text);
    fputs("</title></rect>\n", out);
    if (height >= COMPUTE_HEIGHT && width > 7.0 * (double)strlen(label) + 6) {
        fprintf(out, "<text class=\"inside\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
                x + width / 2, y + height / 2 + 4);
        cddpi_html_put(out, label);
        fputs("</text>\n", out);
    }
}

/* How many devices of the rank have spans of their own. */
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

/* Which of the kinds a span is drawn as; NULL: it is not drawn in the rank's first line. */
static const char *kind_of(const struct cddpi_traced_span *span)
{
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        if (kinds[k].is_span && strcmp(kinds[k].name, span->name) == 0) {
            return kinds[k].name;
        }
    }
    return NULL;
}

/* What goes between devices is drawn as collectives are. */
static void draw_device_span(const struct scale *scale, const struct cddpi_traced_span *span,
                             double y, FILE *out)
{
    const char *kind = kind_of(span) != NULL ? kind_of(span) : "call";
    char label[CDDPI_TRACE_NAME_BYTES + 24];

    snprintf(label, sizeof label, "%s", span->name);
    if (span->number >= 0) {
        snprintf(label, sizeof label, "%s %lld", span->name, (long long)span->number);
    }
    draw_bar(scale, kind, label, "", span->begin_ns, span->end_ns, y, CALL_HEIGHT, out);
}

static void draw_devices(const struct scale *scale, const struct cddpi_traced_rank *rank, double y,
                         FILE *out)
{
    int devices = devices_of(rank);

    y += COMPUTE_HEIGHT + CALL_HEIGHT + 8;
    for (int d = 0; d < devices; d++) {
        fprintf(out,
                "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">device %d</text>\n",
                LEFT - 10, y + d * DEVICE_HEIGHT + CALL_HEIGHT - 2, d);
    }
    for (size_t i = 0; i < rank->span_count; i++) {
        const struct cddpi_traced_span *span = &rank->spans[i];

        if (span->device >= 0 && span->device < devices) {
            draw_device_span(scale, span, y + span->device * DEVICE_HEIGHT, out);
        }
    }
}

static void draw_spans(const struct scale *scale, const struct cddpi_traced_rank *rank, double y,
                       FILE *out)
{
    for (size_t i = 0; i < rank->span_count; i++) {
        const struct cddpi_traced_span *span = &rank->spans[i];
        const char *kind = span->device < 0 ? kind_of(span) : NULL; /* devices have rows below */
        char label[64];
        char details[64];

        if (kind != NULL) {
            draw_bar(scale, kind, strcmp(kind, "wait") == 0 ? "wait" : kind, "", span->begin_ns,
                     span->end_ns, y, COMPUTE_HEIGHT, out);
        } else if (strcmp(span->name, "bucket") == 0) {
            snprintf(label, sizeof label, "bucket %lld", (long long)span->number);
            snprintf(details, sizeof details, "%llu bytes", (unsigned long long)span->bytes);
            draw_bar(scale, "bucket", label, details, span->begin_ns, span->end_ns,
                     y + COMPUTE_HEIGHT + 3, CALL_HEIGHT, out);
        }
    }
}

static void draw_calls(const struct scale *scale, const struct cddpi_traced_rank *rank, double y,
                       FILE *out)
{
    for (size_t i = 0; i < rank->call_count; i++) {
        const struct cddpi_traced_call *call = &rank->calls[i];
        int64_t begin = call->started_ns != INT64_MIN ? call->started_ns : call->enqueued_ns;
        int64_t end = call->finished_ns != INT64_MIN ? call->finished_ns : scale->step->end_ns;
        char label[96];
        char details[96];

        if (begin == INT64_MIN) {
            continue;
        }
        snprintf(label, sizeof label, "%s #%llu", call->operation,
                 (unsigned long long)call->number);
        if (call->bucket >= 0) {
            snprintf(details, sizeof details, "%llu bytes of %s, bucket %lld",
                     (unsigned long long)call->bytes, call->type, (long long)call->bucket);
        } else {
            snprintf(details, sizeof details, "%llu bytes of %s", (unsigned long long)call->bytes,
                     call->type);
        }
        draw_bar(scale, "call", label, details, begin, end, y + COMPUTE_HEIGHT + 3, CALL_HEIGHT,
                 out);
    }
}

static void draw_axis(const struct scale *scale, double height, FILE *out)
{
    double span_ms = (double)(scale->step->end_ns - scale->step->begin_ns) * 1e-6;
    double tick = cddpi_tick_step(span_ms, 10);

    for (int i = 0; i * tick <= span_ms * 1.0001; i++) {
        double x = LEFT + i * tick * 1e6 * scale->per_ns;

        fprintf(out,
                "<path class=\"grid\" d=\"M%.1f %dV%.1f\"/><text class=\"soft\" x=\"%.1f\" "
                "y=\"%.1f\" text-anchor=\"middle\">%.4g</text>\n",
                x, TOP - 6, height - 38, x, height - 22, i * tick);
    }
    fprintf(out,
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

/* Of weights where they have spans of their own. */
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

void cddpi_timeline_draw(const struct cddpi_traces *traces, const struct cddpi_traced_step *step,
                         bool alone, FILE *out)
{
    int shown = traces->count < MOST_RANKS ? traces->count : MOST_RANKS;
    double height = TOP + 34;
    double y = TOP + 4;
    struct scale scale = {step, 0};

    for (int r = 0; r < shown; r++) {
        height += height_of(&traces->ranks[r]);
    }
    scale.per_ns = (WIDTH - LEFT - RIGHT) / fmax((double)(step->end_ns - step->begin_ns), 1);
    fprintf(out,
            "<svg class=\"timeline\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
            "role=\"img\" aria-label=\"timeline of step %llu\">\n",
            WIDTH, height, (unsigned long long)step->step);
    if (alone) {
        fputs("<style>", out);
        cddpi_html_picture_style(out);
        fprintf(out, "</style><rect class=\"ground\" width=\"%d\" height=\"%.0f\"/>\n", WIDTH,
                height);
    }
    fprintf(out, "<text class=\"title\" x=\"%d\" y=\"18\">step %llu: %.2f ms</text>\n", LEFT,
            (unsigned long long)step->step, (double)(step->end_ns - step->begin_ns) * 1e-6);
    if (shown < traces->count) {
        fprintf(out,
                "<text class=\"soft\" x=\"%d\" y=\"18\" text-anchor=\"end\">the first %d of %d "
                "ranks</text>\n",
                WIDTH - RIGHT, shown, traces->count);
    }
    draw_legend(traces, out);
    draw_axis(&scale, height, out);
    for (int r = 0; r < shown; r++) {
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">rank %d</text>\n", LEFT - 10,
                y + COMPUTE_HEIGHT / 2.0 + 4, traces->ranks[r].rank);
        draw_spans(&scale, &traces->ranks[r], y, out);
        draw_calls(&scale, &traces->ranks[r], y, out);
        draw_devices(&scale, &traces->ranks[r], y, out);
        y += height_of(&traces->ranks[r]);
    }
    fputs("</svg>\n", out);
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
    struct cddpi_traced_step *steps;
    struct cddpi_traced_step step;
    size_t count = 0;

    while (cddpi_traces_step(traces, count, &step)) {
        count++;
    }
    steps = cddpi_zalloc_array(count + 1, sizeof *steps);
    if (count == 0 || steps == NULL) {
        cddpi_free(steps);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        (void)cddpi_traces_step(traces, i, &steps[i]);
    }
    qsort(steps, count, sizeof *steps, by_time);
    *out = steps[count / 2];
    cddpi_free(steps);
    return true;
}
