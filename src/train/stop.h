/* stop.h - signals that ask a run to end. */
#ifndef CDDPI_TRAIN_STOP_H
#define CDDPI_TRAIN_STOP_H

#include <stdbool.h>

/** Let SIGTERM, SIGINT, SIGHUP and SIGQUIT ask for a stop; a second one kills, but SIGHUP. Those of
 *  the last two that are ignored stay so. */
void cddpi_stop_install(void);
bool cddpi_stop_requested(void);

#endif
