/* fleet.h - the nodes of one job, each started with --nnodes and --rdzv, all on this machine. */
#ifndef CDDP_TESTS_SUPPORT_FLEET_H
#define CDDP_TESTS_SUPPORT_FLEET_H

#include "support/launcher.h"

enum { FLEET_NODES = 5 };

/* The limit of silence: these tests wait for explicit events, so that no node is lost for being
 * slow, unless a test chooses a limit. */
#define A_DAY "86400000"

/* The nodes, each in its own folder. `folder` is shared; ranks see it as $SHARED. */
struct fleet {
    struct launched nodes[FLEET_NODES];
    char *folder;
    char url[4200];
};

/* The nodes meet in a file (fleet_begin) or at a port, with a token (fleet_begin_tcp). */
void fleet_begin(struct fleet *fleet);
void fleet_begin_tcp(struct fleet *fleet);

/* Let jobs of MIN:MAX nodes that are started from now on begin only with MAX of them, however late
 * one comes on a busy machine; until fleet_end(). */
void fleet_await_all(void);

/* Start node @p i, with @p rest after --rdzv. @p rank NULL: by order of arrival. */
void fleet_start(struct fleet *fleet, int i, const char *nnodes, const char *rank,
                 const char *const *rest);

#define START(fleet, i, nnodes, rank, ...)                                                         \
    fleet_start((fleet), (i), (nnodes), (rank), (const char *const[]){__VA_ARGS__, NULL})

/* Start node @p i like a pod of Kubeflow Trainer v2: configured only by variables. */
void fleet_start_pod(struct fleet *fleet, int i, const char *port, const char *const *words);

/* Wait until the first @p count nodes have ended; fleet_ends_with() also checks their exit
 * status. */
void fleet_wait(struct fleet *fleet, int count);
void fleet_ends_with(struct fleet *fleet, int count, int exit_status);
void fleet_end(struct fleet *fleet);

/* A shell command for a rank: write the pid of its supervisor, then wait to be ended. */
#define WAITS "echo $PPID >$SHARED/parent$RANK; exec sleep 1000"

/* Wait until rank @p rank has written $SHARED/parentRANK. Returns the pid of its supervisor. */
pid_t fleet_supervisor(const struct fleet *fleet, int rank);

#endif
