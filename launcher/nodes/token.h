/* token.h - the secret of a job on several machines, from where the user keeps it. */
#ifndef CDDPI_LAUNCHER_TOKEN_H
#define CDDPI_LAUNCHER_TOKEN_H

#include <cddp/status.h>

enum { CDDPI_TOKEN_BYTES = 64 };

/** Read the first line of @p path, which nobody but its owner may read; without a @p path (NULL),
 *  $CDDP_TOKEN. @p out is "" if there is neither.
 *  @return CDDP_ERR_CONFIG (what is wrong with the file), CDDP_ERR_ARGUMENT (it is too long, or has
 *          other bytes than printable ones). */
CDDP_CHECKED cddp_status cddpi_token_read(const char *path, char out[CDDPI_TOKEN_BYTES + 1]);

/** Whether @p token, which the user chose, is a secret where the nodes meet at @p rdzv: other
 *  machines reach every store that is not on loopback. "": there is none yet.
 *  @return CDDP_ERR_ARGUMENT, with what to do. */
CDDP_CHECKED cddp_status cddpi_token_suits(const char *token, const char *rdzv);

#endif
