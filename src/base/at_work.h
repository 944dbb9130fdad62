/* at_work.h - how a rank that was asked to end tells its launcher that it is still saving. The
 * launcher gives a pipe (CDDP_REPORT_FD); each byte in it lengthens the time until the rank is
 * killed. CDDPI_SAVED also tells that a restart would not begin from where this one did. One per
 * process; nothing happens without the pipe. */
#ifndef CDDPI_BASE_AT_WORK_H
#define CDDPI_BASE_AT_WORK_H

enum { CDDPI_AT_WORK = 'w', CDDPI_SAVED = 's' }; /* the bytes */

/** Take the pipe over from the launcher: programs that this one starts do not get it. At the start
 *  of main(), before other threads. */
void cddpi_at_work_open(void);

/** From now on there is something to report. Safe in a signal handler. */
void cddpi_at_work_begin(void);

/** Say that the run is safe as far as it has come: a checkpoint was written. Any thread. */
void cddpi_at_work_saved(void);

/** Say that work goes on; nothing before cddpi_at_work_begin(). Any thread, never blocks, leaves
 *  errno alone; safe in a signal handler. */
void cddpi_at_work_tell(void);

#endif
