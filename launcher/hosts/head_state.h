/* head_state.h - decides, in the cddp-run that starts a job on a list of hosts (the head), when
 * agents are started, started again and ended, for how long it waits for what, and how it exits.
 * This state machine does no I/O and reads no clock: each event returns a list of actions, and the
 * passing of time is also an event. head.c carries out the actions; tests/sim runs whole jobs of
 * it in a simulated world. One thread uses it. */
#ifndef CDDPI_LAUNCHER_HEAD_STATE_H
#define CDDPI_LAUNCHER_HEAD_STATE_H

#include "launcher/nodes/membership.h"

#define CDDPI_HEAD_NEVER INT64_MAX

/* One host and its agent: the cddp-run there, or the ssh process that runs it. */
struct cddpi_head_host {
    int node;        /* the agent's number in the job */
    int exit_status; /* of the agent (128 + N after signal N) */
    bool is_started;
    bool has_ended;
    bool is_closed; /* its input is, which tells it to end */
    /* Of an elastic job (head_agents.c). */
    bool has_come; /* this node has: the job knows it */
    bool is_over;  /* nothing is started on this host any more */
    bool is_held; /* what it writes to stderr is held back: it may be what it wrote the last time */
    int fails;    /* starts in a row that came to nothing, or ended soon */
    int last_status;  /* of the last of these */
    int64_t since_ns; /* when it was started or, once it has come, when it came */
    int64_t ranks_ns; /* when this node was first given ranks; 0: never */
    int64_t lost_ns;  /* when this node was lost or, if it was lost because its generation failed,
                         when that failed; 0: it is not lost */
    int64_t due_ns;   /* when it is started again, or the next step in ending it is due */
    int end_steps;    /* taken */
};

enum cddpi_head_event_kind {
    CDDPI_HEAD_BEGINS,    /* the agents are about to be started */
    CDDPI_HEAD_STARTED,   /* the agent of `host` has been */
    CDDPI_HEAD_UNSTARTED, /* it could not be, and the user knows why */
    CDDPI_HEAD_CAME,      /* elastic: its node has written its record, and fits to the others */
    CDDPI_HEAD_LOOKED,    /* CDDPI_HEAD_LOOK is carried out: `number` hosts have not come;
                             `is_first_there`: node 0 has */
    CDDPI_HEAD_MET,       /* CDDPI_HEAD_BEGIN is carried out */
    CDDPI_HEAD_REFUSES,   /* the job cannot begin, and the user knows why: it ends with `number` */
    CDDPI_HEAD_HEARD,     /* `heard`: the next event of the job's log, or CUT */
    CDDPI_HEAD_ENDED,     /* the agent of `host` has ended, with exit status `number` */
    CDDPI_HEAD_SIGNALLED, /* signal `number` was sent to this cddp-run */
    CDDPI_HEAD_TIME       /* time has passed; follows all that happened meanwhile */
};

struct cddpi_head_event {
    enum cddpi_head_event_kind kind;
    int64_t now_ns;
    int host; /* its place in the list */
    int number;
    bool is_first_there;
    const struct cddpi_node_event *heard;
};

enum cddpi_head_action_kind {
    CDDPI_HEAD_START,   /* start the agent of `host` again, as host.node; STARTED or UNSTARTED
                           follows */
    CDDPI_HEAD_CLOSE,   /* close its input, which tells it to end */
    CDDPI_HEAD_KILL,    /* kill what leads to it, such as ssh */
    CDDPI_HEAD_RELEASE, /* pass on what it has written to stderr; `number`: it has failed, so unless
                           it wrote the same the last time */
    CDDPI_HEAD_FORM,    /* show what it writes to stderr (`number`) at once, or line by line */
    CDDPI_HEAD_LOOK,    /* look which hosts have come; LOOKED follows */
    CDDPI_HEAD_BEGIN,   /* elastic: answer the nodes that have come, and follow their log; MET or
                           REFUSES follows */
    CDDPI_HEAD_FORGET,  /* forget keys of generations before `number` */
    CDDPI_HEAD_PUBLISH_BYE,    /* the agent of `host` has ended */
    CDDPI_HEAD_PUBLISH_LOST,   /* its node is lost, as the agent has ended */
    CDDPI_HEAD_PUBLISH_LATE,   /* node `number` is lost: its ranks did not end in time */
    CDDPI_HEAD_PUBLISH_STRAY,  /* node `number` is lost: what led to it had ended before it came */
    CDDPI_HEAD_PUBLISH_SIGNAL, /* signal `number` */
    CDDPI_HEAD_SAY,            /* tell the user `text` */
    /* Tell the user ... */
    CDDPI_HEAD_SAY_CLOSING,      /* the agent of `host` has not ended */
    CDDPI_HEAD_SAY_KILLING,      /* it has still not ended */
    CDDPI_HEAD_SAY_UNSTARTED,    /* it has ended without starting cddp-run there */
    CDDPI_HEAD_SAY_LATE_END,     /* it has failed after the job's end */
    CDDPI_HEAD_SAY_LOST_EARLY,   /* it has ended before the nodes have met */
    CDDPI_HEAD_SAY_AGAIN,        /* it is started again, as host.node */
    CDDPI_HEAD_SAY_TOO_OFTEN,    /* it was started so often that it is not started again */
    CDDPI_HEAD_SAY_NOT_COME,     /* it has not come in time */
    CDDPI_HEAD_SAY_LOST,         /* node `number` is lost: `text` */
    CDDPI_HEAD_SAY_CAME,         /* node `number` has come */
    CDDPI_HEAD_SAY_LEAVES,       /* node `number` leaves */
    CDDPI_HEAD_SAY_EARLY_SIGNAL, /* signal `number` came before all hosts */
    CDDPI_HEAD_SAY_STOPPING,     /* signal `number` stops all ranks */
    CDDPI_HEAD_SAY_ENDING,    /* after a failure, the other ranks on `number` hosts are stopped */
    CDDPI_HEAD_SAY_CUT,       /* this cddp-run has lost the job's store: `text` */
    CDDPI_HEAD_SAY_MISSING,   /* who has not come yet */
    CDDPI_HEAD_SAY_TOO_LATE,  /* who has not come in time, so that the job ends */
    CDDPI_HEAD_SAY_BEGINS,    /* elastic: the job begins on `number` hosts, without the others */
    CDDPI_HEAD_SAY_TOO_FEW,   /* elastic: only `number` hosts have come in time */
    CDDPI_HEAD_SAY_NONE_LEFT, /* elastic: no host is left, and one may come back */
    CDDPI_HEAD_SAY_ALL_LEFT,  /* elastic: all hosts have left, and the job ends */
    CDDPI_HEAD_SAY_NONE_BACK  /* elastic: none came back in time, and the job ends */
};

struct cddpi_head_action {
    enum cddpi_head_action_kind kind;
    int host; /* -1: none */
    int number;
    const char *text; /* borrowed, until the next event */
};

struct cddpi_head_state {
    /* Set by the caller. */
    struct cddpi_head_host *hosts; /* borrowed */
    int count;
    struct cddpi_membership *members;                /* that follow the log; borrowed; its self is
                                                        -1, and a fixed job's list is complete */
    struct cddpi_membership_actions *member_actions; /* borrowed room */
    struct cddpi_head_action *actions;               /* of the current event; borrowed room for */
    int action_room;                                 /* cddpi_head_action_room() */
    bool is_elastic; /* the job goes on without hosts (--nnodes MIN:MAX) */
    int least, most; /* hosts of a generation of an elastic job */
    int64_t grace_ms;
    int64_t settle_ns; /* elastic, with enough nodes: how long to wait for each further one */
    uint32_t timeout_ms;

    /* Read by the caller. */
    int action_count;
    int alive;        /* agents */
    int unexplained;  /* agents that have ended and whose last events have not arrived yet */
    bool is_over;     /* there is nothing left to wait for */
    int exit_status;  /* of the first agent that ended with a failure */
    int asked_signal; /* the first signal that asked the job to end; 0: none */
    int steps;        /* steps taken to end the remaining agents */
    bool has_met;     /* elastic: the nodes have; before that, there is no log */
    int64_t due_ns;   /* when CDDPI_HEAD_TIME is due */

    /* Private. Points in time; CDDPI_HEAD_NEVER. */
    int64_t begin_ns;    /* by when all hosts must have arrived */
    int64_t news_ns;     /* when to name the hosts that are missing */
    int64_t patience_ns; /* by when ranks that were asked to end must have ended: patience_ms after
                            the last sign that one is still saving */
    int64_t patience_ms;
    int64_t deadline_ns;    /* when the remaining agents are ended, whatever they do */
    bool has_waited_longer; /* waiting past begin_ns: node 0 has arrived and will say why hosts are
                               missing */
    bool is_hurried;        /* a second signal has arrived */
    int64_t asked_ns;
    bool has_given_up; /* on all that is left */
    int next_node;     /* number of the next agent that is started */
    int64_t waited_ns; /* due_ns, when this process began to wait */
    /* Of an elastic job. */
    bool has_any_come;
    int64_t awake_ns;  /* this process stood still: by then it has heard what happened meanwhile,
                          and no moment that has passed counts before */
    int64_t failed_ns; /* when this generation failed; 0: it has not */
    int64_t look_ns;   /* when to look for records */
    int64_t came_ns;   /* when the last node came */
    int64_t empty_ns;  /* how long others may take to come, since no host is left */
};

/** How many actions one event may have in a job on @p hosts hosts. */
static inline int cddpi_head_action_room(int hosts)
{
    return 8 * hosts + 32;
}

/** Process @p event. state->actions are to be carried out, in their order. */
void cddpi_head_state_step(struct cddpi_head_state *state, const struct cddpi_head_event *event);

/** The host whose agent is node @p node; -1: none. */
int cddpi_head_find_agent(const struct cddpi_head_state *state, int node);
/** Whether the node of host @p i has come, and its agent has not ended. */
bool cddpi_head_is_there(const struct cddpi_head_state *state, int i);
/** How many hosts have ranks that run; of a fixed job, all hosts. */
int cddpi_head_count_running(const struct cddpi_head_state *state);
/** The head's exit status. All agents have ended, or have been given up. */
int cddpi_head_exit_status(const struct cddpi_head_state *state);
/** The failure that is named at the end; NULL: none is. */
const struct cddpi_node_event *cddpi_head_first_failure(const struct cddpi_head_state *state);

#endif
