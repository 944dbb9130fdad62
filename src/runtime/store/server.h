/* server.h - the TCP store's server: one thread, any number of clients (epoll), everything in
 * memory. cddp-run holds one for its job; rank 0 holds one when there is no launcher. */
#ifndef CDDPI_STORE_SERVER_H
#define CDDPI_STORE_SERVER_H

#include <cddp/store.h>

#include <stdbool.h>

struct cddpi_store_server;

struct cddpi_store_server_options {
    const char *host;         /* address or name to bind; NULL: 127.0.0.1 */
    uint16_t port;            /* 0: the kernel chooses */
    const char *token;        /* clients must prove it; beyond loopback no short one will do */
    uint32_t auth_timeout_ms; /* a client that has not proved the token by then is dropped; 0:
                               * 20000 */
    int reserved;             /* see cddpi_store_server_reserve() */
    bool other_hosts;         /* clients on other hosts come to `host`, too. Where that name means
                               * this machine's loopback here (127.0.1.1 in Debian's /etc/hosts), is
                               * not known here, or not one of this machine's addresses: listen on
                               * all interfaces, and say so in the log */
};

/** Bind, listen and start the thread. When clients outnumber the process's limit of open files, the
 *  server raises the soft limit to the hard one; further clients get an answer that says so, and
 * try again. A few hundred clients may be connected without a proof; then each new one replaces the
 *  oldest.
 *  @param out  Release with cddpi_store_server_destroy(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_store_server_create(const struct cddpi_store_server_options *options,
                                                   struct cddpi_store_server **out);
/** Clients that wait get CDDP_ERR_IO at once. In a process that was forked while the server ran, it
 *  only closes what was inherited. */
void cddpi_store_server_destroy(struct cddpi_store_server *server);

/** Set @p key, which includes any prefix, as a client would, but without a connection or a
 * deadline. When it returns, the clients that waited for the key have their answers. Any thread of
 * the process that created the server. */
CDDP_CHECKED cddp_status cddpi_store_server_set(struct cddpi_store_server *server, const char *key,
                                                const void *value, size_t bytes);

/** Leave @p descriptors of the process's limit of open files to the program: the server takes no
 *  connection that would use them, and when there are more than before it drops those who have not
 *  proved the token (ranks come again). Any thread of the process that created the server. */
void cddpi_store_server_reserve(struct cddpi_store_server *server, int descriptors);

/** How many requests the server has answered with success. Timed-out waits and reads of missing
 * keys are not counted, since their number depends on time rather than on work. */
struct cddpi_store_served {
    uint64_t requests;
    uint64_t most; /* of one connection */
};

/** Read these counts. Any thread of the process that created the server. */
void cddpi_store_server_served(struct cddpi_store_server *server, struct cddpi_store_served *out);

/* Why a client was refused. */
enum cddpi_refused { CDDPI_REFUSED_TOKEN = 1, CDDPI_REFUSED_CIPHER, CDDPI_REFUSED_VERSION };

enum { CDDPI_STORE_REFUSALS = 8 };
struct cddpi_store_refusal {
    char address[64]; /* without a port */
    enum cddpi_refused why;
    uint64_t count;
    int64_t last_ns; /* by cddpi_now_ns() */
};

/** The latest refusals, newest first, one row for each address and reason; a client that tries
 * again is counted in its row. Anyone who reaches the port can cause refusals, so they prove
 * nothing. Returns the number of rows. Any thread of the process that created the server. */
int cddpi_store_server_refusals(struct cddpi_store_server *server,
                                struct cddpi_store_refusal out[CDDPI_STORE_REFUSALS]);
/** "it does not know the job's token" */
const char *cddpi_refused_text(enum cddpi_refused why);

/** The port that it listens on. */
uint16_t cddpi_store_server_port(const struct cddpi_store_server *server);

/** Whether it listens on all interfaces, so that this machine's own clients may use loopback. */
bool cddpi_store_server_is_everywhere(const struct cddpi_store_server *server);

/** A new random token of 32 hexadecimal digits and a NUL byte. */
void cddpi_store_token(char out[33]);

#endif
