/* descendants.h - the end of every process that came from us, also of those whose parents are gone:
 * the kernel gives them to us, because we asked for it (a "child subreaper"). */
#ifndef CDDPI_LAUNCHER_DESCENDANTS_H
#define CDDPI_LAUNCHER_DESCENDANTS_H

#include <stdbool.h>

/** Let orphaned descendants become our children. */
void cddpi_descendants_adopt(void);

/** Kill and reap all children, and those that become ours by that, within @p timeout_ms. Returns
 *  whether none is left. No child may be waited for elsewhere at the same time. */
bool cddpi_descendants_kill(unsigned timeout_ms);

#endif
