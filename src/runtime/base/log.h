/* log.h - the only place where the library prints, and how programs print. $CDDP_LOG sets the
 * level: "warn" (default), "error", "info", "debug" or "off". Lines go to stderr, prefixed with the
 * rank, or to the sink of cddp_log_set_sink(). Any thread. */
#ifndef CDDPI_LOG_H
#define CDDPI_LOG_H

#include "base/choices.h"
#include "base/shared.h"

#include <stdbool.h>

#define CDDPI_LOG_MAP(X)                                                                           \
    X(CDDPI_LOG_OFF, "off")                                                                        \
    X(CDDPI_LOG_ERROR, "error")                                                                    \
    X(CDDPI_LOG_WARN, "warn")                                                                      \
    X(CDDPI_LOG_INFO, "info")                                                                      \
    X(CDDPI_LOG_DEBUG, "debug")
enum cddpi_log_level { CDDPI_LOG_MAP(CDDPI_CHOICE_ID) };

/** Log one line at @p level; a newline is added. */
CDDPI_SHARED void cddpi_log(enum cddpi_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Whether lines of @p level are printed, for callers whose text is expensive to make. */
bool cddpi_log_enabled(enum cddpi_log_level level);

/** For programs: write @p text to stderr in one write. Texts of several processes then do not mix,
 *  and a signal finds either all of the text written or nothing (stdio writes in pieces of 128
 *  bytes since glibc 2.37). */
void cddpi_print(const char *text);

#endif
