/* server_client.h - owns what the server's loop (server.c), its connections (server_client.c) and
 * its listener (server_listener.c) share. Only the thread that holds the server's lock uses it: the
 * server's own thread, or one that calls a function of server.h. */
#ifndef CDDPI_STORE_SERVER_CLIENT_H
#define CDDPI_STORE_SERVER_CLIENT_H

#include "base/listener.h"
#include "store/server.h"
#include "store/store_stream.h"
#include "store/store_table.h"
#include "store/store_wire.h"

struct cddpi_client {
    struct cddpi_client *next; /* in `list` */
    struct cddpi_client *previous;
    struct cddpi_clients *list;
    struct cddpi_store_stream stream;
    bool authenticated;
    bool replying; /* part of a reply is unsent; until it is sent, nothing is read */
    bool closed;   /* the connection is closed; freed after the current batch of events */
    int64_t auth_deadline_ns;
    uint8_t nonce[CDDPI_NONCE_BYTES];
    struct cddpi_wire_buffer in;

    /* The reply being sent: `sent` counts bytes of head and body together. */
    uint8_t head[CDDPI_WIRE_HEAD_BYTES];
    struct cddpi_table_value *body;
    size_t sent;

    /* The waiting request, if any: its message (head and body) is the first one in `in`. */
    bool parked;
    struct cddpi_waiter waiter;
    size_t cursor;    /* WAIT: keys before it have existed since the search began; see deletes */
    uint64_t deletes; /* cddpi_table_deletes() when the search began: if changed, search again */
    uint64_t served;  /* see struct cddpi_store_served */
    struct cddpi_wire_buffer last_word; /* what to set when the connection ends: a key of
                                      last_word_key bytes, then its value; empty: nothing */
    size_t last_word_key;
};

/* A list of clients, in order of arrival. */
struct cddpi_clients {
    struct cddpi_client *first;
    struct cddpi_client *last;
    size_t count;
};

/* The clients that were refused: a rank that waits for others learns from it that one came with
 * another token. Strangers can cause any number of refusals, so the list is short, with one row per
 * address and reason. */
struct cddpi_refusals {
    struct cddpi_store_refusal rows[CDDPI_STORE_REFUSALS]; /* newest first */
    int count;
    int logged; /* refusals written to the log: limited, so that strangers cannot fill it */
};

/* The part of the server that its connections use. */
struct cddpi_client_host {
    int epoll_fd;
    uint8_t key[CDDPI_AUTH_KEY_BYTES];
    uint32_t ciphers; /* mask of those that the server can use: see session.h */
    struct cddpi_table *table;
    struct cddpi_clients authenticating;
    struct cddpi_clients authenticated;
    struct cddpi_clients closed;
    struct cddpi_store_served served;
    struct cddpi_refusals refusals;
};

/** Take ownership of the connected socket @p fd and send the hello. On failure @p fd is closed. */
void cddpi_client_accept(struct cddpi_client_host *host, int fd, int64_t auth_deadline_ns);

/** Remember that the client on socket @p fd was refused. */
void cddpi_refusals_add(struct cddpi_refusals *refusals, int fd, enum cddpi_refused why);

/** Handle what epoll reported about @p client. */
void cddpi_client_event(struct cddpi_client_host *host, struct cddpi_client *client,
                        uint32_t events);

/** Set @p key without a connection, and answer the clients that wait for it. False: out of memory.
 */
bool cddpi_client_set(struct cddpi_client_host *host, struct cddpi_slice key,
                      struct cddpi_slice value);

/** Close the connection now. cddpi_client_reap() frees the client later. */
void cddpi_client_close(struct cddpi_client_host *host, struct cddpi_client *client);

/** Set the last words of all closed clients and free these clients. Call it only after all events
 *  that epoll reported are handled: they point to clients. */
void cddpi_client_reap(struct cddpi_client_host *host);

/** Build the server's first message. @p state: enum cddpi_wire_state. */
void cddpi_client_hello(uint8_t out[CDDPI_WIRE_HELLO_BYTES], uint32_t state,
                        const uint8_t nonce[CDDPI_NONCE_BYTES]);

/* The listener: base/listener.h, whose connections are the server's clients. */
struct cddpi_server_listener {
    struct cddpi_listener base;
    struct cddpi_client_host *host;
    uint32_t auth_timeout_ms;
};

/** Initialise @p listener, with no descriptor open yet. */
void cddpi_server_listener_init(struct cddpi_server_listener *listener,
                                struct cddpi_client_host *host, uint32_t auth_timeout_ms,
                                int reserved);

#endif
