/* encryption.h - whether the user wants data between hosts encrypted: CDDP_ENCRYPT. */
#ifndef CDDPI_STORE_ENCRYPTION_H
#define CDDPI_STORE_ENCRYPTION_H

#include <cddp/status.h>

#include <stdbool.h>

/** Whether CDDP_ENCRYPT asks for data between hosts to be encrypted. (Connections to a store, and
 *  control connections between hosts, are in any case.)
 *  @return CDDP_ERR_ARGUMENT: it is neither 0 nor 1. */
CDDP_CHECKED cddp_status cddpi_encryption_wanted(bool *out);
/** The same with @p token as the secret: CDDP_ERR_ARGUMENT also if encryption is wanted and the
 * token is empty. */
CDDP_CHECKED cddp_status cddpi_encryption(const char *token, bool *out);

#endif
