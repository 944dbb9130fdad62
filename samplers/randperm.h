/* randperm.h - reproduces torch.randperm(n) of a seeded CPU generator, number for number. */
#ifndef CDDPI_SAMPLERS_RANDPERM_H
#define CDDPI_SAMPLERS_RANDPERM_H

#include <stdint.h>

enum { CDDPI_MT19937_WORDS = 624 };

/* The Mersenne twister of Matsumoto and Nishimura, 1998. */
struct cddpi_mt19937 {
    uint32_t state[CDDPI_MT19937_WORDS];
    int used; /* words of the state already returned */
};

void cddpi_mt19937_seed(struct cddpi_mt19937 *twister, uint32_t seed);
uint32_t cddpi_mt19937_next(struct cddpi_mt19937 *twister);

/* From this count on, PyTorch draws 64 bits per sample and swaps in another order. */
#define CDDPI_RANDPERM_WIDE_FROM (UINT64_C(0xffffffff) / 20)

/** Write the permutation of @p count numbers to @p out. Like PyTorch, uses only the low 32 bits of
 *  the seed.
 *  @param wide_from  CDDPI_RANDPERM_WIDE_FROM. Tests lower it, since arrays of that size take
 *                    GiBs. */
void cddpi_torch_randperm(uint64_t seed, uint64_t count, uint64_t wide_from, uint64_t *out);

#endif
