/* memory.h - a machine that has only so much memory left, for tests. */
#ifndef CDDP_TESTS_SUPPORT_MEMORY_H
#define CDDP_TESTS_SUPPORT_MEMORY_H

#include "base/control_group.h"
#include "base/memory_left.h"
#include "support/test.h"

/* From now on the library sees a machine with so many kilobytes left, whose files lie in @p
 * machine, until support_end_memory(). */
void support_set_memory(const char *machine, unsigned kilobytes);
void support_end_memory(void);

#endif
