/* utf8.h - text of any origin, such as a model's output, made fit to show. */
#ifndef CDDPI_UTF8_H
#define CDDPI_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/** Bytes of the UTF-8 character that @p text begins with (1 to 4); 0: it begins with none. Knows
 *  overlong forms, surrogates and what lies beyond U+10FFFF. */
size_t cddpi_utf8_length(const char *text, size_t bytes);

/** Bytes of the byte order mark that @p text begins with, as editors of Windows put one: 3 or 0.
 *  Whoever reads a text file passes over it. */
size_t cddpi_utf8_mark(const char *text, size_t bytes);

/** A copy with U+FFFD in place of each byte that is no UTF-8 and of each control character but tab
 *  and new line, so that a terminal and JSON can take it; release with cddpi_free(). NULL: no
 *  memory. */
char *cddpi_utf8_clean(const char *text, size_t bytes);

/** Escape in @p text, which has room for @p room bytes, what a terminal would obey or hide: control
 *  characters (\x1b), bytes that are no UTF-8, what turns the direction of writing (\u202e),
 * invisible marks. New lines and tabs stay, unless @p one_line. What has no room in the end is cut
 * off. */
void cddpi_text_clean(char *text, size_t room, bool one_line);

#endif
