/* node_place.h - the store in which the nodes of a job meet, as --rdzv says. */
#ifndef CDDPI_LAUNCHER_NODE_PLACE_H
#define CDDPI_LAUNCHER_NODE_PLACE_H

#include "launcher/output/output.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/wait.h"

struct cddpi_place {
    struct cddpi_job *job;
    struct cddpi_wait *wait;
    struct cddpi_output *output;
    int64_t deadline_ns;
    int self;          /* this node's rank; -1: by order of arrival */
    cddp_store *store; /* connected to job->rendezvous.store */
    cddp_store *board; /* the file that leads there; NULL: --rdzv tcp:// */
};

/** How long nodes wait for each other. */
uint32_t cddpi_place_timeout_ms(const struct cddpi_launch_options *options);

/** Serve the store, on node 0, or connect to it: place->store, job->rendezvous.
 *  @param place  Its first four members are set. Release with cddpi_place_fini(), also after a
 *                failure. */
CDDP_CHECKED cddp_status cddpi_place_open(struct cddpi_place *place);
void cddpi_place_fini(struct cddpi_place *place);

/** Under this key the cddp-run that serves the store puts the job's id. */
#define CDDPI_PLACE_JOB_KEY "cddp-run/job"

/** The key of a node's record: printf() with the job's id and the node's number. */
#define CDDPI_PLACE_NODE_KEY "%s/0/node/%d"
enum { CDDPI_PLACE_KEY_BYTES = 128 };

/** Open the store at @p url with the job's token. */
CDDP_CHECKED cddp_status cddpi_place_open_store(const char *url, const char *token,
                                                uint32_t timeout_ms, cddp_store **out);

#endif
