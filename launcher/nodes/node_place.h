/* node_place.h - opens the store in which the nodes of a job meet, at the place that --rdzv
 * names. */
#ifndef CDDPI_LAUNCHER_NODE_PLACE_H
#define CDDPI_LAUNCHER_NODE_PLACE_H

#include "launcher/nodes/patience.h"
#include "launcher/output/output.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/monitor.h"
#include "store/message.h"

struct cddpi_place {
    struct cddpi_job *job;
    struct cddpi_wait *wait;
    int64_t deadline_ns;
    struct cddpi_patience patience; /* until the user is told of the current wait */
    int self;                       /* this node's rank; -1: assigned by order of arrival */
    cddp_store *store;              /* connected to job->rendezvous.store */
    cddp_store *board; /* the file store that holds its address; NULL with --rdzv tcp:// */
};

/** How long nodes wait for each other. */
uint32_t cddpi_place_timeout_ms(const struct cddpi_launch_options *options);

/** A wait of the meeting begins: the user is told of it if it lasts. */
void cddpi_place_wait_begins(struct cddpi_place *place);
/** Whether it is time to tell the user of the current wait. */
bool cddpi_place_wait_lasts(struct cddpi_place *place);
/** Tell the user for what this node waits, and until when. */
void cddpi_place_say_wait(struct cddpi_place *place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** For cddpi_place_await(): tell the user, when it is time, that @p text has not happened yet. */
void cddpi_place_tell_wait(struct cddpi_place *place, void *text);

/** Serve the store (node 0) or connect to it. Sets place->store and job->rendezvous.
 *  @param place  The caller sets the members up to deadline_ns, and begins the wait. Release with
 * cddpi_place_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_place_open(struct cddpi_place *place);
void cddpi_place_fini(struct cddpi_place *place);

/** The key to which the cddp-run that serves the store writes the job's id. */
#define CDDPI_PLACE_JOB_KEY "cddp-run/job"

/** The key that exists if that cddp-run is not a node (cddp-run --store). It is written first. */
#define CDDPI_PLACE_OUTSIDE_KEY "cddp-run/outside"

/** Record in the rendezvous whether the store, which this node has reached, is outside. */
CDDP_CHECKED cddp_status cddpi_place_look_outside(struct cddpi_place *place);

/** Whether a store that is to be reached at @p host has to be served on all addresses of this
 *  machine. @p is_named_by_launcher: the user did not choose the name. */
bool cddpi_place_binds_all(const char *host, bool is_named_by_launcher);

/** Write the address at which others reach this machine; "": the host of the store is on it. */
void cddpi_place_master_host(const struct cddpi_job_rendezvous *rendezvous, char *out,
                             size_t bytes);

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
