/* threads.h - runs loops of ours on oneDNN's threads. */
#ifndef CDDPI_NN_CPU_THREADS_H
#define CDDPI_NN_CPU_THREADS_H

#include <stddef.h>

/** Call @p fn once for each item from 0 to @p count - 1, in any order and on any thread of the
 *  calling thread's team (CDDP_THREADS). Returns when all calls are done. */
void cddpi_for_each(size_t count, void (*fn)(void *context, size_t item), void *context);

/** The same for items that call a library which would use the team itself: inside an item, it gets
 *  one thread. */
void cddpi_for_each_alone(size_t count, void (*fn)(void *context, size_t item), void *context);

/** The number of threads in the calling thread's team. */
size_t cddpi_team_size(void);
/** Change the team's size for what the calling thread does next. */
void cddpi_team_resize(size_t threads);

#endif
