/* hash.h - FNV-1a (Fowler, Noll, Vo), 64 bits. It detects accidental differences only; never use it
 * for data from untrusted senders. Any thread. */
#ifndef CDDPI_BASE_HASH_H
#define CDDPI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

static const uint64_t cddpi_hash_start = 0xcbf29ce484222325u;

/** Extend @p hash by @p value: one byte, or a whole word, which is faster and good enough for our
 *  uses. */
static inline uint64_t cddpi_hash_add(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x100000001b3u;
}

/** Extend @p hash by the bytes of @p text; NULL: none. */
static inline uint64_t cddpi_hash_text(uint64_t hash, const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        hash = cddpi_hash_add(hash, (unsigned char)*text);
    }
    return hash;
}

#endif
