/* alloc.c - allocation, with a counter by which tests make one call fail. */
#include "base/alloc.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

static _Thread_local unsigned calls_until_failure;

static bool must_fail(void)
{
    return calls_until_failure != 0 && --calls_until_failure == 0;
}

void cddpi_alloc_fail_nth(unsigned nth)
{
    calls_until_failure = nth;
}

void *cddpi_zalloc(size_t bytes)
{
    return must_fail() ? NULL : calloc(1, bytes > 0 ? bytes : 1);
}

void *cddpi_zalloc_array(size_t count, size_t bytes)
{
    if (bytes != 0 && count > SIZE_MAX / bytes) {
        return NULL;
    }
    return cddpi_zalloc(count * bytes);
}

void *cddpi_realloc(void *old, size_t bytes)
{
    return must_fail() ? NULL : realloc(old, bytes > 0 ? bytes : 1);
}

void *cddpi_alloc_aligned(size_t bytes)
{
    size_t alignment = bytes >= 4 * (size_t)HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : CDDPI_ALIGNMENT;
    void *memory = NULL;

    if (must_fail() || posix_memalign(&memory, alignment, bytes > 0 ? bytes : 1) != 0) {
        return NULL;
    }
    if (alignment == HUGE_PAGE_BYTES) {
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
    free(memory);
}
