/* chart.c - draws curves over steps. */
#include "report/chart.h"

#include "report/html.h"

#include <math.h>

enum {
    WIDTH = 560,
    HEIGHT = 300,
    LEFT = 58,
    RIGHT = 14,
    TOP = 44,
    BOTTOM = 44,
    MOST_POINTS = 1000,
    MOST_DOTS = 40
};

struct frame {
    double x_low, x_high, y_low, y_high;
};

static bool is_point(const struct cddpi_curve *curve, size_t i)
{
    return isfinite(curve->x[i]) && isfinite(curve->y[i]);
}

bool cddpi_chart_has_points(const struct cddpi_chart *chart)
{
    for (size_t c = 0; c < chart->curve_count; c++) {
        for (size_t i = 0; i < chart->curves[c].count; i++) {
            if (is_point(&chart->curves[c], i)) {
                return true;
            }
        }
    }
    return false;
}

static struct frame frame_of(const struct cddpi_chart *chart)
{
    struct frame frame = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    double pad;

    for (size_t c = 0; c < chart->curve_count; c++) {
        const struct cddpi_curve *curve = &chart->curves[c];

        for (size_t i = 0; i < curve->count; i++) {
            if (is_point(curve, i)) {
                frame.x_low = fmin(frame.x_low, curve->x[i]);
                frame.x_high = fmax(frame.x_high, curve->x[i]);
                frame.y_low = fmin(frame.y_low, curve->y[i]);
                frame.y_high = fmax(frame.y_high, curve->y[i]);
            }
        }
    }
    frame.y_low = chart->from_zero ? fmin(frame.y_low, 0) : frame.y_low;
    pad = (frame.y_high - frame.y_low) * 0.05;
    if (!(pad > 0)) {
        pad = fmax(fabs(frame.y_high) * 0.05, 1e-9);
    }
    frame.y_low -= chart->from_zero && !(frame.y_low < 0) ? 0 : pad;
    frame.y_high += pad;
    if (frame.x_high <= frame.x_low) {
        frame.x_low -= 1;
        frame.x_high += 1;
    }
    return frame;
}

static double x_of(const struct frame *frame, double x)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (x - frame->x_low) / (frame->x_high - frame->x_low);
}

static double y_of(const struct frame *frame, double y)
{
    return HEIGHT - BOTTOM -
           (HEIGHT - TOP - BOTTOM) * (y - frame->y_low) / (frame->y_high - frame->y_low);
}

static void draw_axes(const struct cddpi_chart *chart, const struct frame *frame, FILE *out)
{
    double y_step = cddpi_tick_step(frame->y_high - frame->y_low, 6);
    double x_step = fmax(cddpi_tick_step(frame->x_high - frame->x_low, 6), 1);

    fprintf(out, "<text class=\"title\" x=\"%d\" y=\"18\">", LEFT);
    cddpi_html_put(out, chart->title);
    fputs("</text>\n", out);
    if (chart->unit[0] != '\0') {
        fprintf(out, "<text class=\"soft\" x=\"%d\" y=\"18\" text-anchor=\"end\">", WIDTH - RIGHT);
        cddpi_html_put(out, chart->unit);
        fputs("</text>\n", out);
    }
    for (double y = ceil(frame->y_low / y_step) * y_step; y <= frame->y_high; y += y_step) {
        double shown = fabs(y) < y_step * 1e-6 ? 0 : y;

        fprintf(out,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"soft\" x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%.5g</text>\n",
                LEFT, y_of(frame, y), WIDTH - RIGHT, LEFT - 8, y_of(frame, y) + 4, shown);
    }
    for (double x = ceil(frame->x_low / x_step) * x_step; x <= frame->x_high; x += x_step) {
        fprintf(out,
                "<text class=\"soft\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.10g</text>\n",
                x_of(frame, x), HEIGHT - BOTTOM + 18, fabs(x) < x_step * 1e-6 ? 0 : x);
    }
    fprintf(out,
            "<path class=\"axis\" d=\"M%d %dH%d\"/><text class=\"soft\" x=\"%d\" y=\"%d\" "
            "text-anchor=\"middle\">step</text>\n",
            LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
}

/* Attribute @p name of a curve's line: its points, or where they are drawn. */
static void put_points(const struct cddpi_curve *curve, const struct frame *frame, const char *name,
                       bool x, bool y, FILE *out)
{
    size_t stride = (curve->count + MOST_POINTS - 1) / MOST_POINTS;
    const char *space = "";

    fprintf(out, " %s=\"", name);
    for (size_t i = 0; i < curve->count; i += stride) {
        double sum_x = 0;
        double sum_y = 0;
        int count = 0;

        for (size_t k = i; k < i + stride && k < curve->count; k++) {
            if (is_point(curve, k)) {
                sum_x += curve->x[k];
                sum_y += curve->y[k];
                count++;
            }
        }
        if (count == 0) {
            continue;
        }
        if (frame != NULL) {
            fprintf(out, "%s%.1f,%.1f", space, x_of(frame, sum_x / count),
                    y_of(frame, sum_y / count));
        } else {
            fprintf(out, "%s%.7g", space, x ? sum_x / count : y ? sum_y / count : 0);
        }
        space = " ";
    }
    fputs("\"", out);
}

static void draw_curve(const struct cddpi_curve *curve, const struct frame *frame, FILE *out)
{
    size_t there = 0;
    bool few;

    for (size_t i = 0; i < curve->count; i++) {
        there += is_point(curve, i);
    }
    few = there <= MOST_DOTS && !curve->dashed;
    fprintf(out, "<polyline class=\"line\" style=\"stroke:var(--c%d)\"%s data-name=\"",
            curve->colour % CDDPI_CURVE_COLOURS, curve->dashed ? " stroke-dasharray=\"5 4\"" : "");
    cddpi_html_put(out, curve->name);
    fputs("\"", out);
    put_points(curve, NULL, "data-x", true, false, out);
    put_points(curve, NULL, "data-y", false, true, out);
    put_points(curve, frame, "points", false, false, out);
    fputs("/>\n", out);
    for (size_t i = 0; few && i < curve->count; i++) {
        if (is_point(curve, i)) {
            fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" style=\"fill:var(--c%d)\"/>\n",
                    x_of(frame, curve->x[i]), y_of(frame, curve->y[i]),
                    curve->colour % CDDPI_CURVE_COLOURS);
        }
    }
}

/* Whether a curve has the colour and the name of the one before it. */
static bool is_second(const struct cddpi_chart *chart, size_t c)
{
    return c > 0 && chart->curves[c].colour == chart->curves[c - 1].colour;
}

/* In the row below the title; names that do not fit there are cut, tooltips have them whole. */
static void draw_legend(const struct cddpi_chart *chart, FILE *out)
{
    size_t shown = chart->curve_count;
    size_t place = 0;
    double room;

    for (size_t c = 0; c < chart->curve_count; c++) {
        shown -= is_second(chart, c);
    }
    room = (double)(WIDTH - LEFT - RIGHT) / (double)shown;
    for (size_t c = 0; c < chart->curve_count; c++) {
        const struct cddpi_curve *curve = &chart->curves[c];
        double x = LEFT + (double)place * fmin(room, 190);
        int most = (int)((fmin(room, 190) - 24) / 6.3);
        char name[64];

        if (is_second(chart, c)) {
            continue;
        }
        place++;
        most = most < 4 ? 4 : most > 60 ? 60 : most;
        snprintf(name, sizeof name, "%.*s", most, curve->name);
        fprintf(out,
                "<g class=\"key\" data-curve=\"%zu\"><rect x=\"%.1f\" y=\"28\" width=\"12\" "
                "height=\"4\" rx=\"2\" "
                "style=\"fill:var(--c%d)\"/><text class=\"soft\" x=\"%.1f\" y=\"34\">",
                c, x, curve->colour % CDDPI_CURVE_COLOURS, x + 17);
        cddpi_html_put(out, name);
        fputs("</text></g>\n", out);
    }
}

void cddpi_chart_draw(const struct cddpi_chart *chart, FILE *out)
{
    struct frame frame = frame_of(chart);

    fprintf(out, "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH,
            HEIGHT);
    cddpi_html_put(out, chart->title);
    fputs("\">\n", out);
    draw_axes(chart, &frame, out);
    fprintf(out,
            "<line class=\"axis cross\" x1=\"0\" x2=\"0\" y1=\"%d\" y2=\"%d\" "
            "style=\"display:none\"/>\n",
            TOP, HEIGHT - BOTTOM);
    for (size_t c = 0; c < chart->curve_count; c++) {
        draw_curve(&chart->curves[c], &frame, out);
    }
    if (chart->curve_count > 1) {
        draw_legend(chart, out);
    }
    fputs("</svg>\n", out);
}
