/* rounding.h - owns what becomes of numbers as 32-bit floats: those that are large and differ
 * little may become the same. */
#ifndef CDDPI_DATA_ROUNDING_H
#define CDDPI_DATA_ROUNDING_H

#include <math.h>
#include <stdbool.h>

struct cddpi_rounding {
    double low, high; /* of the numbers; low > high: there is none yet */
    double most;      /* the largest difference between a number and its float */
};

#define CDDPI_ROUNDING_INIT ((struct cddpi_rounding){INFINITY, -INFINITY, 0})

static inline void cddpi_rounding_note(struct cddpi_rounding *rounding, double value)
{
    double difference = fabs(value - (double)(float)value);

    rounding->low = value < rounding->low ? value : rounding->low;
    rounding->high = value > rounding->high ? value : rounding->high;
    rounding->most = difference > rounding->most ? difference : rounding->most;
}

/** Warn if floats cannot tell many of the numbers apart.
 *  @param what  Which numbers they are, for the warning.
 *  @return Whether it has warned. */
bool cddpi_rounding_doubt(const struct cddpi_rounding *rounding, const char *what);

#endif
