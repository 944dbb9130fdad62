/* auth.c - owns keys and hashes derived from the job's token, and making new tokens. Any thread. */
#include "store/auth.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "store/server.h"

#include <sodium.h>
#include <string.h>

void cddpi_auth_key(const char *token, const char *purpose, uint8_t out[CDDPI_AUTH_KEY_BYTES])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, NULL, 0, CDDPI_AUTH_KEY_BYTES);
    /* with its NUL: so no other pair of purpose and token gives the same bytes */
    crypto_generichash_update(&state, (const unsigned char *)purpose, strlen(purpose) + 1);
    crypto_generichash_update(&state, (const unsigned char *)token, strlen(token));
    crypto_generichash_final(&state, out, CDDPI_AUTH_KEY_BYTES);
    sodium_memzero(&state, sizeof state);
}

static int different(const char *token)
{
    int count = 0;

    for (const char *at = token; *at != '\0'; at++) {
        count += memchr(token, *at, (size_t)(at - token)) == NULL;
    }
    return count;
}

cddp_status cddpi_token_check(const char *token, const char *what)
{
    if (token[0] == '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: other machines can reach it, so the job needs a secret: set "
                          "CDDP_TOKEN to the same text for all ranks, such as what openssl rand "
                          "-hex 16 prints",
                          what);
    }
    if (strlen(token) < CDDPI_TOKEN_LEAST || different(token) < CDDPI_TOKEN_LEAST_DIFFERENT) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: other machines can reach it, and the token can be guessed (%zu "
                          "characters, %d different ones): set CDDP_TOKEN to a secret of at least "
                          "%d, such as what openssl rand -hex 16 prints, for all ranks",
                          what, strlen(token), different(token), CDDPI_TOKEN_LEAST);
    }
    return CDDP_OK;
}

void cddpi_random_bytes(void *out, size_t bytes)
{
    randombytes_buf(out, bytes);
}

void cddpi_pause(uint32_t us, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - cddpi_now_ns();
    uint32_t random;
    int64_t ns;
    struct timespec pause;

    if (left_ns <= 0) {
        return;
    }
    cddpi_random_bytes(&random, sizeof random);
    ns = us * 500LL + random % (us * 500U + 1);
    ns = ns < left_ns ? ns : left_ns;
    pause.tv_sec = (time_t)(ns / 1000000000);
    pause.tv_nsec = (long)(ns % 1000000000);
    nanosleep(&pause, NULL);
}

void cddpi_auth_make(const uint8_t key[CDDPI_AUTH_KEY_BYTES], const char *what,
                     const uint8_t first[CDDPI_NONCE_BYTES],
                     const uint8_t second[CDDPI_NONCE_BYTES], uint8_t out[CDDPI_AUTH_BYTES])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, key, CDDPI_AUTH_KEY_BYTES, CDDPI_AUTH_BYTES);
    crypto_generichash_update(&state, (const unsigned char *)what, strlen(what) + 1);
    crypto_generichash_update(&state, first, CDDPI_NONCE_BYTES);
    crypto_generichash_update(&state, second, CDDPI_NONCE_BYTES);
    crypto_generichash_final(&state, out, CDDPI_AUTH_BYTES);
    sodium_memzero(&state, sizeof state);
}

void cddpi_wipe(void *secret, size_t bytes)
{
    sodium_memzero(secret, bytes);
}

bool cddpi_auth_equal(const void *a, const void *b, size_t bytes)
{
    return sodium_memcmp(a, b, bytes) == 0;
}

void cddpi_store_token(char out[33])
{
    uint8_t bytes[16];

    randombytes_buf(bytes, sizeof bytes);
    sodium_bin2hex(out, 33, bytes, sizeof bytes);
    sodium_memzero(bytes, sizeof bytes);
}

cddp_status cddpi_encryption_wanted(bool *out)
{
    const char *text = cddpi_env(CDDPI_ENV_ENCRYPT);

    /* any other text is an error: a typo for 1 must not send data unencrypted */
    if (text == NULL || (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "CDDP_ENCRYPT=%s: it must be 1 (data between hosts are encrypted) or 0",
                          text != NULL ? text : "");
    }
    *out = text[0] == '1';
    return CDDP_OK;
}

cddp_status cddpi_encryption(const char *token, bool *out)
{
    cddp_status status = cddpi_encryption_wanted(out);

    if (status == CDDP_OK && *out && token[0] == '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "CDDP_ENCRYPT=1 needs a secret: CDDP_TOKEN is not set");
    }
    return status;
}
