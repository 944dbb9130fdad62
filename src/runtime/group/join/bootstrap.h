/* bootstrap.h - ranks that can already exchange bytes by other means, MPI above all, meet in a
 * store that rank 0 serves for the purpose. */
#ifndef CDDPI_GROUP_BOOTSTRAP_H
#define CDDPI_GROUP_BOOTSTRAP_H

#include "group/launch/launch_env.h"

/** Fill @p env, which holds the options and the deadline, with what is needed to join: rank and
 *  sizes, among them those of this machine, the store's address, rank 0's name of the job, and its
 *  token, a random one if it has none. Collective: every rank succeeds or every rank fails. On rank
 *  0 the store's server is in @p env then. */
CDDP_CHECKED cddp_status cddpi_bootstrap_rendezvous(const cddp_bootstrap *bootstrap,
                                                    struct cddpi_launch_env *env);

/** Meet by MPI, which the MPI module starts if nobody has: for env->rendezvous_by_mpi. */
CDDP_CHECKED cddp_status cddpi_bootstrap_rendezvous_by_mpi(struct cddpi_launch_env *env);

/** After joining: agree on how that went, then close the server, which others may have read last.
 *  Collective if @p env came by one of the above, else nothing.
 *  @return @p status, or the failure of another rank. */
CDDP_CHECKED cddp_status cddpi_bootstrap_end(struct cddpi_launch_env *env, cddp_status status);

#endif
