/* streams.h - the standard streams of a program, and command lines that a program prints. */
#ifndef CDDPI_BASE_STREAMS_H
#define CDDPI_BASE_STREAMS_H

#include <stdio.h>

/** Open /dev/null for each of the descriptors 0, 1 and 2 that is closed, so that no other file or
 *  pipe gets their numbers. Call it first in main(). */
void cddpi_streams_open(void);

/** For programs: print to @p to. The result of @p format may contain foreign text such as file
 *  names; it is escaped like in cddpi_text_clean(). */
void cddpi_say(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Flush stdout. Returns @p status. If @p status is 0 and the flush fails, prints an error on
 *  stderr in the name of @p program and returns 1. */
int cddpi_streams_end(const char *program, int status);

/** Write @p word to @p to, quoted if necessary, so that any POSIX shell reads it back. */
void cddpi_shell_quote(FILE *to, const char *word);

/** The same for people: characters that a terminal would act on are escaped as in $'...', which not
 *  every shell can read. */
void cddpi_shell_print(FILE *to, const char *word);

#endif
