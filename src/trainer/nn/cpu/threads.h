/* threads.h - loops of ours on the threads that oneDNN computes with. */
#ifndef CDDPI_NN_CPU_THREADS_H
#define CDDPI_NN_CPU_THREADS_H

#include <stddef.h>

/** Call @p fn once for each item from 0 to @p count - 1, in any order and by any thread of this
 *  one's team (CDDP_THREADS). Returns when all are done. */
void cddpi_for_each(size_t count, void (*fn)(void *context, size_t item), void *context);

/** The same where an item calls a library that would use the team itself: it must not. */
void cddpi_for_each_alone(size_t count, void (*fn)(void *context, size_t item), void *context);

/** How many threads that team has. */
size_t cddpi_team_size(void);
/** Let it have another size, for what this thread does next. */
void cddpi_team_resize(size_t threads);

#endif
