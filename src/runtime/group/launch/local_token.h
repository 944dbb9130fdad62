/* local_token.h - the token of ranks that meet on this machine's loopback, or in a file, and were
 * given none. Every user of the machine reaches loopback, so there is always one. */
#ifndef CDDPI_GROUP_LOCAL_TOKEN_H
#define CDDPI_GROUP_LOCAL_TOKEN_H

#include "group/launch/launch_env.h"

/** Whether ranks find the token in a file of this machine: @p env has none, and rank 0 serves a
 *  store that only this machine reaches. */
bool cddpi_local_token_is_needed(const struct cddpi_launch_env *env);

/** Rank 0, whose server listens by now, so that nobody else has this port: put @p env's token into
 *  the file, whatever an earlier job has left there. */
CDDP_CHECKED cddp_status cddpi_local_token_write(struct cddpi_launch_env *env);

/** The others: open the store with the token that they find in the file, which is read again until
 *  it is the server's. @p env gets it.
 *  @param options  Of the store; url and prefix are set. */
CDDP_CHECKED cddp_status cddpi_local_token_open(struct cddpi_launch_env *env,
                                                const cddp_store_options *options,
                                                int64_t deadline_ns, cddp_store **out);

/** All have joined, or rank 0 has given up, and its server still has the port: remove the file. */
void cddpi_local_token_remove(const struct cddpi_launch_env *env);

/** Ranks that meet in a file: take the token in it, or put one there. The file is this user's
 * alone. Does nothing if @p env has a token. */
CDDP_CHECKED cddp_status cddpi_file_token_share(struct cddpi_launch_env *env, cddp_store *store);

#endif
