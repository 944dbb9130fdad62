/* permutation.h - the native random order: a keyed permutation of [0, count) that computes each
 * position separately, in constant time and without memory. Threads may share one for reading. */
#ifndef CDDPI_SAMPLERS_PERMUTATION_H
#define CDDPI_SAMPLERS_PERMUTATION_H

#include <stdint.h>

enum { CDDPI_PERMUTATION_ROUNDS = 24 };

struct cddpi_permutation {
    uint64_t count;
    uint64_t rows, columns; /* the domain: rows x columns >= count; each at most 2^32 */
    int rounds;
    uint64_t keys[CDDPI_PERMUTATION_ROUNDS];
};

/** Set up the permutation for (@p count, @p seed, @p epoch); @p count > 0. */
void cddpi_permutation_init(struct cddpi_permutation *permutation, uint64_t count, uint64_t seed,
                            uint64_t epoch);

/** The index at @p position; @p position < count. */
uint64_t cddpi_permutation_at(const struct cddpi_permutation *permutation, uint64_t position);

#endif
