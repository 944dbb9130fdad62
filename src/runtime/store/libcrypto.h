/* libcrypto.h - owns AES-256-GCM by OpenSSL's libcrypto, on machines that have the library. It is
 * twice as fast as libsodium's AES and writes the same bytes, so the other side does not need it.
 * The library is loaded at its first use (connections that carry data); nothing requires it. */
#ifndef CDDPI_STORE_LIBCRYPTO_H
#define CDDPI_STORE_LIBCRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A context for one direction: sealing (@p seals) or opening. @p key has 32 bytes. NULL: libcrypto
 *  is not installed, or it failed. Release with cddpi_libcrypto_end(), which accepts NULL. */
void *cddpi_libcrypto_begin(bool seals, const uint8_t *key);
/** Like cddpi_seal_put() and cddpi_seal_get() of cipher.h; @p nonce has 12 bytes. False: libcrypto
 *  failed, or (get) the tag is wrong. */
bool cddpi_libcrypto_put(void *context, const uint8_t *nonce, const uint8_t *from, size_t bytes,
                         uint8_t *out);
bool cddpi_libcrypto_get(void *context, const uint8_t *nonce, const uint8_t *from, size_t bytes,
                         uint8_t *out);
void cddpi_libcrypto_end(void *context);

#endif
