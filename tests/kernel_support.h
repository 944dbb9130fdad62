/* kernel_support.h - rows of numbers for tests of kernels, compared with float64. */
#ifndef CDDP_TESTS_KERNEL_SUPPORT_H
#define CDDP_TESTS_KERNEL_SUPPORT_H

#include "kernels/cpu/nn_gpt.h"
#include "nn_support.h"

/* Of rows: around and between the lengths of vectors. */
static const size_t widths[] = {1, 3, 8, 16, 37, 64, 100, 257};

/* Memory of exactly @p count elements, so that a sanitizer sees what lies beyond them. */
static inline float *numbers(uint32_t stream, size_t count, float scale, float offset)
{
    float *x = malloc(count * sizeof *x);

    for (size_t i = 0; i < count; i++) {
        x[i] = offset + scale * test_number(stream, i);
    }
    return x;
}

static inline float *copy_of(const float *x, size_t count)
{
    float *copy = malloc(count * sizeof *copy);

    memcpy(copy, x, count * sizeof *copy);
    return copy;
}

static inline void assert_near(float value, double expected, double relative, double absolute)
{
    if (!(fabs((double)value - expected) <= relative * fabs(expected) + absolute)) {
        fail_msg("%.9g should be %.9g", (double)value, expected);
    }
}

#endif
