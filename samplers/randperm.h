/* randperm.h - torch.randperm(n) of a seeded CPU generator, number for number. */
#ifndef CDDPI_SAMPLERS_RANDPERM_H
#define CDDPI_SAMPLERS_RANDPERM_H

#include <stdint.h>

enum { CDDPI_MT19937_WORDS = 624 };

/* The Mersenne twister of Matsumoto and Nishimura, 1998. */
struct cddpi_mt19937 {
    uint32_t state[CDDPI_MT19937_WORDS];
    int used; /* words of state given out */
};

void cddpi_mt19937_seed(struct cddpi_mt19937 *twister, uint32_t seed);
uint32_t cddpi_mt19937_next(struct cddpi_mt19937 *twister);

/* From this count on PyTorch draws 64 bits a sample, in another order of swaps. */
#define CDDPI_RANDPERM_WIDE_FROM (UINT64_C(0xffffffff) / 20)

/** Write the permutation of @p count numbers. PyTorch uses the low 32 bits of a seed only.
 *  @param wide_from  CDDPI_RANDPERM_WIDE_FROM; tests lower it, since arrays that long take GiBs. */
void cddpi_torch_randperm(uint64_t seed, uint64_t count, uint64_t wide_from, uint64_t *out);

#endif
