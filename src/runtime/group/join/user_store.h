/* user_store.h - a group's store of its user's keys. */
#ifndef CDDPI_GROUP_USER_STORE_H
#define CDDPI_GROUP_USER_STORE_H

#include "store/auth.h"

/* What a group keeps: the handle, and on rank 0 the server. */
struct cddpi_user_store;

/** Close it; NULL is accepted. */
void cddpi_user_store_destroy(struct cddpi_user_store *store);

/** The store's token: of the job's @p token and a @p nonce that is no secret. */
void cddpi_user_store_token(const char *token, const uint8_t nonce[CDDPI_NONCE_BYTES],
                            char out[33]);

#endif
