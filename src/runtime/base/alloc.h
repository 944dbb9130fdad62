/* alloc.h - all memory allocation of the library. Tests can make the n-th allocation fail. */
#ifndef CDDPI_ALLOC_H
#define CDDPI_ALLOC_H

#include "base/shared.h"

#include <stddef.h>
#include <stdint.h>

enum { CDDPI_ALIGNMENT = 64 }; /* a cache line, and the widest vector register */

/* No process has more bytes than this: addresses have at most 48 bits (32 on 32-bit systems). Sums
 * and small multiples of smaller sizes therefore do not overflow. */
#define CDDPI_BYTES_MAX (SIZE_MAX >> (sizeof(size_t) == 8 ? 16 : 1))

/** @p bytes rounded up to a multiple of @p alignment. */
static inline size_t cddpi_align_to(size_t bytes, size_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

static inline size_t cddpi_align(size_t bytes)
{
    return cddpi_align_to(bytes, CDDPI_ALIGNMENT);
}

/** @p bytes of zeros, or NULL. Release with cddpi_free(). */
CDDPI_SHARED void *cddpi_zalloc(size_t bytes);

/** @p count elements of @p bytes each, zeroed. NULL also if the product overflows. */
static inline void *cddpi_zalloc_array(size_t count, size_t bytes)
{
    return bytes == 0 || count <= SIZE_MAX / bytes ? cddpi_zalloc(count * bytes) : NULL;
}

/** Like realloc(): new bytes are not zeroed, and on failure @p old is unchanged. */
CDDPI_SHARED void *cddpi_realloc(void *old, size_t bytes);

/** Make sure that @p array, which has room for *@p room elements of @p bytes bytes each, has room
 * for
 *  @p wanted > 0: at least doubles *@p room if it has not. Returns the array, which may have moved.
 *  NULL: no memory, and the array and *@p room are unchanged. */
CDDPI_SHARED void *cddpi_grow(void *array, size_t *room, size_t wanted, size_t bytes);

/** Uninitialised memory aligned to CDDPI_ALIGNMENT, or NULL. Large blocks ask for huge pages. */
CDDPI_SHARED void *cddpi_alloc_aligned(size_t bytes);

/** A copy of @p text, or NULL if memory ran out. NULL gives NULL. */
CDDPI_SHARED char *cddpi_strdup(const char *text);

/** printf into new memory. NULL: no memory. */
CDDPI_SHARED char *cddpi_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Release memory from any function above. Accepts NULL. */
CDDPI_SHARED void cddpi_free(void *memory);

/** Tests only: make the @p nth allocation of this thread fail, counted from now (1 is the next
 *  one). 0: none fails. */
void cddpi_alloc_fail_nth(unsigned nth);

#endif
