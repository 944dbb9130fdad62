/* cipher.c - owns sealing and opening records. One thread at a time for each struct. */
#include "store/cipher.h"

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "store/store_wire.h"

#include <dlfcn.h>
#include <pthread.h>
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

/* --- AES-256-GCM by OpenSSL's libcrypto, on machines that have the library. It is twice as fast as
 * libsodium's AES and writes the same bytes, so the other side does not need it. The library is
 * loaded at its first use (connections that carry data); nothing requires it. The functions' names
 * have been the same since OpenSSL 1.1. --- */

enum {
    GET_TAG = 0x10, /* EVP_CTRL_AEAD_GET_TAG */
    SET_TAG = 0x11
};

/* Functions of OpenSSL's EVP interface. Its opaque structs are void here. */
static struct {
    void *(*context_new)(void);
    void (*context_free)(void *context);
    const void *(*aes_256_gcm)(void);
    int (*init)(void *context, const void *cipher, void *engine, const unsigned char *key,
                const unsigned char *nonce, int encrypts);
    int (*update)(void *context, unsigned char *out, int *out_bytes, const unsigned char *in,
                  int bytes);
    int (*final)(void *context, unsigned char *out, int *out_bytes);
    int (*control)(void *context, int what, int bytes, void *data);
} crypto;

static bool is_open;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Look up a function: copy the object pointer of dlsym() to the function pointer at @p out, since C
 * has no cast between the two. */
static bool find(void *library, const char *name, void *out)
{
    void *symbol = dlsym(library, name);

    memcpy(out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void open_library(void)
{
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1"};
    void *library = NULL;

    for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    is_open = library != NULL && find(library, "EVP_CIPHER_CTX_new", &crypto.context_new) &&
              find(library, "EVP_CIPHER_CTX_free", &crypto.context_free) &&
              find(library, "EVP_aes_256_gcm", &crypto.aes_256_gcm) &&
              find(library, "EVP_CipherInit_ex", &crypto.init) &&
              find(library, "EVP_CipherUpdate", &crypto.update) &&
              find(library, "EVP_CipherFinal_ex", &crypto.final) &&
              find(library, "EVP_CIPHER_CTX_ctrl", &crypto.control);
    if (!is_open) {
        cddpi_log(CDDPI_LOG_INFO,
                  "encryption: libcrypto (OpenSSL) is not here, with which it would take half of "
                  "the time");
    }
}

/* A context for one direction: sealing (@p seals) or opening. NULL: libcrypto is not installed, or
 * it failed. */
static void *bulk_begin(bool seals, const uint8_t *key)
{
    void *context;

    (void)pthread_once(&once, open_library);
    context = is_open ? crypto.context_new() : NULL;
    if (context != NULL &&
        crypto.init(context, crypto.aes_256_gcm(), NULL, key, NULL, seals ? 1 : 0) != 1) {
        crypto.context_free(context);
        context = NULL;
    }
    return context;
}

/* Like cddpi_seal_put(). False: libcrypto failed. */
static bool bulk_put(void *context, const uint8_t *nonce, const uint8_t *from, size_t bytes,
                     uint8_t *out)
{
    int made = 0;
    int rest = 0;

    return crypto.init(context, NULL, NULL, NULL, nonce, 1) == 1 &&
           crypto.update(context, out, &made, from, (int)bytes) == 1 &&
           crypto.final(context, out + made, &rest) == 1 && (size_t)made + (size_t)rest == bytes &&
           crypto.control(context, GET_TAG, CDDPI_CIPHER_TAG_BYTES, out + bytes) == 1;
}

/* Like cddpi_seal_get(). False: libcrypto failed, or the tag is wrong. */
static bool bulk_get(void *context, const uint8_t *nonce, const uint8_t *from, size_t bytes,
                     uint8_t *out)
{
    uint8_t tag[CDDPI_CIPHER_TAG_BYTES];
    int made = 0;
    int rest = 0;

    memcpy(tag, from + bytes - CDDPI_CIPHER_TAG_BYTES, sizeof tag);
    return crypto.init(context, NULL, NULL, NULL, nonce, 0) == 1 &&
           crypto.update(context, out, &made, from, (int)(bytes - CDDPI_CIPHER_TAG_BYTES)) == 1 &&
           crypto.control(context, SET_TAG, CDDPI_CIPHER_TAG_BYTES, tag) == 1 &&
           crypto.final(context, out + made, &rest) == 1;
}

static void bulk_end(void *context)
{
    if (context != NULL) {
        crypto.context_free(context); /* also overwrites the key */
    }
}

/* --- records --- */

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
        bulk_end(seal->bulk);
        seal->bulk = bulk_begin(seal->is_put, seal->key);
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
        seal->bulk = bulk_begin(is_put, seal->key);
    }
}

void cddpi_seal_fini(struct cddpi_seal *seal)
{
    bulk_end(seal->bulk);
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
    if (seal->bulk != NULL && bulk_put(seal->bulk, nonce, from, bytes, out)) {
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
        return bulk_get(seal->bulk, nonce, from, bytes, out);
    }
    if (seal->kind == CDDPI_CIPHER_AES256GCM) {
        return crypto_aead_aes256gcm_decrypt_afternm(out, NULL, NULL, from, bytes, NULL, 0, nonce,
                                                     &seal->aes) == 0;
    }
    return crypto_aead_chacha20poly1305_ietf_decrypt(out, NULL, NULL, from, bytes, NULL, 0, nonce,
                                                     seal->key) == 0;
}
