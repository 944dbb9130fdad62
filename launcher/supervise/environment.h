/* environment.h - the environment that a rank is started with: cddp's variables, torchrun's, and
 * the user's own. */
#ifndef CDDPI_LAUNCHER_ENVIRONMENT_H
#define CDDPI_LAUNCHER_ENVIRONMENT_H

#include "launcher/supervise/job.h"

/** "NAME=value" texts for @p rank, ended by NULL: only what cddp-run sets.
 *  @param out  One block; release with cddp_free(). */
CDDP_CHECKED cddp_status cddpi_environment_own(const struct cddpi_job *job, int rank, char ***out);

/** Our whole environment with @p own in place of variables of the same names. The texts stay those
 * of @p own and of the environment.
 *  @param out  Release with cddp_free(). */
CDDP_CHECKED cddp_status cddpi_environment_merge(char *const *own, char ***out);

#endif
