/* session.h - the part of a greeting that both protocols share, the store's (store_wire.h) and that
 * between hosts (group/net/tcp/hello.h). Who listens sends a nonce; who connects answers with an
 * offer; who listens accepts it:
 *
 *   offer    nonce, public key of this connection only, ciphers u32 (a mask), proof
 *   accept   public key of this connection only, cipher u32, proof
 *
 * A proof is a keyed hash over all that was said before it, with a key that stands for the token
 * and for what the connection is for. So nobody without the token can put keys of his own between
 * the two, nor make them choose a weaker cipher. What follows is encrypted with keys made of all
 * this and of what only the two ends of this connection can compute (X25519): who learns the token
 * later cannot read what he recorded. Who listens computes nothing costly before the proof. */
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
    uint8_t secret[CDDPI_PUBLIC_KEY_BYTES]; /* to this side's public key; then what both share */
    /* What was said, as the proofs cover it. */
    uint8_t server_nonce[CDDPI_NONCE_BYTES];
    uint8_t client_nonce[CDDPI_NONCE_BYTES];
    uint8_t client_public[CDDPI_PUBLIC_KEY_BYTES];
    uint32_t ciphers; /* that the client can use */
    uint32_t reply;   /* what else the server says: the protocol's own */
    uint8_t server_public[CDDPI_PUBLIC_KEY_BYTES];
    uint32_t cipher; /* that the server has chosen */
};

/** The client: begin, and write the offer. @p ciphers: see cddpi_ciphers(). */
void cddpi_session_offer(struct cddpi_session *session, const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                         const uint8_t server_nonce[CDDPI_NONCE_BYTES], uint32_t ciphers,
                         uint8_t out[CDDPI_OFFER_BYTES]);
/** The server: begin with an offer. False: whoever made it does not know the key. */
CDDP_CHECKED bool cddpi_session_check(struct cddpi_session *session,
                                      const uint8_t key[CDDPI_AUTH_KEY_BYTES],
                                      const uint8_t server_nonce[CDDPI_NONCE_BYTES],
                                      const uint8_t offer[CDDPI_OFFER_BYTES]);
/** The server: accept what was checked. False: the client can use none of @p ciphers, or its public
 *  key is none. */
CDDP_CHECKED bool cddpi_session_accept(struct cddpi_session *session, uint32_t reply,
                                       uint32_t ciphers, uint8_t out[CDDPI_ACCEPT_BYTES]);
/** The client: whether it was the server that accepted, with @p reply. */
CDDP_CHECKED bool cddpi_session_confirm(struct cddpi_session *session, uint32_t reply,
                                        const uint8_t accept[CDDPI_ACCEPT_BYTES]);

/** When both have agreed: a key for one @p use of what this side, or the other, sends. */
void cddpi_session_key(const struct cddpi_session *session, bool is_own, const char *use,
                       uint8_t out[CDDPI_CIPHER_KEY_BYTES]);
/** Forget all of it. */
void cddpi_session_wipe(struct cddpi_session *session);

#endif
