/* local_token.h - owns the token of ranks that meet on this machine's loopback, or in a file, and
 * were not given one. Every user of the machine can reach loopback, so there always is a token. */
#ifndef CDDPI_GROUP_LOCAL_TOKEN_H
#define CDDPI_GROUP_LOCAL_TOKEN_H

#include "group/launch/launch_env.h"

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

/** Whether ranks get the token from a file of this machine: @p env has no token, and rank 0 serves
 *  a store that only this machine can reach. */
bool cddpi_local_token_is_needed(const struct cddpi_launch_env *env);

/** For rank 0: write @p env's token into the file, replacing what an earlier job left there. Its
 *  server must already listen, so that no other job has this port. */
CDDP_CHECKED cddp_status cddpi_local_token_write(struct cddpi_launch_env *env);

/** For the other ranks: open the store with the token in the file. The file is read again until its
 *  token is the server's. @p env gets the token.
 *  @param options  Options of the store; url and prefix are set. */
CDDP_CHECKED cddp_status cddpi_local_token_open(struct cddpi_launch_env *env,
                                                const cddp_store_options *options,
                                                int64_t deadline_ns, cddp_store **out);

/** Remove the file, once all ranks have joined or rank 0 has given up. Its server must still have
 *  the port. */
void cddpi_local_token_remove(const struct cddpi_launch_env *env);

/** For ranks that meet in a file: read the token from it, or put one there. Only this user can
 * access the file. Does nothing if @p env has a token. */
CDDP_CHECKED cddp_status cddpi_file_token_share(struct cddpi_launch_env *env, cddp_store *store);

/** Create this user's folder @p name in $TMPDIR or /tmp, unless it exists. Only this user can
 *  access it. All processes of the user with the same TMPDIR get the same path.
 *  @return CDDP_OK; CDDP_ERR_IO: it cannot be created, or other users can read or write the
 *          existing one. */
CDDP_CHECKED cddp_status cddpi_own_folder_make(const char *name, char *out, size_t bytes);

#endif
