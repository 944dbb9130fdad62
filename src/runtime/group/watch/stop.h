/* stop.h - owns whether a signal has requested this process to end. */
#ifndef CDDPI_GROUP_STOP_H
#define CDDPI_GROUP_STOP_H

#include <stdbool.h>

/** Whether a signal has requested it since cddp_stop_on_signals() was called. */
bool cddpi_stop_requested(void);

#endif
