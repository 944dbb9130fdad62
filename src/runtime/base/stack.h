/* stack.h - ensures enough stack for a program and its threads. */
#ifndef CDDPI_BASE_STACK_H
#define CDDPI_BASE_STACK_H

#include <cddp/status.h>

/** At the start of main(), before other threads exist: raise a stack limit (ulimit -s) that is too
 *  small to the usual size, as far as that is allowed. CDDP_ERR_UNAVAILABLE: the permitted size is
 *  too small, and the program would crash without a message. */
CDDP_CHECKED cddp_status cddpi_stack_ensure(void);

#endif
