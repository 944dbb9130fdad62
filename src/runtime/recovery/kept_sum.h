/* kept_sum.h - the checksum of a part: finds what a process of the job has damaged by accident. It
 * takes blocks of 32 bytes, about as fast as memory can be read: four sums of every fourth word, so
 * that one multiplication need not wait for the other. Each step can be undone, so any one word
 * that differs changes the sum; the shift brings high bits down, so that one, such as a sign,
 * cannot cancel one of the next word. */
#ifndef CDDPI_RECOVERY_KEPT_SUM_H
#define CDDPI_RECOVERY_KEPT_SUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { CDDPI_KEPT_LANES = 4, CDDPI_KEPT_BLOCK = 32 };

struct cddpi_kept_sum {
    uint64_t lanes[CDDPI_KEPT_LANES];
};

/* @p factor: any odd number; lanes are put together with another than that of their words. */
static inline uint64_t cddpi_kept_mix(uint64_t sum, uint64_t word, uint64_t factor)
{
    sum = (sum ^ word) * factor;
    return sum ^ sum >> 29;
}

/** Add @p bytes bytes, a multiple of CDDPI_KEPT_BLOCK. */
static inline void cddpi_kept_sum_add(struct cddpi_kept_sum *sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t words[CDDPI_KEPT_LANES];
    struct cddpi_kept_sum now = *sum;

    for (size_t i = 0; i < bytes; i += sizeof words) {
        memcpy(words, at + i, sizeof words);
        for (int lane = 0; lane < CDDPI_KEPT_LANES; lane++) {
            now.lanes[lane] = cddpi_kept_mix(now.lanes[lane], words[lane],
                                             UINT64_C(0x9e3779b97f4a7c15));
        }
    }
    *sum = now;
}

static inline uint64_t cddpi_kept_sum_end(const struct cddpi_kept_sum *sum)
{
    uint64_t end = 1;

    for (int lane = 0; lane < CDDPI_KEPT_LANES; lane++) {
        end = cddpi_kept_mix(end, sum->lanes[lane], UINT64_C(0xc2b2ae3d27d4eb4f));
    }
    return end;
}

#endif
