/* stack.h - enough stack for a program and its threads. */
#ifndef CDDPI_BASE_STACK_H
#define CDDPI_BASE_STACK_H

#include <cddp/status.h>

/** At the start of main(), before there are threads: raise the limit of the stack (ulimit -s) to
 *  the usual size, as far as that is allowed. CDDP_ERR_UNAVAILABLE where that is too little: the
 *  program would crash without a message. */
CDDP_CHECKED cddp_status cddpi_stack_ensure(void);

#endif
