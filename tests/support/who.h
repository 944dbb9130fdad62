/* who.h - sets variables as launchers do, and checks which rank or node this process then is. */
#ifndef CDDP_TESTS_SUPPORT_WHO_H
#define CDDP_TESTS_SUPPORT_WHO_H

#include "group/launch/launch_node.h"
#include "support/test.h"

/* Unset all variables except those that programs and sanitizers need, so that none of this
 * machine's launchers remain. */
void support_clear_environment(void);

/* Clear the environment before and after a test case, with a new folder as HOME. */
int who_clear(void **state);

/* Set variables; the list ends with {NULL, NULL}. */
void who_set(const char *const (*variables)[2]);

/* Assert that this process is @p rank of @p world_size, has a token, and meets the others at @p
 * store. */
void who_is(int rank, int world_size, int local_rank, int local_world_size, const char *store);

/* Assert that this process trains alone. */
void who_is_alone(void);

/* Assert that a rank with @p name set to @p value (NULL: unset) is refused, with a message that
 * contains @p name. */
void who_is_refused(const char *name, const char *value);

/* Assert that this cddp-run is @p node of @p nodes, starts @p nproc ranks, and meets the others at
 * @p rdzv. */
void who_is_node(int node, int nodes, int nproc, const char *rdzv);

/* Assert that a cddp-run with @p given is refused, with a message that contains @p text. */
void who_is_no_node(struct cddpi_launch_given given, const char *text);

#endif
