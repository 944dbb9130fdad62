/* permutation.c - owns the native random order: a Feistel network on mixed radices.
 *
 * A position is written as (row, column) of a nearly square table. Each round first adds to the row
 * a keyed random amount that depends on the column, then adds to the column one that depends on the
 * row. Each round can be undone, so all rounds together are a permutation of the table. The table
 * has a few places (fewer than its rows) without a sample. Such a place is permuted again until a
 * sample is reached ("cycle walking"). This is the cipher FE1 of Black and Rogaway, "Ciphers with
 * Arbitrary Finite Domains", CT-RSA 2002. */
#include "samplers/permutation.h"

#include "base/philox.h"

/* A large table needs few rounds. In a tiny table, each round has few functions to choose from, so
 * more rounds are needed until all orders of the samples are equally likely. */
enum { ROUNDS_LARGE = 8, LARGE_ROWS = 64 };

/* Stafford's variant 13 of MurmurHash3's finaliser, the output function of SplitMix64: Steele, Lea
 * and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014. */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Map the upper half of a hash to a number below @p limit (at most 2^32). */
static inline uint64_t below(uint64_t hash, uint64_t limit)
{
    return (hash >> 32) * limit >> 32;
}

static inline uint64_t add_modulo(uint64_t a, uint64_t b, uint64_t modulus)
{
    uint64_t sum = a + b;

    return sum < modulus ? sum : sum - modulus;
}

/* The smallest number whose square is at least @p n, for n > 0. */
static uint64_t root_above(uint64_t n)
{
    uint64_t root = 0;

    for (int bit = 31; bit >= 0; bit--) {
        uint64_t next = root | UINT64_C(1) << bit;

        if (next * next < n) {
            root = next;
        }
    }
    return root + 1;
}

void cddpi_permutation_init(struct cddpi_permutation *permutation, uint64_t count, uint64_t seed,
                            uint64_t epoch)
{
    struct cddpi_philox stream = cddpi_philox_stream(seed, CDDPI_RANDOM_ORDER, (uint32_t)epoch);
    uint64_t high = epoch >> 32 << 32; /* the bits that do not fit into the stream's index */

    permutation->count = count;
    permutation->rows = root_above(count);
    permutation->columns = count / permutation->rows + (count % permutation->rows != 0);
    permutation->rounds = permutation->rows >= LARGE_ROWS ? ROUNDS_LARGE : CDDPI_PERMUTATION_ROUNDS;
    for (int round = 0; round < CDDPI_PERMUTATION_ROUNDS; round++) {
        uint32_t words[4];

        cddpi_philox4(&stream, high | (uint64_t)round, words);
        permutation->keys[round] = (uint64_t)words[0] << 32 | words[1];
    }
}

uint64_t cddpi_permutation_at(const struct cddpi_permutation *permutation, uint64_t position)
{
    uint64_t rows = permutation->rows;
    uint64_t columns = permutation->columns;
    const uint64_t *keys = permutation->keys;

    do {
        uint64_t row = position / columns;
        uint64_t column = position % columns;

        for (int round = 0; round < permutation->rounds; round += 2) {
            row = add_modulo(row, below(mix(keys[round] + column), rows), rows);
            column = add_modulo(column, below(mix(keys[round + 1] + row), columns), columns);
        }
        position = row * columns + column;
    } while (position >= permutation->count);
    return position;
}
