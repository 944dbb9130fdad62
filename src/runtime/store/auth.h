/* auth.h - owns keys and hashes derived from the job's token (a secret), new tokens, and
 * CDDP_ENCRYPT: whether the user wants data between hosts encrypted. */
#ifndef CDDPI_STORE_AUTH_H
#define CDDPI_STORE_AUTH_H

#include <cddp/status.h>

#include <stdbool.h>

enum { CDDPI_AUTH_KEY_BYTES = 32, CDDPI_NONCE_BYTES = 32, CDDPI_AUTH_BYTES = 32 };

/* Minimum length, and minimum number of different characters, of a token that strangers can try to
 * guess. 22 characters are what openssl rand -base64 16 prints, without its "==". */
enum { CDDPI_TOKEN_LEAST = 22, CDDPI_TOKEN_LEAST_DIFFERENT = 6 };

/** Check that @p token is strong enough for a port that other machines can reach: an attacker who
 *  has recorded a handshake can try billions of tokens. @p what names the port in the error text.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT: the token is empty, too short, or has too few different
 *          characters. */
CDDP_CHECKED cddp_status cddpi_token_check(const char *token, const char *what);

/** Derive from @p token the key for one use, named by @p purpose. */
void cddpi_auth_key(const char *token, const char *purpose, uint8_t out[CDDPI_AUTH_KEY_BYTES]);

void cddpi_random_bytes(void *out, size_t bytes);

/** Sleep for between half of @p us and @p us microseconds, chosen at random, so that processes that
 *  start together do not try again together; and at most until @p deadline_ns. */
void cddpi_pause(uint32_t us, int64_t deadline_ns);

/** A keyed hash over @p what (the purpose) and two nonces: a proof that one side knows the key, or
 *  a key for a narrower use. */
void cddpi_auth_make(const uint8_t key[CDDPI_AUTH_KEY_BYTES], const char *what,
                     const uint8_t first[CDDPI_NONCE_BYTES],
                     const uint8_t second[CDDPI_NONCE_BYTES], uint8_t out[CDDPI_AUTH_BYTES]);

/** Overwrite a secret before its memory is released. */
void cddpi_wipe(void *secret, size_t bytes);

/** Whether two secrets of @p bytes bytes are equal. Constant time: an attacker cannot measure where
 *  they differ. */
bool cddpi_auth_equal(const void *a, const void *b, size_t bytes);

/** Whether CDDP_ENCRYPT asks for data between hosts to be encrypted. (Connections to a store and
 *  control connections between hosts are always encrypted.)
 *  @return CDDP_ERR_ARGUMENT: CDDP_ENCRYPT is neither 0 nor 1. */
CDDP_CHECKED cddp_status cddpi_encryption_wanted(bool *out);
/** Like cddpi_encryption_wanted(), but also CDDP_ERR_ARGUMENT if encryption is wanted and
 *  @p token, its secret, is empty. */
CDDP_CHECKED cddp_status cddpi_encryption(const char *token, bool *out);

#endif
