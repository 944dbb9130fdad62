/* normal.h - normally distributed numbers from random words: the Box-Muller transform in float64.
 * Any thread. */
#ifndef CDDPI_NORMAL_H
#define CDDPI_NORMAL_H

#include <math.h>
#include <stdint.h>

/** Words 0 and 1 give numbers 0 (cosine) and 1 (sine); words 2 and 3 give numbers 2 and 3. */
static inline void cddpi_normal4(const uint32_t words[4], double mean, double deviation,
                                 float out[4])
{
    const double turn = 6.283185307179586;

    for (int i = 0; i < 4; i += 2) {
        double u = ((double)words[i] + 1.0) * 0x1p-32; /* in (0, 1], so that its logarithm exists */
        double angle = turn * ((double)words[i + 1] * 0x1p-32);
        double radius = deviation * sqrt(-2.0 * log(u));

        out[i] = (float)(mean + radius * cos(angle));
        out[i + 1] = (float)(mean + radius * sin(angle));
    }
}

#endif
