/* libcrypto.c - owns loading libcrypto and calling it. The functions' names have been the same
 * since OpenSSL 1.1. Any thread; one at a time for each context. */
#include "store/libcrypto.h"

#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum {
    TAG_BYTES = 16,
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

void *cddpi_libcrypto_begin(bool seals, const uint8_t *key)
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

bool cddpi_libcrypto_put(void *context, const uint8_t *nonce, const uint8_t *from, size_t bytes,
                         uint8_t *out)
{
    int made = 0;
    int rest = 0;

    return crypto.init(context, NULL, NULL, NULL, nonce, 1) == 1 &&
           crypto.update(context, out, &made, from, (int)bytes) == 1 &&
           crypto.final(context, out + made, &rest) == 1 && (size_t)made + (size_t)rest == bytes &&
           crypto.control(context, GET_TAG, TAG_BYTES, out + bytes) == 1;
}

bool cddpi_libcrypto_get(void *context, const uint8_t *nonce, const uint8_t *from, size_t bytes,
                         uint8_t *out)
{
    uint8_t tag[TAG_BYTES];
    int made = 0;
    int rest = 0;

    memcpy(tag, from + bytes - TAG_BYTES, sizeof tag);
    return crypto.init(context, NULL, NULL, NULL, nonce, 0) == 1 &&
           crypto.update(context, out, &made, from, (int)(bytes - TAG_BYTES)) == 1 &&
           crypto.control(context, SET_TAG, TAG_BYTES, tag) == 1 &&
           crypto.final(context, out + made, &rest) == 1;
}

void cddpi_libcrypto_end(void *context)
{
    if (context != NULL) {
        crypto.context_free(context); /* also overwrites the key */
    }
}
