/* save_request.h - a signal that asks for a checkpoint, after which the run goes on. cddp-run sends
 * it to all ranks when the user asks for one (cddp-ctl); rank 0 counts. */
#ifndef CDDPI_TRAIN_SAVE_REQUEST_H
#define CDDPI_TRAIN_SAVE_REQUEST_H

#include <stdbool.h>

/** Handle CDDPI_SAVE_SIGNAL from now on. First thread. */
void cddpi_save_request_expect(void);

/** Whether the signal has come since the last call. */
bool cddpi_save_request_take(void);

/** The same, and leave the request to be taken. */
bool cddpi_save_request_is_there(void);

#endif
