/* session.c - owns the keys of one connection: it derives them from the token and from key pairs
 * that both ends make for this connection only. Any thread. */
#include "store/session.h"

#include "store/store_wire.h"

#include <sodium.h>
#include <string.h>

_Static_assert(CDDPI_PUBLIC_KEY_BYTES == crypto_scalarmult_BYTES &&
                   CDDPI_PUBLIC_KEY_BYTES == crypto_scalarmult_SCALARBYTES,
               "X25519");
_Static_assert((int)CDDPI_AUTH_BYTES == (int)CDDPI_CIPHER_KEY_BYTES, "a proof is as long as a key");

void cddpi_greeting_put(uint64_t magic, uint32_t version, uint8_t out[CDDPI_GREETING_BYTES])
{
    cddpi_put_u64(out, magic);
    cddpi_put_u32(out + 8, version);
}

enum cddpi_greeting cddpi_greeting_check(uint64_t magic, uint32_t version, const uint8_t *data,
                                         size_t bytes)
{
    uint8_t own[CDDPI_GREETING_BYTES];

    cddpi_greeting_put(magic, version, own);
    if (memcmp(data, own, bytes < 8 ? bytes : 8) != 0) {
        return CDDPI_GREETING_STRANGE;
    }
    return bytes >= sizeof own && memcmp(data, own, sizeof own) != 0 ? CDDPI_GREETING_OTHER_VERSION
                                                                     : CDDPI_GREETING_OK;
}

static void add_number(crypto_generichash_state *state, uint32_t number)
{
    uint8_t bytes[4];

    cddpi_put_u32(bytes, number);
    crypto_generichash_update(state, bytes, sizeof bytes);
}

/* Begin a hash for one @p use over what the client has sent. */
static void begin_hash(const struct cddpi_session *session, const char *use,
                       crypto_generichash_state *state)
{
    crypto_generichash_init(state, session->key, sizeof session->key, CDDPI_AUTH_BYTES);
    /* with its NUL, so that no use is a prefix of another */
    crypto_generichash_update(state, (const unsigned char *)use, strlen(use) + 1);
    crypto_generichash_update(state, session->server_nonce, sizeof session->server_nonce);
    crypto_generichash_update(state, session->client_nonce, sizeof session->client_nonce);
    crypto_generichash_update(state, session->client_public, sizeof session->client_public);
    add_number(state, session->ciphers);
}

static void add_accept(const struct cddpi_session *session, crypto_generichash_state *state)
{
    add_number(state, session->reply);
    crypto_generichash_update(state, session->server_public, sizeof session->server_public);
    add_number(state, session->cipher);
}

static void end_hash(crypto_generichash_state *state, uint8_t out[CDDPI_AUTH_BYTES])
{
    crypto_generichash_final(state, out, CDDPI_AUTH_BYTES);
    sodium_memzero(state, sizeof *state);
}

static void prove(const struct cddpi_session *session, bool as_server,
                  uint8_t out[CDDPI_AUTH_BYTES])
{
    crypto_generichash_state state;

    begin_hash(session, as_server ? "server" : "client", &state);
    if (as_server) {
        add_accept(session, &state);
    }
    end_hash(&state, out);
}

static void make_keys(struct cddpi_session *session, uint8_t out_public[CDDPI_PUBLIC_KEY_BYTES])
{
    randombytes_buf(session->secret, sizeof session->secret);
    (void)crypto_scalarmult_base(out_public, session->secret);
}

/* Compute the shared secret (X25519) from this side's secret key and the public key @p other.
 * False: @p other is not a valid key. */
static bool share(struct cddpi_session *session, const uint8_t other[CDDPI_PUBLIC_KEY_BYTES])
{
    uint8_t shared[CDDPI_PUBLIC_KEY_BYTES];
    bool is_key = crypto_scalarmult(shared, session->secret, other) == 0;

    memcpy(session->secret, shared, sizeof shared);
    sodium_memzero(shared, sizeof shared);
    return is_key;
}

void cddpi_session_offer(struct cddpi_session *session, const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                         const uint8_t server_nonce[CDDPI_NONCE_BYTES], uint32_t ciphers,
                         uint8_t out[CDDPI_OFFER_BYTES])
{
    memset(session, 0, sizeof *session);
    memcpy(session->key, key, sizeof session->key);
    memcpy(session->server_nonce, server_nonce, sizeof session->server_nonce);
    randombytes_buf(session->client_nonce, sizeof session->client_nonce);
    make_keys(session, session->client_public);
    session->ciphers = ciphers;
    memcpy(out, session->client_nonce, CDDPI_NONCE_BYTES);
    out += CDDPI_NONCE_BYTES;
    memcpy(out, session->client_public, CDDPI_PUBLIC_KEY_BYTES);
    out += CDDPI_PUBLIC_KEY_BYTES;
    cddpi_put_u32(out, ciphers);
    prove(session, false, out + 4);
}

bool cddpi_session_check(struct cddpi_session *session, const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                         const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                         const uint8_t offer[CDDPI_OFFER_BYTES])
{
    uint8_t wanted[CDDPI_AUTH_BYTES];

    memset(session, 0, sizeof *session);
    session->is_server = true;
    memcpy(session->key, key, sizeof session->key);
    memcpy(session->server_nonce, server_nonce, sizeof session->server_nonce);
    memcpy(session->client_nonce, offer, CDDPI_NONCE_BYTES);
    offer += CDDPI_NONCE_BYTES;
    memcpy(session->client_public, offer, CDDPI_PUBLIC_KEY_BYTES);
    offer += CDDPI_PUBLIC_KEY_BYTES;
    session->ciphers = cddpi_get_u32(offer);
    prove(session, false, wanted);
    return cddpi_auth_equal(wanted, offer + 4, sizeof wanted);
}

bool cddpi_session_accept(struct cddpi_session *session, uint32_t reply, uint32_t ciphers,
                          uint8_t out[CDDPI_ACCEPT_BYTES])
{
    uint32_t common = session->ciphers & ciphers;

    if ((common & CDDPI_CIPHER_AES256GCM) != 0) {
        session->cipher = CDDPI_CIPHER_AES256GCM;
    } else if ((common & CDDPI_CIPHER_CHACHA20) != 0) {
        session->cipher = CDDPI_CIPHER_CHACHA20;
    } else {
        return false;
    }
    session->reply = reply;
    make_keys(session, session->server_public);
    if (!share(session, session->client_public)) {
        return false;
    }
    memcpy(out, session->server_public, CDDPI_PUBLIC_KEY_BYTES);
    out += CDDPI_PUBLIC_KEY_BYTES;
    cddpi_put_u32(out, session->cipher);
    prove(session, true, out + 4);
    return true;
}

bool cddpi_session_confirm(struct cddpi_session *session, uint32_t reply,
                           const uint8_t accept[CDDPI_ACCEPT_BYTES])
{
    uint8_t wanted[CDDPI_AUTH_BYTES];

    session->reply = reply;
    memcpy(session->server_public, accept, CDDPI_PUBLIC_KEY_BYTES);
    accept += CDDPI_PUBLIC_KEY_BYTES;
    session->cipher = cddpi_get_u32(accept);
    prove(session, true, wanted);
    return cddpi_auth_equal(wanted, accept + 4, sizeof wanted) &&
           (session->cipher == CDDPI_CIPHER_AES256GCM ||
            session->cipher == CDDPI_CIPHER_CHACHA20) &&
           (session->cipher & session->ciphers) != 0 && share(session, session->server_public);
}

void cddpi_session_key(const struct cddpi_session *session, bool is_own, const char *use,
                       uint8_t out[CDDPI_CIPHER_KEY_BYTES])
{
    crypto_generichash_state state;

    begin_hash(session,
               session->is_server == is_own ? "what the server sends" : "what the client sends",
               &state);
    add_accept(session, &state);
    crypto_generichash_update(&state, session->secret, sizeof session->secret);
    crypto_generichash_update(&state, (const unsigned char *)use, strlen(use) + 1);
    end_hash(&state, out);
}

void cddpi_session_wipe(struct cddpi_session *session)
{
    sodium_memzero(session, sizeof *session);
}
