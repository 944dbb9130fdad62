/* echo.h - knows which failures ranks have told already, so that one that all ranks see is shown
 * once. Only what cddp-train says counts ("cddp-train: rank 2: ..." on stderr, and indented lines
 * behind it): other programs may mean each of their lines. */
#ifndef CDDPI_LAUNCHER_ECHO_H
#define CDDPI_LAUNCHER_ECHO_H

#include <stdbool.h>
#include <stddef.h>

enum { CDDPI_ECHO_LINES = 64, CDDPI_ECHO_BYTES = 1024 };

struct cddpi_echo {
    struct {
        int rank;
        size_t bytes;
        char text[CDDPI_ECHO_BYTES]; /* behind the names of ranks */
    } lines[CDDPI_ECHO_LINES];       /* a ring */
    size_t count; /* that were ever kept; the next goes to count modulo its size */
    int ranks;    /* of which something was not shown */
};

/** Whether another rank has told what @p line (without its newline) says; if not, keep it.
 *  @param in_failure  Of this rank's stderr: its last line told a failure. */
bool cddpi_echo_is_known(struct cddpi_echo *echo, int rank, const char *line, size_t bytes,
                         bool *in_failure);

#endif
