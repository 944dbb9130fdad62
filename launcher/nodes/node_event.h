/* node_event.h - what nodes tell each other: the events of a job's log. */
#ifndef CDDPI_LAUNCHER_NODE_EVENT_H
#define CDDPI_LAUNCHER_NODE_EVENT_H

#include "store/message.h"

enum {
    CDDPI_MAX_JOINS = 4096, /* of nodes that come after the job has begun; see node_meeting.c */
    CDDPI_NODE_NUMBERS = 1 << 20 /* numbers of nodes: each cddp-run that is started has its own */
};

enum { CDDPI_EVENT_TEXT_BYTES = 4096, CDDPI_MAX_WORLD_SIZE = 65536 };

enum cddpi_node_event_kind {
    CDDPI_EVENT_NONE,
    CDDPI_EVENT_START,   /* a generation begins, of the nodes `text` ("0-2,5"); `number` is the port
                            for torch.distributed */
    CDDPI_EVENT_FAILURE, /* a rank failed, or (rank -1) a node that will still publish DONE */
    CDDPI_EVENT_FOLLOW,  /* a rank failed, and says that another rank is the cause */
    CDDPI_EVENT_SIGNAL,  /* signal `number` was sent to the node */
    CDDPI_EVENT_LOST,    /* the node is gone; `number`: enum cddpi_lost */
    CDDPI_EVENT_DONE,    /* all ranks of the node have ended; `number` 1: they cannot start again */
    CDDPI_EVENT_END,     /* the job has ended */
    CDDPI_EVENT_BYE,     /* the node has received END and no longer needs the store */
    CDDPI_EVENT_JOIN,    /* the node has come, with `number` ranks, on the host `text` */
    CDDPI_EVENT_LEAVE,   /* the node was asked to leave: the next generation is without it; `rank`:
                            since its last rank, this one, was asked, or -1 */
    CDDPI_EVENT_SIZE,    /* the node has `number` ranks from the next generation on; `rank`: since
                            this rank was asked to leave, or -1. The number may be the same: then
                            another rank takes its place */
    CDDPI_EVENT_CHANGE,  /* members change, for the reason `text`: the ranks of this generation save
                            and end; `rank`: it has asked for that, so all ranks know, or -1 */
    CDDPI_EVENT_SAVING,  /* ranks of the node were asked to end and are still saving */
    CDDPI_EVENT_REFUSED, /* a node has come that may not join, since it differs from node 0: `text`
                          */
    CDDPI_EVENT_SAVED,   /* rank 0, which is on the node, has written the checkpoint that a SIGNAL
                            asked for; `number` 0: it could not */
    CDDPI_EVENT_CARD, /* the node leaves out a card, which rank `rank` has used, as `text` says */
    CDDPI_EVENT_CUT   /* never in the store: this process has lost its connection to the store */
};

/* Why a node is lost. */
enum cddpi_lost {
    CDDPI_LOST_HOST,     /* its cddp-run has ended, or what led to it has */
    CDDPI_LOST_SILENT,   /* it gives no sign of life, though its cddp-run has not ended */
    CDDPI_LOST_NEWCOMER, /* it came late, and the job failed as soon as it took part */
    CDDPI_LOST_UNABLE,   /* it could not start its ranks, or the next generation */
    CDDPI_LOST_LATE      /* its ranks did not end in time */
};

struct cddpi_node_event {
    enum cddpi_node_event_kind kind;
    int generation;
    int node; /* -1: the cddp-run that started the nodes */
    int rank; /* -1: none */
    int number;
    int exit_status;                   /* START: so many generations in a row made no progress */
    bool may_restart;                  /* FAILURE, FOLLOW: another generation may succeed;
                                          START: this one is a restart after a failure */
    bool has_saved;                    /* DONE: a checkpoint was written; START: the generation
                                          before has done something */
    bool has_kept;                     /* DONE: the node's ranks keep their progress in memory */
    char address[256];                 /* START: of rank 0's machine; "": the host of the store */
    char text[CDDPI_EVENT_TEXT_BYTES]; /* FAILURE, FOLLOW, LOST, CUT, REFUSED: a sentence without
                                          its full stop */
};

extern const struct cddpi_message_form cddpi_node_event_form;

/** Decode an event; returns as cddpi_message_decode(). The event owns nothing, and may tell of a
 *  node that has never come. */
CDDP_CHECKED cddp_status cddpi_node_event_decode(const uint8_t *data, size_t bytes,
                                                 struct cddpi_node_event *out);

#endif
