/* server_client.h - what the server's loop (server.c) and its connections (server_client.c) share.
 * All of it belongs to the thread that holds the server's lock: its own, or one that sets a key. */
#ifndef CDDPI_STORE_SERVER_CLIENT_H
#define CDDPI_STORE_SERVER_CLIENT_H

#include "store/server.h"
#include "store/server_refusals.h"
#include "store/store_stream.h"
#include "store/store_table.h"
#include "store/store_wire.h"

struct cddpi_client {
    struct cddpi_client *next; /* of the list it is in */
    struct cddpi_client *previous;
    struct cddpi_clients *list;
    struct cddpi_store_stream stream;
    bool authenticated;
    bool replying; /* a reply is not sent completely: nothing is read until it is */
    bool closed;   /* closed, and freed once the present events are done */
    int64_t auth_deadline_ns;
    uint8_t nonce[CDDPI_NONCE_BYTES];
    struct cddpi_wire_buffer in;

    /* The reply being sent: sent counts bytes of both. */
    uint8_t head[CDDPI_WIRE_HEAD_BYTES];
    struct cddpi_table_value *body;
    size_t sent;

    /* The request that waits, if any: its message (head and body) is the first of @p in. */
    bool parked;
    struct cddpi_waiter waiter;
    size_t cursor;    /* WAIT: keys before it exist, unless they were deleted: see deletes */
    uint64_t deletes; /* the table's number when the cursor was at the first key */
    uint64_t served;  /* see struct cddpi_store_served */
    struct cddpi_wire_buffer last_word; /* what is to be set when the connection has ended: a key of
                                      last_word_key bytes, and its value; empty: nothing */
    size_t last_word_key;
};

/* A list of clients, in order of arrival. */
struct cddpi_clients {
    struct cddpi_client *first;
    struct cddpi_client *last;
    size_t count;
};

/* What connections use of the server. */
struct cddpi_client_host {
    int epoll_fd;
    uint8_t key[CDDPI_AUTH_KEY_BYTES];
    uint32_t ciphers; /* that it can use: see session.h */
    struct cddpi_table *table;
    struct cddpi_clients authenticating;
    struct cddpi_clients authenticated;
    struct cddpi_clients closed;
    struct cddpi_store_served served;
    struct cddpi_refusals refusals;
};

/** Take over the connected socket @p fd, and greet. On failure @p fd is closed. */
void cddpi_client_accept(struct cddpi_client_host *host, int fd, int64_t auth_deadline_ns);

/** Handle what epoll reported about @p client. */
void cddpi_client_event(struct cddpi_client_host *host, struct cddpi_client *client,
                        uint32_t events);

/** Set a key without a connection, and answer the clients that wait for it. False: out of memory.
 */
bool cddpi_client_set(struct cddpi_client_host *host, struct cddpi_slice key,
                      struct cddpi_slice value);

/** Close the connection now and free the client with cddpi_client_reap(). */
void cddpi_client_close(struct cddpi_client_host *host, struct cddpi_client *client);

/** Say the last words of all closed clients and free them; no reported event may be left. */
void cddpi_client_reap(struct cddpi_client_host *host);

/** The first message of the server. */
void cddpi_client_hello(uint8_t out[CDDPI_WIRE_HELLO_BYTES], uint32_t state,
                        const uint8_t nonce[CDDPI_NONCE_BYTES]);

#endif
