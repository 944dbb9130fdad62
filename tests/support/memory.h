/* memory.h - a simulated machine with little memory left, for tests. */
#ifndef CDDP_TESTS_SUPPORT_MEMORY_H
#define CDDP_TESTS_SUPPORT_MEMORY_H

#include "base/machine.h"
#include "base/memory_left.h"
#include "support/test.h"

/* Until support_end_memory(), the library sees a machine with @p kilobytes left. The machine's
 * files are in the folder @p machine. */
void support_set_memory(const char *machine, unsigned kilobytes);
void support_end_memory(void);

#endif
