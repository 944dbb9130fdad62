/* utf8.h - makes text of any origin, such as a model's output, safe to show. */
#ifndef CDDPI_UTF8_H
#define CDDPI_UTF8_H

#include "base/shared.h"

#include <stdbool.h>
#include <stddef.h>

/** The length (1 to 4 bytes) of the UTF-8 character at the start of @p text. 0: not UTF-8, such as
 *  overlong forms, surrogates and codes above U+10FFFF. */
CDDPI_SHARED size_t cddpi_utf8_length(const char *text, size_t bytes);

/** The length of a byte order mark at the start of @p text, as Windows editors write one: 3 or 0.
 *  Readers of text files skip it. */
CDDPI_SHARED size_t cddpi_utf8_mark(const char *text, size_t bytes);

/** A copy in which U+FFFD replaces each byte that is not UTF-8 and each control character except
 *  tab and newline, so that terminals and JSON accept it. Release with cddpi_free(). NULL: no
 *  memory. */
CDDPI_SHARED char *cddpi_utf8_clean(const char *text, size_t bytes);

/** In @p text, which has room for @p room bytes, escape what a terminal would act on or hide:
 *  control characters (\x1b), bytes that are not UTF-8, changes of text direction (\u202e) and
 *  invisible marks. Newlines and tabs stay unless @p one_line. Text that no longer fits is cut
 *  off. */
void cddpi_text_clean(char *text, size_t room, bool one_line);

#endif
