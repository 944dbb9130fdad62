/* job_rendezvous.h - what the ranks of a job find each other by: the store's server, its token, the
 * job's id, and a port for programs that were written for torchrun. */
#ifndef CDDPI_LAUNCHER_RENDEZVOUS_H
#define CDDPI_LAUNCHER_RENDEZVOUS_H

#include "launcher/nodes/node_address.h"
#include "launcher/nodes/node_link.h"
#include "launcher/nodes/token.h"

#include "store/server.h"

struct cddpi_job_rendezvous {
    struct cddpi_store_server *server; /* NULL: another cddp-run has it */
    struct cddpi_node_link *link;      /* NULL: one machine; borrowed */
    char store[CDDPI_ADDRESS_BYTES];   /* as ranks here reach it; "": not known yet */
    char token[CDDPI_TOKEN_BYTES + 1];
    char job[33];
    char master_host[256]; /* of rank 0, as ranks here reach it */
    int master_fd;         /* holds master_port until the ranks run; -1: none */
    uint16_t master_port;
};

/** Nothing is held. */
void cddpi_rendezvous_clear(struct cddpi_job_rendezvous *rendezvous);

/** Start the server with a new id: for @p world_size ranks of this machine, on loopback with a new
 *  token. Starts a thread. Release with cddpi_rendezvous_fini(). */
CDDP_CHECKED cddp_status cddpi_rendezvous_init(int world_size, struct cddpi_job_rendezvous *out);

/** The same on @p host (NULL: all addresses of this machine) and @p port (0: the kernel chooses),
 *  with out->token if that is set. */
CDDP_CHECKED cddp_status cddpi_rendezvous_serve(const char *host, uint16_t port, int world_size,
                                                struct cddpi_job_rendezvous *out);

/** Keep the descriptors that the start of @p world_size ranks takes from the store's clients; 0:
 * the ranks have started. */
void cddpi_rendezvous_leave_room(const struct cddpi_job_rendezvous *rendezvous, int world_size);

void cddpi_rendezvous_fini(struct cddpi_job_rendezvous *rendezvous);

/** Let the kernel choose a new free port as master_port, and hold it. */
CDDP_CHECKED cddp_status cddpi_rendezvous_reserve(struct cddpi_job_rendezvous *rendezvous);

/** Let master_port go, so that rank 0 can bind it. */
void cddpi_rendezvous_release(struct cddpi_job_rendezvous *rendezvous);

/** Put @p text under the key "failure" of @p generation, so that waiting ranks can say why. It does
 * not wait; a failure to do so is only logged. */
void cddpi_rendezvous_tell(const struct cddpi_job_rendezvous *rendezvous, int generation,
                           const char *text);

/** The same that @p rank ended with status 0, for those who wait for it to join. */
void cddpi_rendezvous_tell_end(const struct cddpi_job_rendezvous *rendezvous, int generation,
                               int rank);

#endif
