/* who.h - variables as launchers set them, and who this process is by them, as a rank and as a
 * cddp-run. */
#ifndef CDDP_TESTS_SUPPORT_WHO_H
#define CDDP_TESTS_SUPPORT_WHO_H

#include "group/launch/launch_node.h"
#include "support/test.h"

/* Unset all variables but those that programs and sanitizers need: nothing is left of the launchers
 * of this machine. */
void support_clear_environment(void);

/* The same before and after a test case, with a new folder as HOME. */
int who_clear(void **state);

/* Set names and values; the last pair is {NULL, NULL}. */
void who_set(const char *const (*variables)[2]);

/* This rank has a token, and is so many of so many; it meets the others at @p store. */
void who_is(int rank, int world_size, int local_rank, int local_world_size, const char *store);

/* This process trains alone. */
void who_is_alone(void);

/* With @p name set to @p value (NULL: unset) a rank is refused, and told that name. */
void who_is_refused(const char *name, const char *value);

/* This cddp-run is so many of so many, and starts @p nproc ranks; it meets the others at @p rdzv.
 */
void who_is_node(int node, int nodes, int nproc, const char *rdzv);

/* A cddp-run with @p given is refused, and told @p text. */
void who_is_no_node(struct cddpi_launch_given given, const char *text);

#endif
