/* ctl_print.h - shows a job's status: as text, as JSON, as one line. Words of others are made safe
 * for a terminal. */
#ifndef CDDPI_LAUNCHER_CTL_PRINT_H
#define CDDPI_LAUNCHER_CTL_PRINT_H

#include "launcher/ctl/ctl_message.h"
#include "launcher/ctl/ctl_run.h"

#include <stdio.h>

/** Print the status. @p curves: columns of the curves of the last losses and steps/s; 0: none. */
void cddpi_ctl_print(const struct cddpi_ctl_answer *answer, const struct cddpi_ctl_run *run,
                     int curves, bool is_utf8, FILE *to);

/** Print the status in one line. */
void cddpi_ctl_print_line(const struct cddpi_ctl_answer *answer, const struct cddpi_ctl_run *run,
                          FILE *to);

/** Print the status as a JSON object. Returns false if memory ran out. */
bool cddpi_ctl_print_json(const struct cddpi_ctl_answer *answer, const struct cddpi_ctl_run *run,
                          FILE *to);

#endif
