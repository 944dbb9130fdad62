/* node_record.h - what a node tells about itself when the nodes meet, and node 0's answer. */
#ifndef CDDPI_LAUNCHER_NODE_RECORD_H
#define CDDPI_LAUNCHER_NODE_RECORD_H

#include "launcher/hosts/host_list.h"
#include "launcher/nodes/node_place.h"

enum { CDDPI_WORDS_BYTES = 4096, CDDPI_REFUSAL_BYTES = 4096 };

/* All nodes must have equal records, except for host and nproc. */
struct cddpi_node_record {
    char version[64];
    char host[CDDPI_HOST_BYTES];
    int nproc;
    int count; /* --nnodes */
    int max_restarts;
    char timeout_ms[24];
    char words[CDDPI_WORDS_BYTES]; /* the command to run; cut if it is longer */
    int64_t words_bytes;           /* length of the whole command */
};

/** A decoded record owns nothing. */
extern const struct cddpi_message_form cddpi_node_record_form;

/** Write to @p out, as a sentence, what differs between node @p i and node 0. Returns false if
 *  nothing differs. */
bool cddpi_node_record_differs(const struct cddpi_node_record *zero,
                               const struct cddpi_node_record *other, int i, char *out,
                               size_t bytes);

/* Node 0's answer to all nodes. */
struct cddpi_node_plan {
    char refusal[CDDPI_REFUSAL_BYTES]; /* why the job cannot run; "": it can */
    char master_host[256];             /* of node 0; "": the host of the store */
    int count;                         /* 0 with a refusal */
    struct cddpi_plan_node {
        char host[CDDPI_HOST_BYTES];
        int nproc;
    } * nodes; /* owned */
};

extern const struct cddpi_message_form cddpi_node_plan_form;

enum { CDDPI_MISSING_BYTES = 512 };
/** Other nodes: list the nodes whose records are not in the store, as "0, 2"; cut to the size of @p
 *  out; "": all have come; "?": the store does not say. */
void cddpi_node_list_missing(struct cddpi_place *place, char out[CDDPI_MISSING_BYTES]);

enum { CDDPI_READ_MS = 3000 }; /* how long other nodes have to read a refusal */

/** Node 0, whose record is @p own: wait for the records of all nodes, and answer them.
 *  @param out  Release with cddpi_node_plan_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_node_plan_make(struct cddpi_place *place,
                                              const struct cddpi_node_record *own,
                                              struct cddpi_node_plan *out);

/** Decode a plan for @p count nodes; returns as cddpi_message_decode().
 *  @param out  Release with cddpi_node_plan_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_node_plan_decode(const uint8_t *data, size_t bytes, int count,
                                                struct cddpi_node_plan *out);
void cddpi_node_plan_fini(struct cddpi_node_plan *plan);

#endif
