/* cipher.c - owns sealing and opening records. One thread at a time for each struct. */
#include "store/cipher.h"

#include "base/env.h"
#include "base/error.h"
#include "store/libcrypto.h"
#include "store/store_wire.h"

#include <string.h>

_Static_assert(CDDPI_CIPHER_KEY_BYTES == crypto_aead_aes256gcm_KEYBYTES &&
                   CDDPI_CIPHER_KEY_BYTES == crypto_aead_chacha20poly1305_ietf_KEYBYTES,
               "one length of keys");
_Static_assert(CDDPI_CIPHER_TAG_BYTES == crypto_aead_aes256gcm_ABYTES &&
                   CDDPI_CIPHER_TAG_BYTES == crypto_aead_chacha20poly1305_ietf_ABYTES,
               "one length of tags");

enum { NONCE_BYTES = crypto_aead_aes256gcm_NPUBBYTES };
_Static_assert(NONCE_BYTES == crypto_aead_chacha20poly1305_ietf_NPUBBYTES && NONCE_BYTES >= 8,
               "one length of nonces, with room for a number");

cddp_status cddpi_ciphers(uint32_t *out)
{
    const char *name = cddpi_env(CDDPI_ENV_CIPHER);
    bool has_aes;

    if (sodium_init() < 0) { /* it also selects the fastest code for this processor */
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "libsodium does not start");
    }
    has_aes = crypto_aead_aes256gcm_is_available() == 1;
    if (name == NULL) {
        *out = CDDPI_CIPHER_CHACHA20 | (has_aes ? (uint32_t)CDDPI_CIPHER_AES256GCM : 0);
    } else if (strcmp(name, "chacha20") == 0) {
        *out = CDDPI_CIPHER_CHACHA20;
    } else if (strcmp(name, "aes256gcm") != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "CDDP_CIPHER=%s: choose aes256gcm or chacha20", name);
    } else if (!has_aes) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "CDDP_CIPHER=aes256gcm: libsodium knows no instructions for AES on this "
                          "processor");
    } else {
        *out = CDDPI_CIPHER_AES256GCM;
    }
    return CDDP_OK;
}

static void use_key(struct cddpi_seal *seal)
{
    if (seal->kind == CDDPI_CIPHER_AES256GCM) {
        crypto_aead_aes256gcm_beforenm(&seal->aes, seal->key);
    }
    if (seal->bulk != NULL) {
        cddpi_libcrypto_end(seal->bulk);
        seal->bulk = cddpi_libcrypto_begin(seal->is_put, seal->key);
    }
}

void cddpi_seal_init(struct cddpi_seal *seal, enum cddpi_cipher_kind kind,
                     const uint8_t key[CDDPI_CIPHER_KEY_BYTES])
{
    seal->kind = kind;
    seal->count = 0;
    seal->bulk = NULL;
    memcpy(seal->key, key, sizeof seal->key);
    use_key(seal);
}

void cddpi_seal_bulk(struct cddpi_seal *seal, bool is_put)
{
    if (seal->kind == CDDPI_CIPHER_AES256GCM && seal->bulk == NULL) {
        seal->is_put = is_put;
        seal->bulk = cddpi_libcrypto_begin(is_put, seal->key);
    }
}

void cddpi_seal_fini(struct cddpi_seal *seal)
{
    cddpi_libcrypto_end(seal->bulk);
    sodium_memzero(seal, sizeof *seal);
}

/* Begin the next record: write its number to @p nonce, and replace the key if it has served
 * CDDPI_CIPHER_RECORDS records. */
static void begin(struct cddpi_seal *seal, uint8_t nonce[NONCE_BYTES])
{
    static const unsigned char next[] = "cddp next key";

    if (seal->count > 0 && seal->count % CDDPI_CIPHER_RECORDS == 0) {
        uint8_t key[CDDPI_CIPHER_KEY_BYTES];

        crypto_generichash(key, sizeof key, next, sizeof next, seal->key, sizeof seal->key);
        memcpy(seal->key, key, sizeof key);
        sodium_memzero(key, sizeof key);
        use_key(seal);
    }
    memset(nonce, 0, NONCE_BYTES);
    cddpi_put_u64(nonce, seal->count++);
}

void cddpi_seal_put(struct cddpi_seal *seal, const uint8_t *from, size_t bytes, uint8_t *out)
{
    uint8_t nonce[NONCE_BYTES];

    begin(seal, nonce);
    if (seal->bulk != NULL && cddpi_libcrypto_put(seal->bulk, nonce, from, bytes, out)) {
        return;
    }
    if (seal->kind == CDDPI_CIPHER_AES256GCM) { /* same ciphertext as libcrypto's */
        (void)crypto_aead_aes256gcm_encrypt_afternm(out, NULL, from, bytes, NULL, 0, NULL, nonce,
                                                    &seal->aes);
    } else {
        (void)crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, from, bytes, NULL, 0, NULL,
                                                        nonce, seal->key);
    }
}

bool cddpi_seal_get(struct cddpi_seal *seal, const uint8_t *from, size_t bytes, uint8_t *out)
{
    uint8_t nonce[NONCE_BYTES];

    if (bytes < CDDPI_CIPHER_TAG_BYTES) {
        return false;
    }
    begin(seal, nonce);
    if (seal->bulk != NULL) {
        return cddpi_libcrypto_get(seal->bulk, nonce, from, bytes, out);
    }
    if (seal->kind == CDDPI_CIPHER_AES256GCM) {
        return crypto_aead_aes256gcm_decrypt_afternm(out, NULL, NULL, from, bytes, NULL, 0, nonce,
                                                     &seal->aes) == 0;
    }
    return crypto_aead_chacha20poly1305_ietf_decrypt(out, NULL, NULL, from, bytes, NULL, 0, nonce,
                                                     seal->key) == 0;
}
