/* node_event.h - events of a job on several machines, as data. The store numbers them, so that all
 * nodes see the same events in the same order. */
#ifndef CDDPI_LAUNCHER_NODE_EVENT_H
#define CDDPI_LAUNCHER_NODE_EVENT_H

#include "launcher/nodes/node_message.h"

enum { CDDPI_EVENT_TEXT_BYTES = 4096, CDDPI_MAX_WORLD_SIZE = 65536 };

enum cddpi_node_event_kind {
    CDDPI_EVENT_NONE,
    CDDPI_EVENT_START,   /* a generation begins; `number` is the port for torch.distributed */
    CDDPI_EVENT_FAILURE, /* a rank failed, or (rank -1) a node that will still publish DONE */
    CDDPI_EVENT_FOLLOW,  /* a rank failed, and says that another rank is the cause */
    CDDPI_EVENT_SIGNAL,  /* signal `number` was sent to the node */
    CDDPI_EVENT_LOST,    /* the node is gone */
    CDDPI_EVENT_DONE,    /* all ranks of the node have ended */
    CDDPI_EVENT_END,     /* the job has ended */
    CDDPI_EVENT_BYE,     /* the node has received END and no longer needs the store */
    CDDPI_EVENT_SAVING,  /* ranks of the node were asked to end and are still saving */
    CDDPI_EVENT_CUT      /* never in the store: this process has lost its connection to the store */
};

struct cddpi_node_event {
    enum cddpi_node_event_kind kind;
    int generation;
    int node; /* -1: the cddp-run that started the nodes */
    int rank; /* -1: none */
    int number;
    int exit_status;
    bool may_restart;                  /* FAILURE, FOLLOW, DONE: another generation may succeed */
    bool has_saved;                    /* DONE: a checkpoint was written */
    char text[CDDPI_EVENT_TEXT_BYTES]; /* FAILURE, FOLLOW, LOST, CUT: a sentence without its full
                                          stop */
};

extern const struct cddpi_message_form cddpi_node_event_form;

/** Decode an event of a job with @p count nodes; returns as cddpi_message_decode(). The event owns
 *  nothing. */
CDDP_CHECKED cddp_status cddpi_node_event_decode(const uint8_t *data, size_t bytes, int count,
                                                 struct cddpi_node_event *out);

#endif
