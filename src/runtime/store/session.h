/* session.h - the part of a greeting that both protocols share, the store's (store_wire.h) and that
 * between hosts (group/net/tcp/hello.h). The listening side sends a nonce, the connecting side
 * answers with an offer, and the listening side accepts it:
 *
 *   offer    nonce, public key of this connection only, ciphers u32 (a mask), proof
 *   accept   public key of this connection only, cipher u32, proof
 *
 * A proof is a keyed hash over everything sent before it. Its key is derived from the token and
 * from the purpose of the connection. So without the token an attacker in between can neither
 * replace the public keys nor make both sides choose a weaker cipher. All later data is encrypted
 * with keys that are derived from this and from a secret that only the two ends can compute
 * (X25519): an attacker who learns the token later cannot decrypt what he recorded. The listening
 * side does no costly computation before it has seen the proof. */
#ifndef CDDPI_STORE_SESSION_H
#define CDDPI_STORE_SESSION_H

#include "store/auth.h"
#include "store/cipher.h"

enum {
    CDDPI_PUBLIC_KEY_BYTES = 32,
    CDDPI_OFFER_BYTES = CDDPI_NONCE_BYTES + CDDPI_PUBLIC_KEY_BYTES + 4 + CDDPI_AUTH_BYTES,
    CDDPI_ACCEPT_BYTES = CDDPI_PUBLIC_KEY_BYTES + 4 + CDDPI_AUTH_BYTES
};

struct cddpi_session {
    bool is_server;
    uint8_t key[CDDPI_AUTH_KEY_BYTES];
    uint8_t secret[CDDPI_PUBLIC_KEY_BYTES]; /* of this side's public key; later the shared one */
    /* What was sent: the proofs cover it. */
    uint8_t server_nonce[CDDPI_NONCE_BYTES];
    uint8_t client_nonce[CDDPI_NONCE_BYTES];
    uint8_t client_public[CDDPI_PUBLIC_KEY_BYTES];
    uint32_t ciphers; /* that the client can use */
    uint32_t reply;   /* a word of the protocol from the server */
    uint8_t server_public[CDDPI_PUBLIC_KEY_BYTES];
    uint32_t cipher; /* that the server has chosen */
};

/** The client: begin, and write the offer. @p ciphers: see cddpi_ciphers(). */
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
/** The client: check that the server itself has accepted, with @p reply. */
CDDP_CHECKED bool cddpi_session_confirm(struct cddpi_session *session, uint32_t reply,
                                        const uint8_t accept[CDDPI_ACCEPT_BYTES]);

/** After both sides have agreed: derive a key for one @p use. @p is_own: for what this side sends.
 */
void cddpi_session_key(const struct cddpi_session *session, bool is_own, const char *use,
                       uint8_t out[CDDPI_CIPHER_KEY_BYTES]);
/** Overwrite all secrets. */
void cddpi_session_wipe(struct cddpi_session *session);

#endif
