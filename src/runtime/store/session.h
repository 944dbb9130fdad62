/* session.h - owns the handshake that two protocols share: the store's (store_wire.h) and the one
 * between hosts (group/net/tcp/hello.h). The listening side sends a nonce, the connecting side
 * answers with an offer, and the listening side accepts it:
 *
 *   offer    nonce, public key for this connection only, ciphers u32 (a mask), proof
 *   accept   public key for this connection only, cipher u32, proof
 *
 * A proof is a keyed hash over everything sent before it. Its key is derived from the token and
 * from the purpose of the connection. So a man in the middle without the token can neither replace
 * the public keys nor make both sides choose a weaker cipher. All later data is encrypted. Its keys
 * are derived from the handshake and from a secret that only the two ends can compute (X25519), so
 * an attacker who learns the token later cannot decrypt recorded traffic (forward secrecy). The
 * listening side checks the proof before it does any costly computation. */
#ifndef CDDPI_STORE_SESSION_H
#define CDDPI_STORE_SESSION_H

#include "store/auth.h"
#include "store/cipher.h"

enum {
    CDDPI_PUBLIC_KEY_BYTES = 32,
    CDDPI_OFFER_BYTES = CDDPI_NONCE_BYTES + CDDPI_PUBLIC_KEY_BYTES + 4 + CDDPI_AUTH_BYTES,
    CDDPI_ACCEPT_BYTES = CDDPI_PUBLIC_KEY_BYTES + 4 + CDDPI_AUTH_BYTES
};

/* A handshake begins with the protocol's magic (u64) and version (u32), in every version. */
enum cddpi_greeting { CDDPI_GREETING_OK, CDDPI_GREETING_STRANGE, CDDPI_GREETING_OTHER_VERSION };
enum { CDDPI_GREETING_BYTES = 12 };

void cddpi_greeting_put(uint64_t magic, uint32_t version, uint8_t out[CDDPI_GREETING_BYTES]);
/** Whether the first @p bytes bytes of a greeting can belong to this protocol and version. */
enum cddpi_greeting cddpi_greeting_check(uint64_t magic, uint32_t version, const uint8_t *data,
                                         size_t bytes);

struct cddpi_session {
    bool is_server;
    uint8_t key[CDDPI_AUTH_KEY_BYTES];
    uint8_t secret[CDDPI_PUBLIC_KEY_BYTES]; /* this side's secret key; later the shared secret */
    /* The rest is what was sent, which the proofs cover. */
    uint8_t server_nonce[CDDPI_NONCE_BYTES];
    uint8_t client_nonce[CDDPI_NONCE_BYTES];
    uint8_t client_public[CDDPI_PUBLIC_KEY_BYTES];
    uint32_t ciphers; /* mask of those that the client can use */
    uint32_t reply;   /* a number that the server sends, defined by the protocol */
    uint8_t server_public[CDDPI_PUBLIC_KEY_BYTES];
    uint32_t cipher; /* chosen by the server */
};

/** The client: begin the session and write the offer. @p ciphers: see cddpi_ciphers(). */
void cddpi_session_offer(struct cddpi_session *session, const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                         const uint8_t server_nonce[CDDPI_NONCE_BYTES], uint32_t ciphers,
                         uint8_t out[CDDPI_OFFER_BYTES]);
/** The server: check an offer. False: the client does not know the key. */
CDDP_CHECKED bool cddpi_session_check(struct cddpi_session *session,
                                      const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                                      const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                                      const uint8_t offer[CDDPI_OFFER_BYTES]);
/** The server: accept a checked offer. False: the client supports none of @p ciphers, or its public
 *  key is invalid. */
CDDP_CHECKED bool cddpi_session_accept(struct cddpi_session *session, uint32_t reply,
                                       uint32_t ciphers, uint8_t out[CDDPI_ACCEPT_BYTES]);
/** The client: check that an accept with @p reply came from a server that knows the key. */
CDDP_CHECKED bool cddpi_session_confirm(struct cddpi_session *session, uint32_t reply,
                                        const uint8_t accept[CDDPI_ACCEPT_BYTES]);

/** After the handshake: derive a key for one @p use. @p is_own: the key for what this side sends,
 *  else for what it receives. */
void cddpi_session_key(const struct cddpi_session *session, bool is_own, const char *use,
                       uint8_t out[CDDPI_CIPHER_KEY_BYTES]);
/** Overwrite all secrets. */
void cddpi_session_wipe(struct cddpi_session *session);

#endif
