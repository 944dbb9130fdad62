/* launch_token.h - owns the token of a job whose launcher does not give one. */
#ifndef CDDPI_GROUP_LAUNCH_TOKEN_H
#define CDDPI_GROUP_LAUNCH_TOKEN_H

#include "group/launch/launch_env.h"

/** Get a token that only the ranks of the job can read. It is in a file of mode 0600 in
 *  $HOME/.cddp, else in @p folder (may be NULL), which the nodes share. The first rank creates the
 *  file. Does nothing if @p env already has a token.
 *  @param name  Name of the job and its rendezvous, usable as a file name.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT or CDDP_ERR_IO with a text that says what to do. */
cddp_status cddpi_launch_token(struct cddpi_launch_env *env, const char *name, const char *folder);

/** Whether the store of @p env, which rank 0 serves, is on loopback, so that only this machine
 *  reaches it.
 */
bool cddpi_launch_is_here(const struct cddpi_launch_env *env);

/** Check that @p env has a token that cannot be guessed, if its store can be reached from other
 *  machines.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT with a text that says what to do. */
cddp_status cddpi_launch_need_token(const struct cddpi_launch_env *env);

#endif
