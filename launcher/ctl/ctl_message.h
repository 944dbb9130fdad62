/* ctl_message.h - what cddp-ctl asks a cddp-run, and what that answers. A connection carries one
 * request and one answer, each as one message (store/message.h) in one packet. */
#ifndef CDDPI_LAUNCHER_CTL_MESSAGE_H
#define CDDPI_LAUNCHER_CTL_MESSAGE_H

#include "launcher/hosts/host_list.h"
#include "store/message.h"

enum cddpi_ctl_command {
    CDDPI_CTL_STATUS,
    CDDPI_CTL_CHECKPOINT, /* answered once a checkpoint is written */
    CDDPI_CTL_STOP,       /* answered at the job's end, as are the next ones once it is done */
    CDDPI_CTL_ADD,        /* `number` ranks on this machine */
    CDDPI_CTL_REMOVE_RANK,
    CDDPI_CTL_REMOVE_NODE, /* the node `number`, or (-1) the one on the host `host` */
    CDDPI_CTL_COMMANDS
};

struct cddpi_ctl_request {
    enum cddpi_ctl_command command;
    int number;
    char host[CDDPI_HOST_BYTES];
};

extern const struct cddpi_message_form cddpi_ctl_request_form;

enum cddpi_ctl_state {
    CDDPI_CTL_RUNS,  /* its ranks run, or are being started */
    CDDPI_CTL_ENDED, /* its ranks of this generation have ended */
    CDDPI_CTL_LEAVES,
    CDDPI_CTL_SPARE, /* it waits until another node leaves */
    CDDPI_CTL_LOST,
    CDDPI_CTL_GONE,
    CDDPI_CTL_STATES
};

/* A node. */
struct cddpi_ctl_row {
    int node;
    int ranks, first_rank; /* of this generation */
    int nproc;             /* ranks of the next one */
    enum cddpi_ctl_state state;
    char host[64];
};

/* A rank that is slower than the others, and has been for long enough. */
struct cddpi_ctl_straggler {
    int rank;
    int percent;         /* its own time for a step, of the median's */
    int64_t seconds;     /* for which it has been slow; -1: unknown */
    bool waits_for_data; /* that makes it slow, rather than what it computes */
};

/* A GPU that is left out, since it is ill. */
struct cddpi_ctl_card {
    int node;
    int rank; /* that has used it */
    char text[512];
};

enum {
    CDDPI_CTL_CARDS = 16,
    CDDPI_CTL_STRAGGLERS = 16, /* of which an answer tells, at most */
    CDDPI_CTL_ROWS = 1024,
    CDDPI_CTL_TEXT_BYTES = 1024,
    CDDPI_CTL_REQUEST_BYTES = 512,      /* of a request's message, at most */
    CDDPI_CTL_ANSWER_BYTES = 192 * 1024 /* less than what a socket takes at once */
};

struct cddpi_ctl_answer {
    bool is_done;                    /* the request was carried out */
    bool is_over;                    /* the job has ended, with `exit_status` */
    int exit_status;                 /* of cddp-run */
    char text[CDDPI_CTL_TEXT_BYTES]; /* what was done, or why it was not, as a sentence without its
                                        full stop; "": nothing to say */
    /* The job's status. */
    char job[40];
    char reason[CDDPI_CTL_TEXT_BYTES]; /* why this generation began */
    char ending[CDDPI_CTL_TEXT_BYTES]; /* why it is to end; "": it is not */
    int generation;                    /* -1: none has begun */
    int64_t seconds;                   /* since it began; -1: unknown */
    int64_t pid;                       /* of cddp-run's supervising process */
    int world_size, nodes;
    int restarts, max_restarts; /* -1: without limit */
    bool is_elastic, is_alone;
    bool trains;        /* the ranks are cddp-train */
    bool is_running;    /* ranks run */
    bool is_ending;     /* the job was asked to end, or has ended */
    int saves, unsaved; /* checkpoints that were asked for, and are written or could not be */
    int least, most;    /* nodes; of a job on one machine: ranks */
    int left_out;       /* nodes that are not listed */
    int count;
    struct cddpi_ctl_row rows[CDDPI_CTL_ROWS];
    int straggler_count;
    struct cddpi_ctl_straggler stragglers[CDDPI_CTL_STRAGGLERS];
    int card_count;
    struct cddpi_ctl_card cards[CDDPI_CTL_CARDS];
};

extern const struct cddpi_message_form cddpi_ctl_answer_form;

/* Where the cddp-run that serves the job's store writes answers for other machines: a printf()
 * format for the job's id and a name. */
#define CDDPI_CTL_KEY "%s/ctl/%s"
#define CDDPI_CTL_STATUS_NAME "status" /* now */
#define CDDPI_CTL_END_NAME "end"       /* once the job has ended */
enum { CDDPI_CTL_KEY_BYTES = 64 };

#endif
