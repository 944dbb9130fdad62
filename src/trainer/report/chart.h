/* chart.h - curves over steps as SVG, with axes, a legend and what the page's script shows of them.
 */
#ifndef CDDPI_TRAIN_REPORT_CHART_H
#define CDDPI_TRAIN_REPORT_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { CDDPI_CURVE_COLOURS = 6 };

struct cddpi_curve {
    const char *name; /* escaped where it is drawn */
    int colour;
    bool dashed;
    const double *x, *y; /* points that are not finite are left out */
    size_t count;
};

struct cddpi_chart {
    const char *title;
    const char *unit; /* of y, behind the title; "" */
    bool from_zero;   /* y begins there */
    const struct cddpi_curve *curves;
    size_t curve_count;
};

/** Whether there is a point to draw. */
bool cddpi_chart_has_points(const struct cddpi_chart *chart);
/** Draw it; a curve of more than a thousand points as the means of so many parts. */
void cddpi_chart_draw(const struct cddpi_chart *chart, FILE *out);

#endif
