/* group_reference.h - the expected result of a reduction, computed one element at a time in plain
 * scalar code. */
#ifndef CDDP_TESTS_SUPPORT_GROUP_REFERENCE_H
#define CDDP_TESTS_SUPPORT_GROUP_REFERENCE_H

#include <cddp/types.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { REFERENCE_RANKS = 16 };

double reference_load(const void *data, cddp_type type);
void reference_store(void *out, double value, cddp_type type);

/* @p values[r] points to rank r's element. @p weights: NULL, or one weight per rank. */
void reference_reduce(void *out, const void *const *values, int n, cddp_type type, cddp_op op,
                      const double *weights);

/* Element @p index of rank @p rank: small enough not to overflow f16, and chosen so that sums need
 * rounding. */
void reference_fill(void *out, int rank, size_t index, cddp_type type);

#endif
