/* rendezvous_rank.h - owns which process is which rank, for rendezvous.c. */
#ifndef CDDPI_GROUP_RENDEZVOUS_RANK_H
#define CDDPI_GROUP_RENDEZVOUS_RANK_H

#include "group/join/rendezvous.h"

/** Check @p key, which begins with "failure/", and its @p value. CDDP_ERR_MISMATCH: another process
 * joined as this rank. */
CDDP_CHECKED cddp_status cddpi_rendezvous_contest(struct cddpi_rendezvous *rendezvous,
                                                  const char *key, const char *value);

/** Remove this rank's registration, once all ranks have joined, so that another process may join as
 *  this rank later. */
void cddpi_rendezvous_forget_rank(struct cddpi_rendezvous *rendezvous);

/** Name the process that has the store's port. Rank 0 could not serve the store, with status @p
 *  failed, since the port is in use.
 *  @param env  The environment of the rendezvous. If it has no token, the one in this machine's
 *              file is used. */
cddp_status cddpi_rendezvous_name_rival(struct cddpi_rendezvous *rendezvous,
                                        struct cddpi_launch_env *env, cddp_status failed);

#endif
