/* job_rendezvous.h - what the ranks of a job need to find each other: the store's server, the job's
 * token and id, and a port for programs written for torchrun. */
#ifndef CDDPI_LAUNCHER_RENDEZVOUS_H
#define CDDPI_LAUNCHER_RENDEZVOUS_H

#include "launcher/nodes/node_address.h"
#include "launcher/nodes/node_link.h"

#include "store/server.h"

#include <cddp/status.h>

enum { CDDPI_TOKEN_BYTES = 64 };

/** Read the token from the first line of the file @p path, which only its owner may be able to
 *  read, or, if @p path is NULL, from $CDDP_TOKEN. @p out is "" if neither is set.
 *  @return CDDP_ERR_CONFIG (the message says what is wrong with the file), CDDP_ERR_ARGUMENT (the
 *          token is too long, or has non-printable bytes). */
CDDP_CHECKED cddp_status cddpi_token_read(const char *path, char out[CDDPI_TOKEN_BYTES + 1]);

/** Check that @p token, which the user chose ("": none yet), is secret enough for the meeting place
 *  @p rdzv, which @p option gave: other machines can reach every store that is not on loopback.
 *  @return CDDP_ERR_ARGUMENT; the message says what to do. */
CDDP_CHECKED cddp_status cddpi_token_suits(const char *token, const char *option, const char *rdzv);

struct cddpi_job_rendezvous {
    struct cddpi_store_server *server; /* NULL: another cddp-run runs it */
    struct cddpi_node_link *link;      /* NULL: one machine; borrowed */
    bool has_outside_store;            /* a process without ranks serves it (cddp-run --store) */
    cddp_store *board; /* of a job that nodes join later: the file with the address of the store,
                          which is removed when this is closed; NULL: none */
    char store[CDDPI_ADDRESS_BYTES]; /* URL for ranks on this machine; "": not known yet */
    char token[CDDPI_TOKEN_BYTES + 1];
    char job[33];
    char master_host[256]; /* of rank 0, as seen from this machine */
    int master_fd;         /* keeps master_port reserved until the ranks run; -1: none */
    uint16_t master_port;
};

/** Mark @p rendezvous as empty: no server, no descriptor. */
void cddpi_rendezvous_clear(struct cddpi_job_rendezvous *rendezvous);

/** Start the store's server on loopback, with a new id and a new token, for @p world_size ranks of
 *  this machine. Starts a thread. Release with cddpi_rendezvous_fini(). */
CDDP_CHECKED cddp_status cddpi_rendezvous_init(int world_size, struct cddpi_job_rendezvous *out);

/** As cddpi_rendezvous_init(), but on @p host (NULL: all addresses of this machine) and @p port (0:
 *  chosen by the kernel), and with out->token if that is set. */
CDDP_CHECKED cddp_status cddpi_rendezvous_serve(const char *host, uint16_t port, int world_size,
                                                struct cddpi_job_rendezvous *out);

/** Reserve the file descriptors that starting @p world_size ranks needs, so that clients of the
 *  store cannot use them up. 0: the ranks have started. */
void cddpi_rendezvous_leave_room(const struct cddpi_job_rendezvous *rendezvous, int world_size);

void cddpi_rendezvous_fini(struct cddpi_job_rendezvous *rendezvous);

/** Let the kernel choose a free port as master_port, and keep it reserved. */
CDDP_CHECKED cddp_status cddpi_rendezvous_reserve(struct cddpi_job_rendezvous *rendezvous);

/** Release master_port, so that rank 0 can bind it. */
void cddpi_rendezvous_release(struct cddpi_job_rendezvous *rendezvous);

/** Write @p text to the key "failure" of @p generation, so that waiting ranks can report the cause.
 *  Does not wait; an error is only logged. */
void cddpi_rendezvous_tell(const struct cddpi_job_rendezvous *rendezvous, int generation,
                           const char *text);

/** Generation @p generation begins: delete what ranks of the generation before the last have left
 * in the store, if this process serves it. Otherwise a job that has had very many generations would
 *  join ever more slowly: a rank that joins has the store search all keys. (Generation 0 stays: it
 *  has the records of the nodes.) */
void cddpi_rendezvous_forget(const struct cddpi_job_rendezvous *rendezvous, int generation);

/** Tell ranks that wait for @p rank to join that it ended without a failure, with @p exit_status,
 *  and its last line on stderr ("": none). Does not wait; an error is only logged. */
void cddpi_rendezvous_tell_end(const struct cddpi_job_rendezvous *rendezvous, int generation,
                               int rank, int exit_status, const char *line);

#endif
