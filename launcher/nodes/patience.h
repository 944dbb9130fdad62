/* patience.h - when a node that waits tells its user for whom it waits, and until when. Reads no
 * clock: each call is told the time. */
#ifndef CDDPI_LAUNCHER_PATIENCE_H
#define CDDPI_LAUNCHER_PATIENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum {
    CDDPI_PATIENCE_MS = 1500,        /* before the first news: nodes seldom start at one moment */
    CDDPI_PATIENCE_REMOTE_MS = 10000 /* the same where ssh starts the nodes */
};

struct cddpi_patience {
    int64_t news_ns; /* when the next news is due */
};

/** A wait begins at @p now_ns. The first news is due after @p first_ms. */
void cddpi_patience_begin(struct cddpi_patience *patience, int first_ms, int64_t now_ns);
/** Whether there is news to tell: once, and after that once a minute. */
bool cddpi_patience_ends(struct cddpi_patience *patience, int64_t now_ns);

/** The time of day in @p left_ms from @p now, in local time: "14:07:12", or with the date if that
 * is a day or more from now. */
void cddpi_patience_until(time_t now, int64_t left_ms, char *out, size_t bytes);

#endif
