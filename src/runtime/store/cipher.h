/* cipher.h - owns one direction of an encrypted connection: it encrypts (seals) and decrypts
 * (opens) records in order. No I/O.
 *
 * The cipher is AES-256-GCM if both processors have instructions for it, else ChaCha20-Poly1305.
 * libsodium does both; on connections that carry much data, OpenSSL's libcrypto does AES where it
 * is installed. A record's nonce is its sequence number. A key serves one direction
 * of one connection for 65536 records; then its hash replaces it. So no nonce is used twice with
 * the same key, and an attacker who steals a key cannot decrypt data that was sent long before. */
#ifndef CDDPI_STORE_CIPHER_H
#define CDDPI_STORE_CIPHER_H

#include <cddp/status.h>

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CDDPI_CIPHER_KEY_BYTES = 32,
    CDDPI_CIPHER_TAG_BYTES = 16,   /* a sealed record is this much longer than its data */
    CDDPI_CIPHER_RECORDS = 1 << 16 /* per key */
};

/* Bits of a mask, so that a side can offer several ciphers. */
enum cddpi_cipher_kind { CDDPI_CIPHER_CHACHA20 = 1, CDDPI_CIPHER_AES256GCM = 2 };

struct cddpi_seal {
    crypto_aead_aes256gcm_state aes; /* `key`, expanded for AES; libsodium needs it aligned */
    uint8_t key[CDDPI_CIPHER_KEY_BYTES];
    enum cddpi_cipher_kind kind;
    uint64_t count; /* records so far */
    bool is_put;    /* whether `bulk` seals or opens */
    void *bulk;     /* AES by libcrypto; NULL: not requested, or libcrypto is not installed */
};

/** The ciphers that this process can use, as a mask. CDDP_CIPHER can restrict them to one.
 *  @return CDDP_ERR_ARGUMENT: CDDP_CIPHER is not the name of a cipher. CDDP_ERR_UNAVAILABLE: the
 *          processor has no instructions for that cipher, or libsodium does not start. */
CDDP_CHECKED cddp_status cddpi_ciphers(uint32_t *out);

void cddpi_seal_init(struct cddpi_seal *seal, enum cddpi_cipher_kind kind,
                     const uint8_t key[CDDPI_CIPHER_KEY_BYTES]);
/** Prepare to seal (@p is_put) or to open many long records: use the fastest implementation. */
void cddpi_seal_bulk(struct cddpi_seal *seal, bool is_put);
/** Overwrite the key. */
void cddpi_seal_fini(struct cddpi_seal *seal);
/** Seal @p bytes bytes: write the ciphertext and a tag to @p out, which must not overlap @p from.
 */
void cddpi_seal_put(struct cddpi_seal *seal, const uint8_t *from, size_t bytes, uint8_t *out);
/** Open a record and write its data to @p out. @p bytes includes the tag. False: the other side did
 *  not seal this record, or it is not the next one. Then open no further records. */
CDDP_CHECKED bool cddpi_seal_get(struct cddpi_seal *seal, const uint8_t *from, size_t bytes,
                                 uint8_t *out);

#endif
