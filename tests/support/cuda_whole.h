/* cuda_whole.h - kernels at the sizes and with the options that the examples have, against
 * float32 on the same device: how far apart, and that a card ran what is fast. On the emulation the
 * sizes are smaller, and our own kernels do it all. */
#ifndef CDDP_TESTS_SUPPORT_CUDA_WHOLE_H
#define CDDP_TESTS_SUPPORT_CUDA_WHOLE_H

#include "support/cuda.h"

#include <unistd.h>

/* Of 16-bit factors and results against float32. */
#define WHOLE_RELATIVE 1e-2

bool on_a_card(void);

/* How many of @p count cases to do: the first alone, which is the examples' own, where somebody
 * waits
 * ($CDDP_TEST_QUICK, as the smoke of scripts/gpu-test sets it). */
size_t whole_cases(size_t count);

/* What is logged in between is printed, and looked into. */
struct listening {
    FILE *file;
    int stderr_was;
};

struct listening listen_to_the_log(void);

/* A plan of cuDNN's that fails is replaced with a warning, and then the wrong thing was compared.
 * A machine without cuDNN has nothing else. */
void nothing_slower_was_taken(struct listening *l, const char *what);

/* Sums of squares of differences and of what should be. */
struct distance {
    double apart, size;
};

void distance_add(struct distance *d, float got, float want);
void distance_is_small(const struct distance *d, const char *what);

#endif
