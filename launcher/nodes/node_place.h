/* node_place.h - opens the store in which the nodes of a job meet, at the place that --rdzv
 * names. */
#ifndef CDDPI_LAUNCHER_NODE_PLACE_H
#define CDDPI_LAUNCHER_NODE_PLACE_H

#include "launcher/output/output.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/monitor.h"
#include "store/message.h"

struct cddpi_place {
    struct cddpi_job *job;
    struct cddpi_wait *wait;
    int64_t deadline_ns;
    int self;          /* this node's rank; -1: assigned by order of arrival */
    cddp_store *store; /* connected to job->rendezvous.store */
    cddp_store *board; /* the file store that holds its address; NULL with --rdzv tcp:// */
    int64_t news_ns;   /* when to say that node 0 has not come yet; 0: in a while */
};

/** How long nodes wait for each other. */
uint32_t cddpi_place_timeout_ms(const struct cddpi_launch_options *options);

/** Serve the store (node 0) or connect to it. Sets place->store and job->rendezvous.
 *  @param place  The caller sets the members up to deadline_ns. Release with cddpi_place_fini(),
 *                also after a failure. */
CDDP_CHECKED cddp_status cddpi_place_open(struct cddpi_place *place);
void cddpi_place_fini(struct cddpi_place *place);

/** The key to which the cddp-run that serves the store writes the job's id. */
#define CDDPI_PLACE_JOB_KEY "cddp-run/job"

/** The key of a node's record: a printf() format for the job's id and the node's number. */
#define CDDPI_PLACE_NODE_KEY "%s/0/node/%d"
enum { CDDPI_PLACE_KEY_BYTES = 128 };

/** Write the key "JOB/0/NAME" or, unless @p node is -1, "JOB/0/NAME/NODE". */
void cddpi_place_key(const struct cddpi_place *place, const char *name, int node,
                     char out[CDDPI_PLACE_KEY_BYTES]);

/** Read @p key of @p store once it has a value. Release with cddp_free().
 *  @param look  Called after each look that finds none; NULL: nothing is.
 *  @return CDDP_ERR_NOT_FOUND: there was none by @p deadline_ns; CDDP_ERR_STATE: the wait is over,
 *          which the text says; else what the store failed with. */
CDDP_CHECKED cddp_status cddpi_place_await(struct cddpi_place *place, cddp_store *store,
                                           const char *key, int64_t deadline_ns,
                                           void (*look)(struct cddpi_place *place, void *context),
                                           void *context, void **out_value, size_t *out_bytes);

/** Open the store at @p url with the job's token. */
CDDP_CHECKED cddp_status cddpi_place_open_store(const char *url, const char *token,
                                                uint32_t timeout_ms, cddp_store **out);

#endif
