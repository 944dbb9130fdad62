/* encryption.h - owns CDDP_ENCRYPT: whether the user wants data between hosts encrypted. */
#ifndef CDDPI_STORE_ENCRYPTION_H
#define CDDPI_STORE_ENCRYPTION_H

#include <cddp/status.h>

#include <stdbool.h>

/** Whether CDDP_ENCRYPT asks for data between hosts to be encrypted. (Connections to a store and
 *  control connections between hosts are always encrypted.)
 *  @return CDDP_ERR_ARGUMENT: CDDP_ENCRYPT is neither 0 nor 1. */
CDDP_CHECKED cddp_status cddpi_encryption_wanted(bool *out);
/** Like cddpi_encryption_wanted(), but also CDDP_ERR_ARGUMENT if encryption is wanted and
 *  @p token, its secret, is empty. */
CDDP_CHECKED cddp_status cddpi_encryption(const char *token, bool *out);

#endif
