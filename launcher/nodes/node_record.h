/* node_record.h - how a node describes itself when nodes meet, and what node 0 answers. */
#ifndef CDDPI_LAUNCHER_NODE_RECORD_H
#define CDDPI_LAUNCHER_NODE_RECORD_H

#include "launcher/hosts/host_list.h"
#include "launcher/nodes/node_message.h"

enum { CDDPI_WORDS_BYTES = 4096, CDDPI_REFUSAL_BYTES = 4096 };

/* The same on all nodes, but for host and nproc. */
struct cddpi_node_record {
    char version[64];
    char host[CDDPI_HOST_BYTES];
    int nproc;
    int count; /* --nnodes */
    int max_restarts;
    char timeout_ms[24];
    char words[CDDPI_WORDS_BYTES]; /* of what is to be run; what is longer is cut */
    int64_t words_bytes;           /* of them all */
};

/** It owns nothing. */
extern const struct cddpi_message_form cddpi_node_record_form;

/** What differs between node @p i and node 0, as a sentence to @p out; false if nothing does. */
bool cddpi_node_record_differs(const struct cddpi_node_record *zero,
                               const struct cddpi_node_record *other, int i, char *out,
                               size_t bytes);

/* Node 0's answer to all. */
struct cddpi_node_plan {
    char refusal[CDDPI_REFUSAL_BYTES]; /* why there is no job; "": there is one */
    char master_host[256];             /* of node 0; "": as the store's */
    int count;                         /* 0 with a refusal */
    struct cddpi_plan_node {
        char host[CDDPI_HOST_BYTES];
        int nproc;
    } * nodes; /* owned */
};

extern const struct cddpi_message_form cddpi_node_plan_form;

/** Read a plan for @p count nodes; as cddpi_message_decode().
 *  @param out  Release with cddpi_node_plan_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_node_plan_decode(const uint8_t *data, size_t bytes, int count,
                                                struct cddpi_node_plan *out);
void cddpi_node_plan_fini(struct cddpi_node_plan *plan);

#endif
