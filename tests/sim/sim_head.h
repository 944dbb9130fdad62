/* sim_head.h - jobs that one cddp-run starts on a list of hosts (--hosts): this process, the head;
 * what leads from it to each host, such as ssh; and nodes until they have met. Real is the head's
 * state machine (launcher/hosts/head_state.h). */
#ifndef CDDPI_TESTS_SIM_HEAD_H
#define CDDPI_TESTS_SIM_HEAD_H

#include "tests/sim/sim.h"

#include "launcher/hosts/head_state.h"

enum { SIM_HEAD_ACTIONS = 8 * SIM_HOSTS + 32 };

/* What leads from the head to one host. */
struct sim_agent {
    bool is_alive;    /* the process of the head's machine */
    bool is_closed;   /* the head has closed its input */
    bool is_reported; /* the head knows that it has ended */
    int start;        /* counts starts: what belongs to an earlier one is dropped */
    int node;         /* that it has started; -1: none yet */
};

struct sim_head {
    bool is_alive;
    bool has_plan; /* the nodes have met: their plan is in the store */
    struct cddpi_head_state state;
    struct cddpi_head_host hosts[SIM_HOSTS];
    struct cddpi_head_action actions[SIM_HEAD_ACTIONS];
    struct cddpi_membership members;
    struct cddpi_job_member list[SIM_NODES];
    struct sim_agent agents[SIM_HOSTS];
    bool is_to_look, is_to_begin, is_to_start[SIM_HOSTS];
    int64_t fails_until_ns[SIM_HOSTS]; /* starts there end at once with a status */
    int64_t hangs_until_ns[SIM_HOSTS]; /* starts there do nothing */
    int heard;                         /* events of the log */
    bool is_apart;                     /* it does not follow the log any more */
    int64_t timer, timer_ns;
    int64_t gone_ns;        /* when it died; 0: it has not */
    int64_t unexplained_ns; /* since when an agent's end is not explained; 0: all are */
    int first_end;          /* exit status of the first agent that ended by itself; -1: none has */
    int exit_status;
};

extern struct sim_head sim_head;

/* agents.c */
/** The head begins, and starts its agents. */
void sim_head_begin(void);
/** An event of the simulator that is about the head or an agent. */
void sim_head_event(const struct sim_event *event);
/** What the head's link hears. */
void sim_head_hear(const struct cddpi_node_event *event, bool is_in_log);
/** A signal to the head. */
void sim_head_signal(int number);
/** The head is gone: it has ended, was killed or (@p is_silent) its machine has lost power. */
void sim_head_gone(bool is_silent);
/** What leads to @p host ends; the head sees @p exit_status. @p closes: cddp-run's input ends. */
void sim_agent_ends(int host, int exit_status, bool closes);
/** The process of @p node has ended, unless (@p is_silent) its host is off. */
void sim_agent_node_gone(const struct sim_node *node, bool is_silent, int exit_status);
/** @p host has power again. */
void sim_agent_host_back(int host);

/* story.c */
void sim_head_says(const struct cddpi_head_action *action);

/* disturb_head.c */
/** Make the drawn plan that of a job that a head starts. */
void sim_draw_head(void);
void sim_disturb_head(const struct sim_disturbance *next);

/* rules_head.c */
void sim_rule_agent(int host, enum cddpi_head_action_kind kind);
/** A rank of @p node is started. */
void sim_rule_one_node(const struct sim_node *node);
void sim_rule_head_waits(void);
/** The first nodes have met. */
void sim_rule_met(void);
void sim_rule_head_exit(void);
void sim_rule_head_time(void);

#endif
