/* follow_watch.h - decides what to say while a run that is followed adds no line to its metrics,
 * and when to stop waiting. Does no I/O and reads no clock: each call is told the time. */
#ifndef CDDPI_TRAIN_REPORT_FOLLOW_WATCH_H
#define CDDPI_TRAIN_REPORT_FOLLOW_WATCH_H

#include <stdint.h>

enum {
    CDDPI_FOLLOW_RESTART_S = 120, /* how long a run may be without a process before it restarts */
    CDDPI_FOLLOW_LOOK_MS = 1000 /* after this silence cddpi_follow_watch_look() needs the writer */
};

/* Whether a process writes to the run folder: it then holds the folder's lock. */
enum cddpi_follow_writer {
    CDDPI_FOLLOW_WRITER_UNKNOWN, /* its lock would not be seen here */
    CDDPI_FOLLOW_WRITER_RUNS,
    CDDPI_FOLLOW_WRITER_GONE
};

enum cddpi_follow_news {
    CDDPI_FOLLOW_NO_NEWS,
    CDDPI_FOLLOW_QUIET,   /* no line has come for long */
    CDDPI_FOLLOW_GONE,    /* no process writes, and the run has not ended: a restart is awaited */
    CDDPI_FOLLOW_GIVEN_UP /* the run was not restarted */
};

struct cddpi_follow_watch {
    int64_t line_ns;    /* when the last line came */
    int64_t longest_ns; /* between two lines */
    int64_t news_ns;    /* when QUIET is due */
    int64_t gone_ns;    /* since when no process writes; 0: a process does, or it is unknown */
    int64_t told_ns;    /* when GONE was told; 0: not since the writer was last seen */
};

void cddpi_follow_watch_begin(struct cddpi_follow_watch *watch, int64_t now_ns);
/** A line of metrics came. */
void cddpi_follow_watch_line(struct cddpi_follow_watch *watch, int64_t now_ns);
/** No line came: QUIET is due once, and rarely again; a process that is gone is told of once, and
 *  always before the run is given up. */
enum cddpi_follow_news cddpi_follow_watch_look(struct cddpi_follow_watch *watch,
                                               enum cddpi_follow_writer writer, int64_t now_ns);

#endif
