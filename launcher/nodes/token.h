/* token.h - reads the secret token of a job on several machines from a file or from the
 * environment. */
#ifndef CDDPI_LAUNCHER_TOKEN_H
#define CDDPI_LAUNCHER_TOKEN_H

#include <cddp/status.h>

enum { CDDPI_TOKEN_BYTES = 64 };

/** Read the token from the first line of the file @p path, which only its owner may be able to
 *  read, or, if @p path is NULL, from $CDDP_TOKEN. @p out is "" if neither is set.
 *  @return CDDP_ERR_CONFIG (the message says what is wrong with the file), CDDP_ERR_ARGUMENT (the
 *          token is too long, or has non-printable bytes). */
CDDP_CHECKED cddp_status cddpi_token_read(const char *path, char out[CDDPI_TOKEN_BYTES + 1]);

/** Check that @p token, which the user chose ("": none yet), is secret enough for the meeting place
 *  @p rdzv: other machines can reach every store that is not on loopback.
 *  @return CDDP_ERR_ARGUMENT; the message says what to do. */
CDDP_CHECKED cddp_status cddpi_token_suits(const char *token, const char *rdzv);

#endif
