/* node_record.h - what a node tells about itself when the nodes meet (node_record.c), and the
 * answer: node 0's (node_gather.c), or with --hosts that of the cddp-run that starts the nodes. */
#ifndef CDDPI_LAUNCHER_NODE_RECORD_H
#define CDDPI_LAUNCHER_NODE_RECORD_H

#include "launcher/hosts/host_list.h"
#include "launcher/nodes/node_place.h"

enum { CDDPI_WORDS_BYTES = 4096, CDDPI_REFUSAL_BYTES = 4096 };

/* A file's contents, to tell whether they are another file's. */
struct cddpi_file_print {
    int64_t bytes; /* -1: not known */
    uint8_t hash[16];
};

/* All nodes must have equal records, except for host and nproc. */
struct cddpi_node_record {
    char version[64];
    char host[CDDPI_HOST_BYTES];
    int nproc;
    int count; /* --nnodes, or its MAX */
    int least; /* its MIN; 0: the number is fixed */
    int max_restarts;
    bool trains; /* the ranks are cddp-train */
    char timeout_ms[24];
    char words[CDDPI_WORDS_BYTES]; /* the command to run; cut if it is longer */
    int64_t words_bytes;           /* length of the whole command */
    struct cddpi_file_print program;
    struct cddpi_file_print config; /* train.conf */
};

/** A decoded record owns nothing. */
extern const struct cddpi_message_form cddpi_node_record_form;

/** Describe this machine's cddp-run. The contents of its files count only in an elastic job: a node
 *  that comes late must not bring others, but the first nodes of a fixed job may. */
void cddpi_node_record_describe(const struct cddpi_job *job, struct cddpi_node_record *out);

/** Write to @p out, as a sentence, what differs between node @p i and node @p first, with which all
 *  are compared: node 0, or (--hosts) the first that came. Returns false if nothing differs. */
bool cddpi_node_record_differs(const struct cddpi_node_record *zero, int first,
                               const struct cddpi_node_record *other, int i, char *out,
                               size_t bytes);

/* The answer to all nodes. */
struct cddpi_node_plan {
    char refusal[CDDPI_REFUSAL_BYTES]; /* why the job cannot run; "": it can */
    char master_host[256];             /* of the first node; "": the host of the store */
    int count;                         /* 0 with a refusal */
    struct cddpi_plan_node {
        char host[CDDPI_HOST_BYTES];
        int nproc;
        int node; /* its number */
    } * nodes;    /* by number; owned */
};

extern const struct cddpi_message_form cddpi_node_plan_form;

enum { CDDPI_MISSING_BYTES = 512 };
/** Other nodes: tell the user which nodes have not written their records to the store yet. */
void cddpi_node_say_missing(struct cddpi_place *place);

enum { CDDPI_READ_MS = 3000 }; /* for other nodes to read a refusal, and for cddp-ctl the end */

/** CDDP_SETTLE_MS: how long an elastic job with enough nodes waits for each further one. Warns of a
 *  value that is not a number. */
int64_t cddpi_node_settle_ns(void);

/** Node 0, whose record is @p own: wait for the records of all nodes, or in an elastic job of
 *  enough nodes, and answer them.
 *  @param out  Release with cddpi_node_plan_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_node_plan_make(struct cddpi_place *place,
                                              const struct cddpi_node_record *own,
                                              struct cddpi_node_plan *out);

/** Decode a plan for @p least to @p most nodes; returns as cddpi_message_decode().
 *  @param out  Release with cddpi_node_plan_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_node_plan_decode(const uint8_t *data, size_t bytes, int least,
                                                int most, struct cddpi_node_plan *out);
/** Whether node @p node is in the plan. */
bool cddpi_node_plan_has(const struct cddpi_node_plan *plan, int node);
void cddpi_node_plan_fini(struct cddpi_node_plan *plan);

#endif
