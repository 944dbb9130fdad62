/* libcrypto.h - AES-256-GCM by OpenSSL's libcrypto where the machine has that library: twice as
 * fast as libsodium's and the same bytes, so the other side need not have it. It is opened when it
 * is first asked for, which is for connections that data go by; nothing depends on it. */
#ifndef CDDPI_STORE_LIBCRYPTO_H
#define CDDPI_STORE_LIBCRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** One direction with @p key of 32 bytes, for sealing or for opening. NULL: there is no libcrypto,
 *  or it does not do it. Release with cddpi_libcrypto_end(), which accepts NULL. */
void *cddpi_libcrypto_begin(bool seals, const uint8_t *key);
/** As the functions of cipher.h; @p nonce has 12 bytes. False: it does not do it, or (getting) the
 *  tag is wrong. */
bool cddpi_libcrypto_put(void *context, const uint8_t *nonce, const uint8_t *from, size_t bytes,
                         uint8_t *out);
bool cddpi_libcrypto_get(void *context, const uint8_t *nonce, const uint8_t *from, size_t bytes,
                         uint8_t *out);
void cddpi_libcrypto_end(void *context);

#endif
