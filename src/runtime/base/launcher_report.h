/* launcher_report.h - what a rank tells its launcher: that it is still saving when it was asked to
 * end, and why it fails. The launcher gives a pipe (CDDP_REPORT_FD); each report in it lengthens
 * the time until the rank is killed. CDDPI_REPORT_SAVED also tells that a restart would begin later
 * in the run than this one did. One per process; nothing happens without the pipe. */
#ifndef CDDPI_BASE_LAUNCHER_REPORT_H
#define CDDPI_BASE_LAUNCHER_REPORT_H

#include <stddef.h>

enum {
    CDDPI_REPORT_ALIVE = 'w',
    CDDPI_REPORT_SAVED = 's',
    /* Two numbers follow: the rank that fails, and the rank that is the cause. Numbers here have
     * two bytes, the lower one first. */
    CDDPI_REPORT_CULPRIT = 'b',
    CDDPI_REPORT_CULPRIT_BYTES = 5, /* in all */
    /* Three numbers follow: the rank, where in the text its failure begins, and the length of the
     * text; then the text. */
    CDDPI_REPORT_FAILURE = 'f',
    CDDPI_REPORT_FAILURE_BYTES = 7, /* before the text */
    CDDPI_REPORT_BYTES = 4096       /* at most, so that a pipe keeps them together (PIPE_BUF) */
};

/** Take the pipe over from the launcher: programs that this one starts do not get it. At the start
 *  of main(), before other threads. */
void cddpi_launcher_report_open(void);

/** Begin to report: from now on cddpi_launcher_report_alive() does. Safe in a signal handler. */
void cddpi_launcher_report_begin(void);

/** Say that a checkpoint was written. Any thread. */
void cddpi_launcher_report_saved(void);

/** Say that @p rank, which is this one, fails because @p culprit did: the launcher is to name that,
 *  whichever ends first. */
void cddpi_launcher_report_culprit(int rank, int culprit);

/** Say that @p rank, which is this one, is about to write @p text to stderr: its failure, which
 * begins at @p named and may be that of other ranks, too. What is too long loses its end. */
void cddpi_launcher_report_failure(int rank, const char *text, size_t named);

/** Say that work goes on; nothing before cddpi_launcher_report_begin(). Any thread, never blocks,
 * leaves errno alone; safe in a signal handler. */
void cddpi_launcher_report_alive(void);

#endif
