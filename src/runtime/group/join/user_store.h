/* user_store.h - owns a group's store for the user's own keys. */
#ifndef CDDPI_GROUP_USER_STORE_H
#define CDDPI_GROUP_USER_STORE_H

#include "store/auth.h"

/* The store's handle, and on rank 0 its server; the group owns it. */
struct cddpi_user_store;

/** Close it; NULL is accepted. */
void cddpi_user_store_destroy(struct cddpi_user_store *store);

/** Derive the store's token from the job's @p token and a @p nonce, which is not secret. */
void cddpi_user_store_token(const char *token, const uint8_t nonce[CDDPI_NONCE_BYTES],
                            char out[33]);

#endif
