/* proof.h - proving the job's token without sending it: keyed BLAKE2b over nonces of both sides.
 * It keeps strangers out; it neither hides what follows nor binds it to the connection, so a
 * network that others can rewrite needs a tunnel. */
#ifndef CDDPI_STORE_PROOF_H
#define CDDPI_STORE_PROOF_H

#include <cddp/status.h>

#include <stdbool.h>

enum { CDDPI_PROOF_KEY_BYTES = 32, CDDPI_NONCE_BYTES = 32, CDDPI_PROOF_BYTES = 32 };

/** The key that @p token stands for in one use, named by @p purpose. */
void cddpi_proof_key(const char *token, const char *purpose, uint8_t out[CDDPI_PROOF_KEY_BYTES]);

void cddpi_random_bytes(void *out, size_t bytes);

/** What @p side ("server" or "client") shows the other. */
void cddpi_proof_make(const uint8_t key[CDDPI_PROOF_KEY_BYTES], const char *side,
                      const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                      const uint8_t client_nonce[CDDPI_NONCE_BYTES],
                      uint8_t out[CDDPI_PROOF_BYTES]);

/** Whether two secrets of @p bytes bytes are equal, in a time that does not tell where they differ.
 */
bool cddpi_proof_equal(const void *a, const void *b, size_t bytes);

#endif
