/* alloc.c - owns memory allocation, with a counter with which tests make one call fail. */
#include "base/alloc.h"

#include "base/error.h"
#include "base/types.h"

#include <cddp/process.h>

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20, USUAL_ALIGNMENT = 16 };

static _Atomic bool used; /* something was allocated, so the allocator can no longer change */
static cddp_allocator allocator; /* the embedding program's; without functions: libc's */

static _Thread_local unsigned calls_until_failure;

static bool must_fail(void)
{
    return calls_until_failure != 0 && --calls_until_failure == 0;
}

void cddpi_alloc_fail_nth(unsigned nth)
{
    calls_until_failure = nth;
}

cddp_status cddp_allocator_set(const cddp_allocator *wanted)
{
    cddp_allocator read = CDDP_ALLOCATOR_INIT;

    if (wanted == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "allocator: it is NULL");
    }
    CDDPI_TRY(cddpi_struct_read("allocator", "CDDP_ALLOCATOR_INIT", wanted, sizeof read, &read));
    if (read.alloc == NULL || read.resize == NULL || read.release == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "allocator: it lacks a function");
    }
    if (atomic_load(&used)) {
        return cddpi_fail(
            CDDP_ERR_STATE,
            "allocator: cddp has allocated memory already: set it before other calls");
    }
    allocator = read;
    return CDDP_OK;
}

/* Remember that the allocator is in use. Store only once: all threads come here, and each store
 * would take the cache line from the others. */
static void note_use(void)
{
    if (!atomic_load_explicit(&used, memory_order_relaxed)) {
        atomic_store_explicit(&used, true, memory_order_relaxed);
    }
}

void *cddpi_zalloc(size_t bytes)
{
    void *memory;

    bytes = bytes > 0 ? bytes : 1;
    if (must_fail()) {
        return NULL;
    }
    note_use();
    if (allocator.alloc == NULL) {
        return calloc(1, bytes);
    }
    memory = allocator.alloc(allocator.state, bytes, USUAL_ALIGNMENT);
    return memory != NULL ? memset(memory, 0, bytes) : NULL;
}

void *cddpi_realloc(void *old, size_t bytes)
{
    bytes = bytes > 0 ? bytes : 1;
    if (must_fail()) {
        return NULL;
    }
    note_use();
    return allocator.resize != NULL ? allocator.resize(allocator.state, old, bytes)
                                    : realloc(old, bytes);
}

void *cddpi_grow(void *array, size_t *room, size_t wanted, size_t bytes)
{
    size_t more = *room * 2 + 4 > wanted ? *room * 2 + 4 : wanted;
    void *larger;

    if (wanted <= *room) {
        return array;
    }
    larger = more > CDDPI_BYTES_MAX / bytes ? NULL : cddpi_realloc(array, more * bytes);
    *room = larger != NULL ? more : *room;
    return larger;
}

void *cddpi_alloc_aligned(size_t bytes)
{
    size_t alignment = bytes >= 4 * (size_t)HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : CDDPI_ALIGNMENT;
    void *memory = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (must_fail()) {
        return NULL;
    }
    note_use();
    if (allocator.alloc != NULL) {
        memory = allocator.alloc(allocator.state, bytes, alignment);
    } else if (posix_memalign(&memory, alignment, bytes) != 0) {
        return NULL;
    }
    if (memory != NULL && alignment == HUGE_PAGE_BYTES) {
        (void)madvise(memory, bytes, MADV_HUGEPAGE); /* only a hint */
    }
    return memory;
}

char *cddpi_strdup(const char *text)
{
    size_t bytes;
    char *copy;

    if (text == NULL) {
        return NULL;
    }
    bytes = strlen(text) + 1;
    copy = cddpi_realloc(NULL, bytes);
    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

char *cddpi_format(const char *format, ...)
{
    va_list arguments;
    int length;
    char *text;

    va_start(arguments, format);
    length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) {
        return NULL;
    }
    text = cddpi_realloc(NULL, (size_t)length + 1);
    if (text != NULL) {
        va_start(arguments, format);
        vsnprintf(text, (size_t)length + 1, format, arguments);
        va_end(arguments);
    }
    return text;
}

void cddpi_free(void *memory)
{
    if (allocator.release == NULL) {
        free(memory);
    } else if (memory != NULL) {
        allocator.release(allocator.state, memory);
    }
}
