/* kernel.c - rows of numbers for tests of kernels, compared with float64. */
#include "support/kernel.h"

float *numbers(uint32_t stream, size_t count, float scale, float offset)
{
    float *x = malloc(count * sizeof *x);

    for (size_t i = 0; i < count; i++) {
        x[i] = offset + scale * test_number(stream, i);
    }
    return x;
}

float *copy_of(const float *x, size_t count)
{
    float *copy = malloc(count * sizeof *copy);

    memcpy(copy, x, count * sizeof *copy);
    return copy;
}

void assert_near(float value, double expected, double relative, double absolute)
{
    if (!(fabs((double)value - expected) <= relative * fabs(expected) + absolute)) {
        fail_msg("%.9g should be %.9g", (double)value, expected);
    }
}
