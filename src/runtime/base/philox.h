/* philox.h - counter-based random numbers: Philox4x32-10 of Salmon, Moraes, Dror and Shaw,
 * "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. A value depends only on its key and
 * counter, so neither the number of threads nor the number of ranks changes it. Any thread. */
#ifndef CDDPI_PHILOX_H
#define CDDPI_PHILOX_H

#include <math.h>
#include <stdint.h>

/* The purpose of a random number. Each purpose has its own stream, so that a new use does not
 * change the others. */
enum cddpi_random_purpose {
    CDDPI_RANDOM_ORDER = 1,   /* data order; index: epoch */
    CDDPI_RANDOM_INIT = 2,    /* initial parameters; index: parameter */
    CDDPI_RANDOM_DROPOUT = 3, /* index: op; counter: step and element */
    CDDPI_RANDOM_AUGMENT = 4, /* index: epoch; counter: sample */
    CDDPI_RANDOM_TEST = 5,
    CDDPI_RANDOM_GENERATE = 6,  /* index: position in the text; counter: step */
    CDDPI_RANDOM_SYNTHETIC = 7, /* benchmark data; index: part; seed: 0 */
    CDDPI_RANDOM_LATENT = 8,    /* a generator's input; index: step; counter: sample */
    CDDPI_RANDOM_SHEET = 9,     /* a generator's input for preview images; counter: sample */
    CDDPI_RANDOM_HELD_BACK = 10 /* images that are not trained on; counter: digest of the name;
                                   seed: 0 */
};

struct cddpi_philox {
    uint32_t key[2];
    uint32_t purpose;
    uint32_t index;
};

/** The stream for (seed, purpose, index). */
static inline struct cddpi_philox cddpi_philox_stream(uint64_t seed, uint32_t purpose,
                                                      uint32_t index)
{
    struct cddpi_philox stream = {{(uint32_t)seed, (uint32_t)(seed >> 32)}, purpose, index};

    return stream;
}

static inline void cddpi_philox_round(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
    uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t x1 = c[1];
    uint32_t x3 = c[3];

    c[0] = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
    c[1] = (uint32_t)p1;
    c[2] = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
    c[3] = (uint32_t)p0;
}

/** Four random words of @p stream at @p counter. */
static inline void cddpi_philox4(const struct cddpi_philox *stream, uint64_t counter,
                                 uint32_t out[4])
{
    uint32_t k0 = stream->key[0];
    uint32_t k1 = stream->key[1];

    out[0] = (uint32_t)counter;
    out[1] = (uint32_t)(counter >> 32);
    out[2] = stream->purpose;
    out[3] = stream->index;
    for (int round = 0; round < 10; round++) {
        cddpi_philox_round(out, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/** Convert a word to a float in [0, 1) with 24 random bits. */
static inline float cddpi_uniform01(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/** Normally distributed numbers from random words, by the Box-Muller transform in float64. Words 0
 *  and 1 give numbers 0 (cosine) and 1 (sine); words 2 and 3 give numbers 2 and 3. */
static inline void cddpi_normal4(const uint32_t words[4], double mean, double deviation,
                                 float out[4])
{
    const double turn = 6.283185307179586;

    for (int i = 0; i < 4; i += 2) {
        double u = ((double)words[i] + 1.0) * 0x1p-32; /* in (0, 1], so that its logarithm exists */
        double angle = turn * ((double)words[i + 1] * 0x1p-32);
        double radius = deviation * sqrt(-2.0 * log(u));

        out[i] = (float)(mean + radius * cos(angle));
        out[i + 1] = (float)(mean + radius * sin(angle));
    }
}

#endif
