/* terminal.h - what the terminal that a program writes to can show: colours, a line that is drawn
 * again, and how wide that line may be. */
#ifndef CDDPI_BASE_TERMINAL_H
#define CDDPI_BASE_TERMINAL_H

#include "base/shared.h"

#include <stdbool.h>
#include <stddef.h>

/* What begins a line that is drawn again: to the left edge, and erase. The 0 changes nothing for a
 * terminal. By it cddp-run knows these lines, which it fits, from those of other programs. */
#define CDDPI_TERMINAL_REDRAW "\r\033[0K"

/** Whether @p fd is a terminal that can draw a line again: any but TERM=dumb. */
CDDPI_SHARED bool cddpi_terminal_redraws(int fd);

/** Whether a terminal, if there is one, shows colours and its user wants them: TERM is set and not
 *  "dumb", and NO_COLOR is unset or empty (no-color.org). */
CDDPI_SHARED bool cddpi_terminal_has_colour(void);

/** The width of the terminal @p fd now. Without an answer $COLUMNS, else 80. For another file,
 *  whose reader may be a terminal, $COLUMNS. 0: unknown. */
CDDPI_SHARED int cddpi_terminal_columns(int fd);

/** How many bytes of @p line, one that is drawn again, fit into a row of @p columns; 0 columns: any
 *  number. The last column stays free, since some terminals wrap when it is written. Fields are
 *  separated by two spaces and go from the right; if not even the first one fits, it is cut.
 *  Colours take no column. Each begins and ends within a field, and the first field has none. */
CDDPI_SHARED size_t cddpi_terminal_fit(const char *line, size_t bytes, int columns);

#endif
