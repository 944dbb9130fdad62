/* dropout_loops.c - owns dropout: its random numbers, from eight counters of Philox4x32-10
 * (base/philox.h) at once, and their use. */
#include "kernels/cpu/per_isa/lanes.h"
#include "kernels/cpu/transformer.h"

enum { COUNTERS = 8 }; /* at once: they give 32 bits, i.e. 4 whole bytes */

/* If registers are shorter, the compiler splits these vectors. */
/* a word in each lower half */
typedef uint64_t wide __attribute__((vector_size(64)));
typedef float reals __attribute__((vector_size(64)));
typedef int32_t flags __attribute__((vector_size(64)));

static void draw(const uint32_t stream[4], uint32_t threshold, uint8_t *kept, size_t elements)
{
    const wide low = (wide){0} + 0xffffffffu;
    size_t bytes = (elements + 7) / 8;

    for (size_t byte = 0; byte < bytes; byte += COUNTERS / 2) {
        wide counter = (wide){0, 1, 2, 3, 4, 5, 6, 7} + 2 * (uint64_t)byte;
        wide x[4] = {counter & low, counter >> 32, (wide){0} + stream[2], (wide){0} + stream[3]};
        size_t left = bytes - byte;
        uint32_t k0 = stream[0];
        uint32_t k1 = stream[1];
        uint64_t nibbles[COUNTERS];
        uint32_t bits = 0;

        for (int round = 0; round < 10; round++) {
            wide p0 = x[0] * 0xD2511F53u;
            wide p1 = x[2] * 0xCD9E8D57u;

            x[0] = (p1 >> 32) ^ x[1] ^ k0;
            x[1] = p1 & low;
            x[2] = (p0 >> 32) ^ x[3] ^ k1;
            x[3] = p0 & low;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        /* word - threshold borrows from the upper half if word < threshold */
        for (int w = 0; w < 4; w++) {
            x[w] = (~(x[w] - threshold) >> 63) << w;
        }
        x[0] |= x[1] | x[2] | x[3];
        memcpy(nibbles, &x[0], sizeof nibbles);
        for (int i = 0; i < COUNTERS; i++) {
            bits |= (uint32_t)nibbles[i] << 4 * i;
        }
        for (size_t i = 0; i < COUNTERS / 2 && i < left; i++) {
            kept[byte + i] = (uint8_t)(bits >> 8 * i);
        }
    }
}

static void apply(const float *x, const uint8_t *kept, float scale, float *out, size_t count)
{
    const flags places = {1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                          1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
    size_t i = 0;

    for (; i + 16 <= count; i += 16) {
        int32_t bits = kept[i / 8] | kept[i / 8 + 1] << 8;
        flags mask = (places & bits) != 0;
        reals v;

        memcpy(&v, x + i, sizeof v);
        v = (reals)(mask & (flags)(v * scale));
        memcpy(out + i, &v, sizeof v);
    }
    for (; i < count; i++) {
        out[i] = (kept[i / 8] >> i % 8 & 1) != 0 ? x[i] * scale : 0;
    }
}

const struct cddpi_dropout_kernels CDDPI_LANES_JOIN(cddpi_dropout_kernels_, CDDPI_ISA) = {draw,
                                                                                          apply};
