/* launch_token.h - the token of a job whose launcher gives none. */
#ifndef CDDPI_GROUP_LAUNCH_TOKEN_H
#define CDDPI_GROUP_LAUNCH_TOKEN_H

#include "group/launch/launch_env.h"

/** Have a token that every rank of the job reads and nobody else can: a file of mode 0600 in
 *  $HOME/.cddp, else in @p folder (may be NULL), which the nodes share. The first rank makes it.
 *  Does nothing if @p env has a token already.
 *  @param name  Of the job and its rendezvous, fit for a file's name.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT or CDDP_ERR_IO, whose text says what to do. */
cddp_status cddpi_launch_token(struct cddpi_launch_env *env, const char *name, const char *folder);

/** Whether the store of @p env, which rank 0 serves, is on loopback: only this machine reaches it.
 */
bool cddpi_launch_is_here(const struct cddpi_launch_env *env);

/** Whether @p env's token is missing, or can be guessed, although others than this machine's users
 *  reach its store.
 *  @return CDDP_ERR_ARGUMENT, with a text that says what to do. */
cddp_status cddpi_launch_need_token(const struct cddpi_launch_env *env);

#endif
