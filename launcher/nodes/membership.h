/* membership.h - decides, on one node, who takes part in a job, and when its generations begin and
 * end. This state machine does no I/O and reads no clock: each event returns a list of actions, and
 * the passing of time is also an event. generations.c carries out the actions; tests/sim runs whole
 * jobs of these machines in a simulated world.
 *
 * All nodes of a job receive the same events in the same order (the job's log, node_link.h), so
 * they know the same. One node leads: it decides, by publishing events; the others follow. That is
 * node 0 or, if the job's store is in a process of its own, the first that is left
 * (membership_leads.c). A job on one machine has one node, whose log is a queue in the same
 * process. One thread uses it. */
#ifndef CDDPI_LAUNCHER_MEMBERSHIP_H
#define CDDPI_LAUNCHER_MEMBERSHIP_H

#include "launcher/hosts/host_list.h"
#include "launcher/nodes/node_event.h"
#include "launcher/supervise/job_state.h"
#include "launcher/supervise/restarts.h"

enum {
    CDDPI_LEADER = 0,         /* the node that decides, unless there is an outside store */
    CDDPI_REFUSED_CONFIG = 2, /* cddp-train's exit status when it refuses its configuration */
    CDDPI_TOO_FEW = 4,        /* cddp-run's exit status when too few nodes are left */
    CDDPI_GATHER_MS = 300000  /* default of gather_ms */
};

/* One cddp-run that has come. Its number belongs to this process: a cddp-run that comes again, also
 * on the same host, gets another number. So nothing that a lost node says is taken for its
 * successor's. */
struct cddpi_job_member {
    char host[CDDPI_HOST_BYTES];
    int node;       /* its number */
    int nproc;      /* ranks that it starts in the next generation */
    int ranks;      /* ranks that it has in this generation; 0: it takes no part */
    int first_rank; /* of this generation */
    bool is_there;  /* it has come, and is neither lost nor gone */
    bool is_lost;
    bool is_new;    /* it came after the job had begun, and no generation with it has done anything:
                       START says that, so all nodes know */
    bool is_held;   /* node 0: the configuration does not allow its ranks, so it waits for others to
                       go */
    bool is_out;    /* node 0: the others go on without it, and its LOST is on its way */
    bool is_unable; /* its ranks of this generation could not be started */
    bool is_leaving; /* it has asked to leave: the next generation is without it */
    bool is_done;    /* its ranks of this generation have ended */
    bool has_left;   /* it has received END */
};

enum cddpi_membership_phase {
    CDDPI_MEMBERS_AWAIT =
        1,               /* this node waits for the START of a generation that it takes part in */
    CDDPI_MEMBERS_RUN,   /* its ranks run */
    CDDPI_MEMBERS_ENDED, /* its ranks have ended, and it waits for the other nodes' */
    CDDPI_MEMBERS_LEAVE, /* node 0, which serves the store: END is published, and other nodes have
                            not received it yet */
    CDDPI_MEMBERS_OVER
};

/* What the node that leads does between two generations. */
enum cddpi_leader_phase {
    CDDPI_LEADER_IDLE,    /* a generation runs, or the job is over */
    CDDPI_LEADER_PAUSES,  /* before a restart */
    CDDPI_LEADER_GATHERS, /* too few nodes are there: it waits for others */
    CDDPI_LEADER_STARTS,  /* CDDPI_DO_START is being carried out */
    CDDPI_LEADER_ENDS /* outside store: END, or its own LOST, is published and has not been heard
                         yet */
};

struct cddpi_membership {
    /* Set by the caller. */
    struct cddpi_job_member *list; /* by number; borrowed, with room for `room` */
    int count;                     /* of those that have ever come */
    int room;
    const char *outside_store; /* URL of a store that no node serves, so that any node may be lost;
                                  borrowed; NULL: node 0 serves the store, and leads */
    int self;        /* this node; -1: the cddp-run that started the nodes, which decides nothing */
    int least, most; /* nodes of a generation; equal: their number is fixed */
    int least_ranks, most_ranks; /* of a job on one machine; 0: the number is fixed */
    bool is_elastic;             /* the job goes on without a node that is lost or leaves */
    bool is_alone;     /* a job on one machine: there are no other nodes, and none can come */
    bool is_silent;    /* another cddp-run tells the user what happens on other nodes */
    int max_restarts;  /* after failures of ranks; -1: without limit */
    int64_t gather_ms; /* how long to wait for nodes while too few are there */

    /* Read by the caller. */
    enum cddpi_membership_phase phase;
    int generation;        /* that runs, or is the next to run; -1: none has run */
    int world_size, nodes; /* of this generation */
    char reason[256];      /* why this generation follows the one before; "": it is the first */
    int exit_status;       /* OVER: of this cddp-run */
    int64_t deadline_ns;   /* when CDDPI_MEMBERS_TIME is due; CDDPI_JOB_NEVER */
    /* Events of this generation, or of the job; kind NONE: they have not come. */
    struct cddpi_node_event failure; /* the first FAILURE, LOST or CUT */
    struct cddpi_node_event follow;  /* the first FOLLOW */
    struct cddpi_node_event start;   /* the last START */
    struct cddpi_node_event change;  /* CHANGE: the ranks save and end, since members change */
    struct cddpi_node_event end;
    int asked_signal;  /* a signal asked the job to end; 0: none */
    bool is_preempted; /* SIGUSR1 was sent to all ranks: if they save and end, the job ends */
    bool is_expelled; /* this node stood still, the others went on without it, and the user knows */
    bool is_cut;      /* no more events arrive: the store is gone */
    bool has_left;    /* this node left the job when it was asked to */

    /* Private. */
    bool leads;                          /* this node does, as far as it has heard the log */
    enum cddpi_leader_phase leader;      /* if it leads */
    struct cddpi_restarts restarts;      /* leader; the others know it from START */
    struct cddpi_generation_outcome own; /* of this node's ranks */
    struct cddpi_generation_outcome all; /* leader: of the generation that has ended everywhere */
    int other_status;                    /* the first nonzero status of a DONE */
    int stuck_node;                      /* whose ranks cannot start again; -1: none */
    bool has_saved;                      /* in this generation ... */
    bool has_checkpoint;                 /* ... or in one before */
    bool has_kept;                       /* in this generation: progress is in memory */
    bool was_useful;                     /* leader: the generation that has ended did something */
    int made;                            /* restarts after failures */
    bool is_restart;                     /* node 0: the next generation is such a restart */
    int refusals; /* leader: how often the next generation could not be started */
    bool has_asked_leave;
    int64_t asked_leave_ns; /* when it has */
    int own_size;           /* what this node's last SIZE of this generation says; 0: none */
    bool has_asked_change;  /* leader: CHANGE of this generation is published */
    int leaving_rank;       /* the rank that was asked to leave, so that all ranks save; -1: none */
    int64_t start_ns;       /* when this generation began */
    int64_t joined_ns;      /* when the last node came */
    int64_t wait_ns;        /* end of the leader's pause or gathering, or of LEAVE */
};

enum cddpi_membership_event_kind {
    CDDPI_MEMBERS_BEGIN,       /* the nodes have met, and are in the list */
    CDDPI_MEMBERS_HEARD,       /* `heard`: the next event of the log; CUT and, unless the store is
                                  outside, LOST of node 0 come from this node's own link */
    CDDPI_MEMBERS_RANKS_ENDED, /* the ranks of this node have ended, with `outcome`; it can start
                                  `number` from now on (0: as many as before; -1: none) */
    CDDPI_MEMBERS_REFUSED, /* leader: CDDPI_DO_START failed; `number` is the exit status of the job,
                              and the user knows why */
    CDDPI_MEMBERS_SIGNALLED,   /* signal `number` was sent to this cddp-run */
    CDDPI_MEMBERS_RANK_LEAVES, /* rank `number` of this node was asked to end; all ranks save */
    CDDPI_MEMBERS_ASKED,       /* the user asks for `heard` (cddp-ctl), or a straggler is replaced,
                                  which is possible: publish it */
    CDDPI_MEMBERS_ORPHANED,    /* the process that started this cddp-run is gone */
    CDDPI_MEMBERS_TIME         /* the deadline may have passed */
};

struct cddpi_membership_event {
    enum cddpi_membership_event_kind kind;
    int64_t now_ns;
    const struct cddpi_node_event *heard;
    struct cddpi_generation_outcome outcome;
    int number;
    int64_t slept_ms; /* any event: this process stood still for so long that others may have given
                         it up; 0: it did not */
};

enum cddpi_membership_action_kind {
    CDDPI_DO_PUBLISH,   /* append `event` to the job's log */
    CDDPI_DO_START,     /* leader: check the configuration for `number` ranks, reserve a port, and
                           publish `event` with it; if that fails, CDDPI_MEMBERS_REFUSED follows */
    CDDPI_DO_RUN,       /* start the ranks of this node; CDDPI_MEMBERS_RANKS_ENDED follows */
    CDDPI_DO_TELL,      /* tell this node's ranks' state machine of `job` */
    CDDPI_DO_TELL_LOSS, /* tell ranks that wait for ranks of the lost node, through the store:
                           `text` */
    CDDPI_DO_SAY,       /* tell the user `text` */
    CDDPI_DO_FINISH     /* the phase is OVER */
};

struct cddpi_membership_action {
    enum cddpi_membership_action_kind kind;
    struct cddpi_node_event event;
    struct cddpi_job_event job;
    int number;
    char text[CDDPI_EVENT_TEXT_BYTES + CDDPI_HOST_BYTES + 128];
};

/* The actions that follow from one event, in this order. */
struct cddpi_membership_actions {
    int count;
    struct cddpi_membership_action list[8];
};

/** Process @p event. */
void cddpi_membership_step(struct cddpi_membership *members,
                           const struct cddpi_membership_event *event,
                           struct cddpi_membership_actions *out);

/** The ranks of this node run now: what has already happened in this generation concerns them,
 *  too. */
void cddpi_membership_catch_up(const struct cddpi_membership *members,
                               struct cddpi_membership_actions *out);

/** The member with number @p node; NULL: there is none. */
struct cddpi_job_member *cddpi_membership_find(const struct cddpi_membership *members, int node);

/** The member's name for messages, such as "node 1 (alpha)". Valid until the next call. */
const char *cddpi_member_name(const struct cddpi_membership *members, int node);

/** Whether other nodes may go on without this one if it stands still. A job that goes on without
 *  nodes does not go on without the one that serves its store. */
bool cddpi_membership_is_dispensable(const struct cddpi_membership *members);

/** Write what a node tells its user that stood still for @p slept_ms and was given up. */
void cddpi_membership_word_given_up(const struct cddpi_membership *members, int64_t slept_ms,
                                    char *out, size_t bytes);

/** This node's place among the nodes of the generation, from 0 on; -1: it takes no part. */
int cddpi_membership_index(const struct cddpi_membership *members);

/** Add a node that has come. Returns NULL if there is no room. */
struct cddpi_job_member *cddpi_membership_add(struct cddpi_membership *members, int node,
                                              const char *host, int nproc);

#endif
