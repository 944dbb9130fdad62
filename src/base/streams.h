/* streams.h - the standard streams of a program. */
#ifndef CDDPI_BASE_STREAMS_H
#define CDDPI_BASE_STREAMS_H

#include <stdio.h>

/** Open those of the descriptors 0, 1 and 2 that are closed on /dev/null, so that no file or pipe
 * of ours gets their numbers. First of all in main(). */
void cddpi_streams_open(void);

/** Write out what stdout holds. Returns @p status, or, if that is 0 and not all can be written, 1:
 *  then stderr says so in the name of @p program. */
int cddpi_streams_end(const char *program, int status);

#endif
