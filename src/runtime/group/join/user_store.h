/* user_store.h - the token of a group's store for the user's own keys. */
#ifndef CDDPI_GROUP_USER_STORE_H
#define CDDPI_GROUP_USER_STORE_H

#include "store/auth.h"

/** Derive the store's token from the job's @p token and a @p nonce, which is not secret. */
void cddpi_user_store_token(const char *token, const uint8_t nonce[CDDPI_NONCE_BYTES],
                            char out[33]);

#endif
