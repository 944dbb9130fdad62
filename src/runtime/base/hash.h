/* hash.h - FNV-1a (Fowler, Noll, Vo), 64 bits. It detects accidental differences only; never use it
 * for data from untrusted senders. Any thread. */
#ifndef CDDPI_BASE_HASH_H
#define CDDPI_BASE_HASH_H

#include <stdint.h>

static const uint64_t cddpi_hash_start = 0xcbf29ce484222325u;

/** Extend @p hash by @p value: one byte, or a whole word, which is faster and good enough for our
 *  uses. */
static inline uint64_t cddpi_hash_add(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x100000001b3u;
}

#endif
