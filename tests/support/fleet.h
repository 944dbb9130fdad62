/* fleet.h - the nodes of one job, each started with --nnodes and --rdzv, all on this machine. */
#ifndef CDDP_TESTS_SUPPORT_FLEET_H
#define CDDP_TESTS_SUPPORT_FLEET_H

#include "support/launcher.h"

enum { FLEET_NODES = 3 };

/* What is waited for is told: who is silent for less is not lost, unless a test chooses a limit. */
#define A_DAY "86400000"

/* The nodes, in folders of their own; what they share is in `folder`, $SHARED for ranks. */
struct fleet {
    struct launched nodes[FLEET_NODES];
    char *folder;
    char url[4200];
};

/* They meet by a file; or at a port, with a token. */
void fleet_begin(struct fleet *fleet);
void fleet_begin_tcp(struct fleet *fleet);

/* Start node @p i, with @p rest after --rdzv. @p rank NULL: by order of arrival. */
void fleet_start(struct fleet *fleet, int i, const char *nnodes, const char *rank,
                 const char *const *rest);

#define START(fleet, i, nnodes, rank, ...)                                                         \
    fleet_start((fleet), (i), (nnodes), (rank), (const char *const[]){__VA_ARGS__, NULL})

/* Start node @p i as a pod of Kubeflow's second Trainer does, by its variables alone. */
void fleet_start_pod(struct fleet *fleet, int i, const char *port, const char *const *words);

/* Wait until the first @p count nodes have ended; with @p exit_status. */
void fleet_wait(struct fleet *fleet, int count);
void fleet_ends_with(struct fleet *fleet, int count, int exit_status);
void fleet_end(struct fleet *fleet);

/* A rank that says who its supervisor is, and then waits to be ended. */
#define WAITS "echo $PPID >$SHARED/parent$RANK; exec sleep 1000"

/* Wait until rank @p rank has written to $SHARED/parentRANK who its supervisor is: that process. */
pid_t fleet_supervisor(const struct fleet *fleet, int rank);

#endif
