/* node_event.h - what happens to a job on several machines, as data. Events are numbered in the
 * store, so that all nodes see the same ones in the same order. */
#ifndef CDDPI_LAUNCHER_NODE_EVENT_H
#define CDDPI_LAUNCHER_NODE_EVENT_H

#include "launcher/nodes/node_message.h"

enum { CDDPI_EVENT_TEXT_BYTES = 4096, CDDPI_MAX_WORLD_SIZE = 65536 };

enum cddpi_node_event_kind {
    CDDPI_EVENT_NONE,
    CDDPI_EVENT_START,   /* a generation begins; `number` is the port for torch.distributed */
    CDDPI_EVENT_FAILURE, /* of a rank, or (rank -1) of a node that goes on to tell its end */
    CDDPI_EVENT_FOLLOW,  /* the same, but as it says only because another rank failed */
    CDDPI_EVENT_SIGNAL,  /* `number` was sent to the node */
    CDDPI_EVENT_LOST,    /* the node is gone */
    CDDPI_EVENT_DONE,    /* its ranks have ended */
    CDDPI_EVENT_END,     /* the job has */
    CDDPI_EVENT_BYE,     /* the node has heard so and needs the store no more */
    CDDPI_EVENT_SAVING,  /* ranks of the node that were asked to end still save */
    CDDPI_EVENT_CUT      /* in no store: this process has lost the connection to it */
};

struct cddpi_node_event {
    enum cddpi_node_event_kind kind;
    int generation;
    int node; /* -1: the cddp-run that started the nodes */
    int rank; /* -1: none */
    int number;
    int exit_status;
    bool may_restart;                  /* FAILURE, FOLLOW, DONE: a next generation may go better */
    bool has_saved;                    /* DONE: a checkpoint was written */
    char text[CDDPI_EVENT_TEXT_BYTES]; /* FAILURE, FOLLOW, LOST, CUT: a sentence without its end */
};

extern const struct cddpi_message_form cddpi_node_event_form;

/** Read an event of a job with @p count nodes; as cddpi_message_decode(). It owns nothing. */
CDDP_CHECKED cddp_status cddpi_node_event_decode(const uint8_t *data, size_t bytes, int count,
                                                 struct cddpi_node_event *out);

#endif
