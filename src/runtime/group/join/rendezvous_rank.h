/* rendezvous_rank.h - which process is which rank, for rendezvous.c. */
#ifndef CDDPI_GROUP_RENDEZVOUS_RANK_H
#define CDDPI_GROUP_RENDEZVOUS_RANK_H

#include "group/join/rendezvous.h"

/** @p key begins with "failure/", and has @p value: CDDP_ERR_MISMATCH if another process has come
 * as this rank. */
CDDP_CHECKED cddp_status cddpi_rendezvous_contest(struct cddpi_rendezvous *rendezvous,
                                                  const char *key, const char *value);

/** All have come, so that this rank may come again, by another process. */
void cddpi_rendezvous_forget_rank(struct cddpi_rendezvous *rendezvous);

/** Rank 0 could not serve the store, with @p failed, since its port is taken: name who has it.
 *  @param env  The rendezvous's; without a token the one in this machine's file is used. */
cddp_status cddpi_rendezvous_name_rival(struct cddpi_rendezvous *rendezvous,
                                        struct cddpi_launch_env *env, cddp_status failed);

#endif
