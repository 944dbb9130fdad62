/* cuda_whole.h - compares kernels, at the sizes and with the options of the examples, with float32
 * on the same device: how large the difference is, and whether a GPU ran the fast variant. On the
 * emulation the sizes are smaller, and only our own kernels run. */
#ifndef CDDP_TESTS_SUPPORT_CUDA_WHOLE_H
#define CDDP_TESTS_SUPPORT_CUDA_WHOLE_H

#include "support/cuda.h"

#include <unistd.h>

/* The allowed relative error of 16-bit factors and results against float32. */
#define WHOLE_RELATIVE 1e-2

bool on_a_card(void);

/* How many of @p count cases to run: only the first, which has the examples' sizes, if
 * $CDDP_TEST_QUICK is set (by the smoke test of scripts/gpu-test); else all. */
size_t whole_cases(size_t count);

/* Captures what is logged, to print and to examine it. */
struct listening {
    FILE *file;
    int stderr_was;
};

struct listening listen_to_the_log(void);

/* Assert that no cuDNN plan failed: a failed plan is replaced, with a warning, and the test would
 * compare the wrong kernel. A machine without cuDNN always uses the replacement. */
void nothing_slower_was_taken(struct listening *l, const char *what);

/* Sums of squares: of the differences, and of the expected values. */
struct distance {
    double apart, size;
};

void distance_add(struct distance *d, float got, float want);
void distance_is_small(const struct distance *d, const char *what);

#endif
