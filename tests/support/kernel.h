/* kernel.h - rows of numbers for tests of kernels, compared with float64. */
#ifndef CDDP_TESTS_SUPPORT_KERNEL_H
#define CDDP_TESTS_SUPPORT_KERNEL_H

#include "kernels/cpu/transformer.h"
#include "support/nn.h"

/* Lengths of rows: vector lengths, and lengths between them. */
static const size_t widths[] = {1, 3, 8, 16, 37, 64, 100, 257};

/* Memory of exactly @p count elements, so that a sanitizer detects accesses beyond it. */
float *numbers(uint32_t stream, size_t count, float scale, float offset);
float *copy_of(const float *x, size_t count);
void assert_near(float value, double expected, double relative, double absolute);

#endif
