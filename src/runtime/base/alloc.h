/* alloc.h - every allocation of the library, so that tests can make the n-th one fail. */
#ifndef CDDPI_ALLOC_H
#define CDDPI_ALLOC_H

#include <stddef.h>
#include <stdint.h>

enum { CDDPI_ALIGNMENT = 64 }; /* a cache line, and the widest vector register */

/* More bytes than this no process has: addresses have 48 bits at most, or 32. So sums and small
 * multiples of sizes below do not overflow. */
#define CDDPI_BYTES_MAX (SIZE_MAX >> (sizeof(size_t) == 8 ? 16 : 1))

/** @p bytes, rounded up to a multiple of @p alignment, or of CDDPI_ALIGNMENT. */
static inline size_t cddpi_align_to(size_t bytes, size_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

static inline size_t cddpi_align(size_t bytes)
{
    return cddpi_align_to(bytes, CDDPI_ALIGNMENT);
}

/** @p bytes of zeros, or NULL. Release with cddpi_free(). */
void *cddpi_zalloc(size_t bytes);

/** @p count elements of @p bytes each, zeroed; NULL also when the product overflows. */
void *cddpi_zalloc_array(size_t count, size_t bytes);

/** As realloc(): new bytes are not zeroed, and on failure @p old stays as it was. */
void *cddpi_realloc(void *old, size_t bytes);

/** Uninitialised memory aligned to CDDPI_ALIGNMENT, or NULL. Large blocks ask for huge pages. */
void *cddpi_alloc_aligned(size_t bytes);

/** A copy of @p text, or NULL; NULL for NULL. */
char *cddpi_strdup(const char *text);

/** printf into new memory, or NULL. */
char *cddpi_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Release memory of any function above; NULL is accepted. */
void cddpi_free(void *memory);

/** Tests only: let the @p nth allocation of this thread from now on fail (1 is the next); 0: none.
 */
void cddpi_alloc_fail_nth(unsigned nth);

#endif
