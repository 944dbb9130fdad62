/* generations.h - runs a job from its first start to its last: after a failure or a change of its
 * members, all ranks are started again as the next generation. */
#ifndef CDDPI_LAUNCHER_GENERATIONS_H
#define CDDPI_LAUNCHER_GENERATIONS_H

struct cddpi_nodes;

/** Run all generations, and leave the job. Returns the exit status. */
int cddpi_generations_run(struct cddpi_nodes *nodes);

#endif
