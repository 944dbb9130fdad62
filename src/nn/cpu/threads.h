/* threads.h - loops of ours on the threads that oneDNN computes with. */
#ifndef CDDPI_NN_CPU_THREADS_H
#define CDDPI_NN_CPU_THREADS_H

#include <stddef.h>

/** Call @p fn once for each item from 0 to @p count - 1, in any order and by any thread of this
 *  one's team (CDDP_THREADS). Returns when all are done. */
void cddpi_for_each(size_t count, void (*fn)(void *context, size_t item), void *context);

/** How many threads that team has. */
size_t cddpi_team_size(void);

#endif
