/* auth.h - keys that stand for the job's token, keyed hashes, random bytes, and comparing secrets.
 * How two sides of a connection prove the token is in session.h. */
#ifndef CDDPI_STORE_AUTH_H
#define CDDPI_STORE_AUTH_H

#include <cddp/status.h>

#include <stdbool.h>

enum { CDDPI_AUTH_KEY_BYTES = 32, CDDPI_NONCE_BYTES = 32, CDDPI_AUTH_BYTES = 32 };

/* The least length of a token that strangers can guess at: what openssl rand -base64 16 prints,
 * without its "==". */
enum { CDDPI_TOKEN_LEAST = 22, CDDPI_TOKEN_LEAST_DIFFERENT = 6 };

/** Check that @p token is secret enough for a port that other machines reach: an attacker who has
 *  recorded a greeting can try billions of tokens. @p what names the port in the text.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT: it is empty, too short, or has too few different characters.
 */
CDDP_CHECKED cddp_status cddpi_token_check(const char *token, const char *what);

/** The key that @p token stands for in one use, named by @p purpose. */
void cddpi_auth_key(const char *token, const char *purpose, uint8_t out[CDDPI_AUTH_KEY_BYTES]);

void cddpi_random_bytes(void *out, size_t bytes);

/** A keyed hash of two nonces for one purpose, @p what: of the file store's records. */
void cddpi_auth_make(const uint8_t key[CDDPI_AUTH_KEY_BYTES], const char *what,
                     const uint8_t first[CDDPI_NONCE_BYTES],
                     const uint8_t second[CDDPI_NONCE_BYTES], uint8_t out[CDDPI_AUTH_BYTES]);

/** Forget a secret: its memory is about to be used by others. */
void cddpi_wipe(void *secret, size_t bytes);

/** Whether two secrets of @p bytes bytes are equal, in a time that does not tell where they differ.
 */
bool cddpi_auth_equal(const void *a, const void *b, size_t bytes);

#endif
