/* spawn.h - owns what a forked rank and its parent process share. */
#ifndef CDDPI_GROUP_SPAWN_H
#define CDDPI_GROUP_SPAWN_H

#include "base/error.h"

#include <cddp/spawn.h>

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct cddpi_store_server;

/* How a rank's function ended; in memory that the parent and the ranks share. */
struct cddpi_spawn_end {
    atomic_bool returned; /* the other fields are complete */
    cddp_status result;
    struct cddpi_failure failure; /* the last failure of the rank's thread */
};

/* What the ranks need; created before the first fork. */
struct cddpi_spawn_job {
    cddp_spawn_fn fn;
    void *state;
    int world_size;
    pid_t parent;
    struct cddpi_store_server *server;
    struct cddpi_spawn_end *ends;
    int gate[2]; /* a pipe: ranks start when the parent has written one byte per rank and closed its
                    end */
    int master_fd; /* bound, so that torch.distributed's port stays free until ranks start  */
    uint16_t master_port;
    char token[33];
    char name[33]; /* of the job */
};

/** In a child of @p job->parent: run as @p rank, then exit. The child dies with its parent. If not
 *  every rank could be started, it exits without running anything. */
void __attribute__((noreturn)) cddpi_spawn_rank(const struct cddpi_spawn_job *job, int rank);

#endif
