/* spawn.h - what a forked rank and the process that forked it share. */
#ifndef CDDPI_GROUP_SPAWN_H
#define CDDPI_GROUP_SPAWN_H

#include "base/error.h"

#include <cddp/spawn.h>

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct cddpi_store_server;

/* In memory that parent and ranks share: how a rank's function ended. */
struct cddpi_spawn_end {
    atomic_bool returned; /* the rest is complete */
    int result;
    struct cddpi_failure failure; /* the last one of the rank's thread */
};

/* What the ranks need, made before the first fork. */
struct cddpi_spawn_job {
    cddp_spawn_fn fn;
    void *arg;
    int world_size;
    pid_t parent;
    struct cddpi_store_server *server;
    struct cddpi_spawn_end *ends;
    int gate[2];   /* a pipe: ranks begin when its writing end is closed after a byte a rank */
    int master_fd; /* bound, so that the port of torch.distributed stays free until ranks begin */
    uint16_t master_port;
    char token[33];
    char name[33]; /* of the job */
};

/** In a fork of @p job->parent: be @p rank, and end. Dies with the parent, and without having run
 *  anything if not every rank could be started. */
void __attribute__((noreturn)) cddpi_spawn_rank(const struct cddpi_spawn_job *job, int rank);

#endif
