/* streams.h - the standard streams of a program. */
#ifndef CDDPI_BASE_STREAMS_H
#define CDDPI_BASE_STREAMS_H

#include <stdio.h>

/** Open /dev/null at those of the descriptors 0, 1 and 2 that are closed, so that no file or pipe
 * of ours gets their numbers. First of all in main(). */
void cddpi_streams_open(void);

/** For programs: print to @p to what @p format makes, with foreign text such as names of files in
 * it; escaped as in cddpi_text_clean(). */
void cddpi_say(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Write out what stdout has buffered. Returns @p status; but if that is 0 and not all can be
 *  written, says so on stderr in the name of @p program and returns 1. */
int cddpi_streams_end(const char *program, int status);

#endif
