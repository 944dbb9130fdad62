/* environment.h - the environment of a rank: the variables of cddp and torchrun, and the user's
 * own. */
#ifndef CDDPI_LAUNCHER_ENVIRONMENT_H
#define CDDPI_LAUNCHER_ENVIRONMENT_H

#include "launcher/supervise/job.h"

/** The variables that cddp-run sets for @p rank, as "NAME=value" strings ended by NULL.
 *  @param out  One block; release with cddp_free(). */
CDDP_CHECKED cddp_status cddpi_environment_own(const struct cddpi_job *job, int rank, char ***out);

/** This process's environment, with variables in @p own replacing those of the same name. The
 *  strings are borrowed from @p own and from the environment.
 *  @param out  Release with cddp_free(). */
CDDP_CHECKED cddp_status cddpi_environment_merge(char *const *own, char ***out);

#endif
