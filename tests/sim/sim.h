/* sim.h - whole jobs of cddp-run's control plane in a simulated world. One number is one history:
 * the same number gives the same history, byte for byte. Nothing here reads a clock, and a history
 * has no threads.
 *
 * Real are the state machines: membership*.c, job_state.c, job_input.c, restarts.c and silence.c.
 * Simulated are hosts, processes, connections, the store, ranks and the disk. */
#ifndef CDDPI_TESTS_SIM_H
#define CDDPI_TESTS_SIM_H

#include "launcher/nodes/link_state.h"
#include "launcher/nodes/membership.h"
#include "launcher/supervise/job_state.h"

#include "store/store_table.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    SIM_HOSTS = 8,
    SIM_NODES = 24, /* cddp-run processes of one history */
    SIM_LOCAL = 3,  /* most ranks of a node */
    SIM_WORLD = 24, /* most ranks of a generation */
    SIM_GENERATIONS = 48,
    SIM_EVENTS = 1024,  /* of the job's log and on their way to it */
    SIM_MESSAGES = 512, /* under way */
    SIM_DISTURBANCES = 12,
    SIM_STORE_HOST = SIM_HOSTS, /* of a store that no node serves */
    SIM_WATCHER = SIM_NODES     /* the process that serves it */
};

#define SIM_STORE "tcp://store:29500"

#define SIM_MS INT64_C(1000000)
#define SIM_S INT64_C(1000000000)
#define SIM_NEVER INT64_MAX

/* What happens next, and where. `a` is a host, node, rank or generation. */
enum sim_kind {
    SIM_DISTURB,     /* disturbance a */
    SIM_COME,        /* host a: a cddp-run with b ranks is started */
    SIM_NODE_TIME,   /* node a: timer c */
    SIM_NODE_HEAR,   /* node a: event b of the log (c), or what its link says */
    SIM_NODE_RANKS,  /* node a: start the ranks of generation b */
    SIM_NODE_EXIT,   /* node a ends, if its link is still closing */
    SIM_REQUEST,     /* message a arrives at the store */
    SIM_ANSWER,      /* message a arrives at its node */
    SIM_WAITED,      /* the store: message a, request c, has waited for long enough */
    SIM_OVERDUE,     /* node a, side b: request c is not answered, or it has waited */
    SIM_RESET,       /* node a, side b: connection c is broken */
    SIM_TELL,        /* node a: an event is queued */
    SIM_GONE,        /* the store: the connection of node a has closed */
    SIM_RANK_RUNS,   /* rank a has executed its program */
    SIM_RANK_JOINS,  /* rank a: it meets the others */
    SIM_RANK_LATE,   /* rank a: the others have not come */
    SIM_RANK_TERM,   /* rank a: SIGTERM */
    SIM_RANK_KILL,   /* rank a: SIGKILL */
    SIM_RANK_FAILS,  /* rank a: its group is broken, by rank b */
    SIM_RANK_EXITS,  /* rank a exits with status b */
    SIM_RANK_REAPED, /* the node of rank a sees its end */
    SIM_TOLD,        /* the ranks' store: a failure of generation a is told */
    SIM_STEP,        /* generation a: a step may be complete */
    SIM_SAVING,      /* generation a: rank 0 is still saving */
    SIM_SAVED,       /* generation a: save c is written */
    SIM_HEAD_TIME,   /* the head: timer c */
    SIM_AGENT_RUNS,  /* host a, start c: what leads there starts cddp-run */
    SIM_AGENT_ENDED, /* host a, start c: it has ended with status b, which the head sees */
    SIM_HOST_BACK,   /* host a has power again */
    SIM_MEET,        /* node a looks whether the nodes have met */
    SIM_INPUT_ENDS   /* node a: its standard input ends */
};

struct sim_event {
    int64_t at_ns;
    uint32_t order; /* of events at the same time */
    enum sim_kind kind;
    int a, b;
    int64_t c;
};

struct sim_host {
    bool is_off;
    int64_t frozen_until_ns;
    int64_t answers_until_ns; /* it is frozen, but its kernel answers */
    int64_t unable_until_ns;  /* no rank can be started */
    int64_t offset_ns;        /* of its clock */
    int drift_ppm;
    int64_t slept_ns; /* that its clock does not count */
};

/* --- connections and the store (network.c, link.c) --- */

#define SIM_JOB "job"
#define SIM_RANKS "ranks/" /* a failure of this generation is told to its ranks */

/* A request to the store, or its answer. */
struct sim_message {
    bool is_used;
    int node;
    enum cddpi_link_side side;
    enum cddpi_link_request_kind request;
    int connection;
    int64_t number; /* of the request */
    char key[CDDP_STORE_KEY_BYTES + 1];
    struct cddpi_table_value *value;
    uint32_t wait_ms;
    struct cddpi_waiter waiter;
    cddp_status status;
    bool is_set;
};

/* One side of a node's link: its connection, and its request. */
struct sim_side {
    int connection;        /* counts them: an answer over an earlier one is dropped */
    int64_t request;       /* that is not answered; 0: none */
    bool waits;            /* it has nothing to ask; `request` is then the number of its wait */
    int64_t arrives_ns[2]; /* when the last message arrives there, and here */
};

struct sim_link {
    struct cddpi_link_state state;
    struct sim_side sides[2];
    struct cddpi_node_event own; /* what the link itself says: CUT, or LOST of node 0 */
};

/* --- nodes (node.c) --- */

struct sim_node {
    bool is_alive; /* the process */
    bool is_over;  /* its members' machine has finished, and it is ending */
    bool has_crashed;
    int host;
    int number; /* in the job */
    struct cddpi_membership members;
    struct cddpi_job_member list[SIM_NODES];
    struct cddpi_job_state job;
    struct cddpi_job_rank ranks[SIM_LOCAL];
    int rank_ids[SIM_LOCAL];
    bool runs; /* its ranks are started, and its job state machine is in use */
    struct sim_link link;
    int64_t busy_until_ns;
    int64_t asked_ns, ended_ns; /* when it was asked to leave, and its ranks have ended */
    int64_t timer;              /* the timer that counts */
    int64_t timer_ns;
    int heard;            /* events of the log */
    bool is_apart;        /* it has heard something from its own link that is not in the log */
    int lost_at, left_at; /* places of its LOST and BYE in the log; -1: there is none */
    bool has_joined;      /* JOIN is in the log */
    int done_generation;  /* its last DONE in the log was of this one, plus 1 */
    uint64_t took_part;   /* in these generations, one bit each */
    int checked_ranks;    /* the configuration allows so many */
    int exit_status;
    int pending; /* exit status of a CDDPI_DO_START that failed; 0: none */
    int orphaned;
    bool is_first, has_begun; /* it was there when the nodes met; it takes part, or comes to */
    /* Of a job that a head has started (meet.c). */
    bool meets, has_record; /* it waits for the others, and its record is in the store */
    int nproc;
    int64_t meet_until_ns;
};

/* --- ranks (rank.c, group.c) --- */

struct sim_rank {
    bool is_alive;
    bool runs; /* its program is executed */
    bool has_joined;
    bool is_deaf;  /* ignores SIGTERM */
    bool is_stuck; /* computes no more */
    int node, host;
    int generation, rank;
    int exit_status;
};

struct sim_group {
    int world;
    int ids[SIM_WORLD]; /* of ranks; -1: not started */
    int joined;
    bool is_formed, is_broken, is_told;
    bool has_stuck;       /* one of its ranks hangs */
    bool is_asked;        /* a rank was asked to end: all save after this step */
    bool is_finished;     /* the ranks exit by themselves */
    bool is_harmed;       /* something other than a polite request has happened to it */
    bool has_ended_early; /* all ranks saved and exit with 3 */
    int first_step, step;
    int save; /* counts; the one that is being written */
    bool is_saving, is_last_save;
    int64_t save_began_ns;
    int64_t stalled_ns; /* since when no step could be completed; 0: it is not stalled */
};

struct sim_disk {
    int step; /* of the newest checkpoint */
    int generation;
    int64_t slow_until_ns, full_until_ns;
};

/* --- what is done to a job (disturb.c) --- */

enum sim_harm {
    SIM_KILL_RANK,
    SIM_STUCK_RANK,
    SIM_DEAF_RANK,
    SIM_TERM_RANK,
    SIM_CRASH_NODE,
    SIM_POWER_OFF,
    SIM_FREEZE,
    SIM_CUT_LINK,
    SIM_CUT_ONE_WAY,
    SIM_BREAK_CONNECTION,
    SIM_TERM_NODE,
    SIM_USR1_NODE,
    SIM_TERM_JOB,
    SIM_NEW_NODE,
    SIM_SLOW_DISK,
    SIM_FULL_DISK,
    SIM_ORPHAN,
    SIM_NO_START,
    SIM_NODE_HARMS, /* of nodes and ranks; the others concern a job that a head has started */
    SIM_AGENT_FAILS = SIM_NODE_HARMS,
    SIM_AGENT_HANGS,
    SIM_STOP,
    SIM_KILL_HEAD,
    SIM_HEAD_OFF,
    SIM_FREEZE_HEAD,
    SIM_TERM_HEAD,
    SIM_HARMS
};

struct sim_disturbance {
    enum sim_harm harm;
    int64_t at_ns, lasts_ns;
    int target;
    bool comes_back; /* a cddp-run that ended is started again */
};

struct sim_plan {
    bool is_alone, is_elastic;
    bool has_store; /* the store is in a process of its own */
    bool has_head;  /* one cddp-run starts all others (sim_head.h), and serves the store */
    int hosts;      /* at the beginning */
    int least, most;
    int nproc[SIM_HOSTS];
    int max_restarts;
    int steps, save_every;
    int64_t step_ns, save_ns;
    uint32_t limit_ms;
    int64_t grace_ms, gather_ms, group_ms;
    int refuses; /* CDDPI_DO_START of this generation fails; -1: none */
    int count;
    struct sim_disturbance list[SIM_DISTURBANCES];
};

/* What really happened first to a generation, for the rule that the cause is named. */
struct sim_cause {
    int count;
    enum sim_harm harm;
    int node, rank, exit_status;
};

/* How the store is chosen. */
enum sim_kind_of_job { SIM_ANY_JOB, SIM_WITH_STORE, SIM_WITH_HEAD };

/* --- the world --- */

struct sim {
    uint64_t seed, state; /* of random numbers */
    bool tells;
    int plant; /* index of the planted fault; -1: none */
    int64_t now_ns;
    uint32_t order;
    int heap_count;
    struct sim_event heap[4096];
    int64_t handled;

    struct sim_plan plan;
    int64_t quiet_ns; /* from then on nothing is disturbed */
    struct sim_host hosts[SIM_HOSTS + 1];
    int64_t blocked_until_ns[SIM_HOSTS + 1][SIM_HOSTS + 1];

    int event_count;
    int log_count;
    uint64_t views[SIM_EVENTS]; /* digest of what nodes know after an event of the log */
    struct sim_message messages[SIM_MESSAGES];
    int message_hint;
    int64_t requests;
    struct cddpi_table *table; /* of the store */

    struct {
        int number, host;
    } met[SIM_HOSTS]; /* the first nodes */
    int met_count;
    struct sim_node nodes[SIM_NODES + 1];
    int node_count;
    struct sim_rank ranks[SIM_GENERATIONS * SIM_WORLD];
    int rank_count;
    struct sim_group groups[SIM_GENERATIONS];
    int last_formed; /* generation; -1: none */
    struct sim_disk disk;
    struct sim_cause cause;
    bool is_foggy;   /* something has happened that has no single cause */
    bool was_harmed; /* something other than a polite request has happened */
    bool may_end;    /* something has happened that may end any job */
    bool was_asked;  /* a signal has asked a node, a rank or the job to end */
    int64_t harmed_until_ns;
    int starts_at[SIM_GENERATIONS]; /* place of START in the log */
    int64_t kept_since_ns;          /* since when a node waits for which there is room */
    uint64_t saved;                 /* DONE says that these generations have, one bit each */
    bool is_ended;                  /* END is in the log */
    int ended_at;                   /* place of END in the log */
    int end_status;
    int planted;                                /* how often the planted fault has acted */
    char broken[512];                           /* the rule that this history breaks; "": none */
    struct cddpi_node_event events[SIM_EVENTS]; /* last, since these are not zeroed */
};

extern struct sim sim;

/* world.c */
void sim_at(int64_t at_ns, enum sim_kind kind, int a, int b, int64_t c);
void sim_in(int64_t delay_ns, enum sim_kind kind, int a, int b, int64_t c);
uint64_t sim_random(void);
/** In [least, most]. */
int64_t sim_between(int64_t least, int64_t most);
bool sim_chance(int percent);
/** The time on @p host's clock, which neither starts at 0 nor runs exactly. */
int64_t sim_clock(int host);
/** The virtual time at which @p host's clock shows @p clock_ns. */
int64_t sim_when(int host, int64_t clock_ns);
bool sim_is_frozen(int host);
/** One history, of @p plan or (NULL) of one that is drawn. Returns whether all rules hold; else
 * sim.broken says which does not. */
bool sim_run(uint64_t seed, const struct sim_plan *plan, int plant, enum sim_kind_of_job kind,
             bool tells);

/* disturb.c: what kind of job this is, and what happens to it */
void sim_draw_plan(void);
/** Draw the hosts' clocks, and schedule what happens. */
void sim_begin_plan(void);
void sim_disturb(const struct sim_disturbance *disturbance);
/** From now on, generations are harmed by @p disturbance. */
void sim_note_harm(const struct sim_disturbance *disturbance);
const char *sim_harm_name(enum sim_harm harm);

/* network.c */
/** When what is sent now arrives; SIM_NEVER. */
int64_t sim_arrival(int from, int to);
bool sim_can_reach(int from, int to);
void sim_send(struct sim_message *message);
struct sim_message *sim_message_create(void);
void sim_message_release(struct sim_message *message);
/** The store, which the process of node 0 serves. */
void sim_store_take(struct sim_message *message);
void sim_store_waited(struct sim_message *message, int64_t request);
void sim_store_gone(const struct sim_node *node);
/** The process of node 0 has ended, or (@p is_silent) its host. */
void sim_store_end(bool is_silent);
void sim_store_fini(void);

/* outside.c */
/** Where the store is served, and whether it still is. */
int sim_store_host(void);
bool sim_store_is_served(void);
/** The node that leads at the end of the log. */
struct sim_node *sim_leader(void);
/** If the store is outside: start the process that serves it. */
void sim_outside_begin(void);
/** @p event is in the log. Returns whether it counts: a decision of a node that does not lead does
 *  not. */
bool sim_outside_counts(const struct cddpi_node_event *event);

/* link.c */
void sim_link_open(struct sim_node *node);
void sim_link_publish(struct sim_node *node, const struct cddpi_node_event *event);
/** Tell the ranks that wait for others of their generation that these will not come. */
void sim_link_tell_ranks(struct sim_node *node, int generation);
/** Tell what is queued, for at most 3 s, and then let the process end. */
void sim_link_close(struct sim_node *node);
void sim_link_answered(struct sim_node *node, const struct sim_message *message);
void sim_link_overdue(struct sim_node *node, enum cddpi_link_side side, int64_t request);
void sim_link_reset(struct sim_node *node, enum cddpi_link_side side, int connection);
void sim_link_tell(struct sim_node *node);
void sim_link_fini(struct sim_node *node);

/* node.c */
void sim_node_come(int host, int nproc, bool is_first);
void sim_node_begin(struct sim_node *node);
/** The nodes that a head has started have met; @p node is one of them, or comes late. */
void sim_node_meets(struct sim_node *node);
void sim_node_hear(struct sim_node *node, const struct cddpi_node_event *event, bool is_in_log);
void sim_node_time(struct sim_node *node);
void sim_node_signal(struct sim_node *node, int number);
void sim_node_orphan(struct sim_node *node);
void sim_node_ranks_leave(struct sim_node *node, int rank);
/** What follows from what has happened: ranks that have ended, the next timer. */
void sim_node_settle(struct sim_node *node);
/** The process is gone: killed, or since it has finished. */
void sim_node_gone(struct sim_node *node, bool is_silent);
int64_t sim_slept_ms(const struct sim_node *node);

/* supervise.c: a node's ranks */
void sim_node_start_ranks(struct sim_node *node, int generation);
/** Whether a job goes on without @p node, on which nothing can be started. */
bool sim_could_others(const struct sim_node *node);
void sim_node_feed_job(struct sim_node *node, const struct cddpi_job_event *event);
/** The members' machine tells the ranks' machine. */
void sim_node_tell_job(struct sim_node *node, const struct cddpi_job_event *job);
/** Something happened to a rank of this node. */
void sim_node_job(struct sim_node *node, const struct cddpi_job_event *event);

/* rank.c */
int sim_rank_start(struct sim_node *node, int rank);
void sim_rank_signal(int id, int number);
void sim_rank_event(const struct sim_event *event);
void sim_rank_dies(int id, int exit_status, bool is_silent);

/* group.c */
void sim_group_joined(int generation);
void sim_group_lost(int generation, int rank, bool is_silent);
void sim_group_fail(int generation, int culprit, bool is_silent);
void sim_group_told(int generation);
void sim_group_step(int generation);
void sim_group_saving(int generation);
void sim_group_saved(int generation, int save);

/* rules.c: what must hold */
void sim_break(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_rule_appended(const struct cddpi_node_event *event);
void sim_rule_view(const struct sim_node *node);
/** @p members, of @p who, know what all others know after @p heard events. */
void sim_rule_members_view(const struct cddpi_membership *members, int heard, const char *who);
void sim_rule_fork(const struct sim_node *node, int generation, int rank);
void sim_rule_formed(int generation);
void sim_rule_progress(int generation, const char *what);
void sim_rule_checkpoint(int generation, int step);
void sim_rule_exit(const struct sim_node *node);
/** A machine that waits has a deadline. */
void sim_rule_waits(const struct sim_node *node);
/** The job does not take too long. */
void sim_rule_time(void);
void sim_rule_finally(void);
void sim_cause_is(enum sim_harm harm, int node, int rank, int exit_status);

/* plants.c: faults that are planted to see that the rules find them */
enum sim_plant {
    SIM_PLANT_FORGET_LOST,
    SIM_PLANT_LOSE_EVENT,
    SIM_PLANT_SWAP_EVENTS,
    SIM_PLANT_START_EARLY,
    SIM_PLANT_STALE_DONE,
    SIM_PLANT_NO_DEADLINE,
    SIM_PLANT_NO_KILL,
    SIM_PLANT_WRONG_STATUS,
    SIM_PLANT_HIDE_FAILURE,
    SIM_PLANT_LEAVE_RANKS,
    SIM_PLANT_HASTY_CHANGE,
    SIM_PLANT_NO_WATCH,
    SIM_PLANT_LATE_WRITE,
    SIM_PLANT_BLAME_OTHER,
    SIM_PLANT_HIDE_UNABLE,
    SIM_PLANT_EVER_NEW,
    SIM_NODE_PLANTS, /* faults of nodes; the others are the head's */
    SIM_PLANT_HEAD_DEAF = SIM_NODE_PLANTS,
    SIM_PLANT_HEAD_UNEXPLAINED,
    SIM_PLANT_HEAD_HIDE_END,
    SIM_PLANT_HEAD_NO_END,
    SIM_PLANT_HEAD_NO_TIME,
    SIM_PLANT_HEAD_HASTY,
    SIM_PLANT_HEAD_STATUS,
    SIM_PLANT_HEAD_EARLY,
    SIM_PLANTS
};
/** Whether @p plant is planted in this history. */
bool sim_planted(enum sim_plant plant);
const char *sim_plant_name(int plant);
const char *sim_plant_sentence(int plant);
int sim_plant_find(const char *name);

/* kept.c: histories that have found something */
struct sim_kept {
    const char *name, *found;
    struct sim_plan plan;
};
extern const struct sim_kept sim_kept[];
extern const int sim_kept_count;

/* story.c */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *sim_event_words(const struct cddpi_node_event *event);
const char *sim_node_name(const struct sim_node *node);

#endif
