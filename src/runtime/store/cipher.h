/* cipher.h - one direction of an encrypted connection: records that are sealed and opened in turn.
 * AES-256-GCM where both processors have instructions for it, else ChaCha20-Poly1305; both by
 * libsodium, or by libcrypto where there is much of it (libcrypto.h). The nonce of a record is its
 * number. A key belongs to one direction of one connection and to 65536 records; then it is
 * replaced by its hash. So no nonce is used twice, and an attacker who gets a key cannot decrypt
 * what was sent long before it. No I/O. */
#ifndef CDDPI_STORE_CIPHER_H
#define CDDPI_STORE_CIPHER_H

#include <cddp/status.h>

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CDDPI_CIPHER_KEY_BYTES = 32,
    CDDPI_CIPHER_TAG_BYTES = 16, /* so much longer is a sealed record */
    CDDPI_CIPHER_RECORDS = 1 << 16
};

/* Bits of a mask, so that one side can offer several. */
enum cddpi_cipher_kind { CDDPI_CIPHER_CHACHA20 = 1, CDDPI_CIPHER_AES256GCM = 2 };

struct cddpi_seal {
    crypto_aead_aes256gcm_state aes; /* of `key`, for that cipher: it has to be aligned */
    uint8_t key[CDDPI_CIPHER_KEY_BYTES];
    enum cddpi_cipher_kind kind;
    uint64_t count; /* of records so far */
    bool is_put;    /* which way `bulk` goes */
    void *bulk;     /* libcrypto.h's, for AES; NULL: not wanted, or not here */
};

/** The ciphers that this process can use: a mask. CDDP_CIPHER may leave one out.
 *  @return CDDP_ERR_ARGUMENT: it names none; CDDP_ERR_UNAVAILABLE: one for which the processor has
 *          no instructions, or libsodium does not start. */
CDDP_CHECKED cddp_status cddpi_ciphers(uint32_t *out);

void cddpi_seal_init(struct cddpi_seal *seal, enum cddpi_cipher_kind kind,
                     const uint8_t key[CDDPI_CIPHER_KEY_BYTES]);
/** Prepare for many long records, sealed if @p is_put, else opened: use the fastest implementation.
 */
void cddpi_seal_bulk(struct cddpi_seal *seal, bool is_put);
/** Forget the key. */
void cddpi_seal_fini(struct cddpi_seal *seal);
/** Write @p bytes bytes and a tag to @p out, which does not overlap. */
void cddpi_seal_put(struct cddpi_seal *seal, const uint8_t *from, size_t bytes, uint8_t *out);
/** Open a record of @p bytes bytes, which include its tag, and write the data to @p out. False: the
 *  other side has not sealed it, or it is not the next record; then open no more. */
CDDP_CHECKED bool cddpi_seal_get(struct cddpi_seal *seal, const uint8_t *from, size_t bytes,
                                 uint8_t *out);

#endif
