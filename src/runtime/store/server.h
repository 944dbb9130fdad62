/* server.h - owns the TCP store's server: one thread, any number of clients (epoll), all data in
 * memory. cddp-run runs one for its job; without a launcher, rank 0 runs one. */
#ifndef CDDPI_STORE_SERVER_H
#define CDDPI_STORE_SERVER_H

#include <cddp/store.h>

#include <stdbool.h>

struct cddpi_store_server;

struct cddpi_store_server_options {
    const char *host;         /* address or name to bind; NULL: 127.0.0.1; "::": all interfaces,
                               * with IPv4, also if the machine has no IPv6 */
    uint16_t port;            /* 0: the kernel chooses */
    const char *token;        /* clients must prove it; a short one is valid only on loopback */
    uint32_t auth_timeout_ms; /* time for a client to prove the token, else it is dropped; 0:
                               * 20000 */
    int reserved;             /* see cddpi_store_server_reserve() */
    bool other_hosts;         /* clients on other hosts connect to `host`, too. On this machine that
                               * name may resolve to loopback (127.0.1.1 in Debian's /etc/hosts), to
                               * an address of another machine, or not at all. Then listen on all
                               * interfaces, and say so in the log */
    bool later;               /* listen only: cddpi_store_server_start() starts the thread. For who
                               * forks in between, when a lock of a second thread could be held */
};

/** Bind, listen and start the thread. If the process's limit of open files is too low for its
 *  clients, the server raises the soft limit to the hard limit. Clients beyond that are told that
 *  the server is full, and they try again. At most a few hundred clients whose proof is overdue may
 *  be connected; then each new client replaces the oldest.
 *  @param out  Release with cddpi_store_server_destroy(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_store_server_create(const struct cddpi_store_server_options *options,
                                                   struct cddpi_store_server **out);
/** Start the thread of a server that was created with `later`. Clients that connected since then
 *  have waited. */
CDDP_CHECKED cddp_status cddpi_store_server_start(struct cddpi_store_server *server);
/** Stop the server. Waiting clients get CDDP_ERR_IO at once. In a process that was forked while the
 *  server ran, this only closes the inherited descriptors. */
void cddpi_store_server_destroy(struct cddpi_store_server *server);

/** Set @p key, which includes any prefix, as a client would, but without a connection or a
 *  deadline. On return the server has answered the clients that waited for the key. Any thread of
 *  the process that created the server. */
CDDP_CHECKED cddp_status cddpi_store_server_set(struct cddpi_store_server *server, const char *key,
                                                const void *value, size_t bytes);

/** Delete all keys that begin with @p start, which includes any prefix. Any thread of the process
 *  that created the server. */
void cddpi_store_server_forget(struct cddpi_store_server *server, const char *start);

/** Reserve @p descriptors of the process's limit of open files for the program: the server accepts
 *  no connection that would use them. If the number grows, the server drops clients that have not
 *  proved the token (ranks connect again). Any thread of the process that created the server. */
void cddpi_store_server_reserve(struct cddpi_store_server *server, int descriptors);

/** How many requests the server has answered with success. Timed-out waits and reads of missing
 *  keys do not count, since their number depends on time rather than on work. */
struct cddpi_store_served {
    uint64_t requests; /* of all connections */
    uint64_t most;     /* of the busiest connection */
};

/** Get the numbers of served requests. Any thread of the process that created the server. */
void cddpi_store_server_served(struct cddpi_store_server *server, struct cddpi_store_served *out);

/** Whether a client that has proved the token is connected. Any thread of the process that created
 *  the server. */
bool cddpi_store_server_has_clients(struct cddpi_store_server *server);

/* Why a client was refused. */
enum cddpi_refused { CDDPI_REFUSED_TOKEN = 1, CDDPI_REFUSED_CIPHER, CDDPI_REFUSED_VERSION };

enum { CDDPI_STORE_REFUSALS = 8 };
struct cddpi_store_refusal {
    char address[64]; /* without a port */
    enum cddpi_refused why;
    uint64_t count;
    int64_t last_ns; /* by cddpi_now_ns() */
};

/** Get the latest refusals, newest first, one row per address and reason; a client that tries again
 *  is counted in its row. Anyone who reaches the port can cause refusals, so they prove nothing.
 *  Returns the number of rows. Any thread of the process that created the server. */
int cddpi_store_server_refusals(struct cddpi_store_server *server,
                                struct cddpi_store_refusal out[CDDPI_STORE_REFUSALS]);
/** The reason as text, for example "it does not know the job's token". */
const char *cddpi_refused_text(enum cddpi_refused why);

/** The port that the server listens on. */
uint16_t cddpi_store_server_port(const struct cddpi_store_server *server);

/** Whether the server listens on all interfaces, so that clients on this machine may use loopback.
 */
bool cddpi_store_server_is_everywhere(const struct cddpi_store_server *server);

/** A new random token of 32 hexadecimal digits and a NUL byte. */
void cddpi_store_token(char out[33]);

#endif
