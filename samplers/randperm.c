/* randperm.c - owns PyTorch's shuffling: MT19937 and the two Fisher-Yates shuffles of
 * torch.randperm. Tests compare it with vectors that PyTorch produced (tests/vectors). */
#include "samplers/randperm.h"

enum { MIDDLE = 397 };

void cddpi_mt19937_seed(struct cddpi_mt19937 *twister, uint32_t seed)
{
    uint32_t *state = twister->state;

    state[0] = seed;
    for (uint32_t i = 1; i < CDDPI_MT19937_WORDS; i++) {
        state[i] = UINT32_C(1812433253) * (state[i - 1] ^ state[i - 1] >> 30) + i;
    }
    twister->used = CDDPI_MT19937_WORDS;
}

static void twist(uint32_t *state)
{
    for (int i = 0; i < CDDPI_MT19937_WORDS; i++) {
        uint32_t low = state[(i + 1) % CDDPI_MT19937_WORDS];
        uint32_t word = (state[i] & UINT32_C(0x80000000)) | (low & UINT32_C(0x7fffffff));

        state[i] = state[(i + MIDDLE) % CDDPI_MT19937_WORDS] ^ word >> 1 ^
                   (low & 1 ? UINT32_C(0x9908b0df) : 0);
    }
}

uint32_t cddpi_mt19937_next(struct cddpi_mt19937 *twister)
{
    uint32_t word;

    if (twister->used == CDDPI_MT19937_WORDS) {
        twist(twister->state);
        twister->used = 0;
    }
    word = twister->state[twister->used++];
    word ^= word >> 11;
    word ^= word << 7 & UINT32_C(0x9d2c5680);
    word ^= word << 15 & UINT32_C(0xefc60000);
    return word ^ word >> 18;
}

static uint64_t next_wide(struct cddpi_mt19937 *twister)
{
    uint64_t first = cddpi_mt19937_next(twister);

    return first << 32 | cddpi_mt19937_next(twister);
}

/* count < 2^32, so a 32-bit remainder suffices, which is several times faster than a 64-bit one. */
static void shuffle_forward(struct cddpi_mt19937 *twister, uint64_t count, uint64_t *out)
{
    for (uint64_t i = 0; i < count; i++) {
        out[i] = i;
    }
    for (uint64_t i = 0; i + 1 < count; i++) {
        uint64_t other = i + cddpi_mt19937_next(twister) % (uint32_t)(count - i);
        uint64_t kept = out[i];

        out[i] = out[other];
        out[other] = kept;
    }
}

/* With CDDPI_RANDPERM_WIDE_FROM samples and seed 5, PyTorch 2.15 and this function produce an array
 * with the SHA-256 40bfaeb8d72c36a4120dadcf5b34143fb6663bf46773dfb5bd9de533981a778a. The array has
 * 1.6 GiB, so no test compares it. */
static void shuffle_inside_out(struct cddpi_mt19937 *twister, uint64_t count, uint64_t *out)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t other = next_wide(twister) % (i + 1);

        out[i] = i; /* other may be i */
        out[i] = out[other];
        out[other] = i;
    }
}

void cddpi_torch_randperm(uint64_t seed, uint64_t count, uint64_t wide_from, uint64_t *out)
{
    struct cddpi_mt19937 twister;

    cddpi_mt19937_seed(&twister, (uint32_t)seed);
    if (count < wide_from) {
        shuffle_forward(&twister, count, out);
    } else {
        shuffle_inside_out(&twister, count, out);
    }
}
