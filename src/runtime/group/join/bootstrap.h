/* bootstrap.h - lets ranks that can already exchange bytes by other means, mostly MPI, meet in a
 * store that rank 0 serves for this purpose. */
#ifndef CDDPI_GROUP_BOOTSTRAP_H
#define CDDPI_GROUP_BOOTSTRAP_H

#include "group/launch/launch_env.h"

/** Fill @p env, which has the options and the deadline, with what is needed to join: rank, sizes
 *  (also those of this machine), the store's address, and rank 0's job name and token. If rank 0
 *  has no token, it creates a random one. Collective: every rank succeeds or every rank fails. On
 *  rank 0, @p env then owns the store's server. */
CDDP_CHECKED cddp_status cddpi_bootstrap_rendezvous(const cddp_bootstrap *bootstrap,
                                                    struct cddpi_launch_env *env);

/** Meet through MPI, for env->rendezvous_by_mpi. The MPI module starts MPI if it is not started
 *  yet. */
CDDP_CHECKED cddp_status cddpi_bootstrap_rendezvous_by_mpi(struct cddpi_launch_env *env);

/** After joining: agree on the ranks' statuses, then close the server, which other ranks may have
 *  used until now. Collective if one of the two functions above filled @p env; otherwise does
 *  nothing.
 *  @return @p status, or another rank's failure. */
CDDP_CHECKED cddp_status cddpi_bootstrap_end(struct cddpi_launch_env *env, cddp_status status);

#endif
