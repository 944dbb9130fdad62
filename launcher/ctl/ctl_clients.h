/* ctl_clients.h - the connections of cddp-ctl to a cddp-run. Each brings one request and gets one
 * answer, at once or after what it asked for has happened. One thread, which waits for no client,
 * and for the run folder's file system for a few seconds at most (ctl_folder.h). */
#ifndef CDDPI_LAUNCHER_CTL_CLIENTS_H
#define CDDPI_LAUNCHER_CTL_CLIENTS_H

#include "launcher/ctl/ctl_message.h"
#include "launcher/ctl/ctl_socket.h"

enum {
    CDDPI_CTL_CLIENTS = 24,
    CDDPI_CTL_WAITING = 16,     /* the most that wait for something to happen */
    CDDPI_CTL_REQUEST_MS = 2000 /* how long a client may take to send its request */
};

struct cddpi_ctl_client {
    int fd; /* -1: none */
    int64_t deadline_ns;
    bool waits; /* its request is being carried out */
    struct cddpi_ctl_request request;
    int generation;  /* that ran when it asked; the owner's */
    bool is_checked; /* cddp-train is being asked whether it is possible; the owner's */
};

/** A client has sent a valid request: answer it, or let it wait. */
typedef void (*cddpi_ctl_take_fn)(void *context, struct cddpi_ctl_client *client);

struct cddpi_ctl_clients {
    struct cddpi_ctl_socket socket;
    struct cddpi_ctl_client list[CDDPI_CTL_CLIENTS];
    cddpi_ctl_take_fn take;
    void *context;
    int epoll;        /* of the socket, the clients and the timer: readable when something is due */
    int timer;        /* ends at the first deadline */
    bool is_full;     /* the socket is not in the epoll set */
    int64_t again_ns; /* when it is put there again, after a lack of descriptors or memory; 0: when
                         a client is gone */
};

/** Returns false with errno. Release with cddpi_ctl_clients_fini() only after success. */
bool cddpi_ctl_clients_init(struct cddpi_ctl_clients *clients, cddpi_ctl_take_fn take,
                            void *context);
void cddpi_ctl_clients_fini(struct cddpi_ctl_clients *clients);

/** Listen in the folder @p dir, and no longer elsewhere; as cddpi_ctl_folder_listen(). */
CDDP_CHECKED cddp_status cddpi_ctl_clients_listen(struct cddpi_ctl_clients *clients,
                                                  const char *dir, bool is_locked);

/** Do what is due. */
void cddpi_ctl_clients_serve(struct cddpi_ctl_clients *clients);

/** Send @p answer, and close the connection. */
void cddpi_ctl_client_answer(struct cddpi_ctl_clients *clients, struct cddpi_ctl_client *client,
                             const struct cddpi_ctl_answer *answer);

/** Let @p client wait without a deadline. Returns false if too many wait already. */
bool cddpi_ctl_client_await(struct cddpi_ctl_clients *clients, struct cddpi_ctl_client *client);

#endif
