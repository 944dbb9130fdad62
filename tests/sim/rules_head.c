/* rules_head.c - what must hold of the cddp-run that starts a job on a list of hosts (the head),
 * and of its agents. */
#include "tests/sim/sim_head.h"

/* Once the head is gone, and nothing disturbs them any more, its nodes have this time to end, and
 * what the plan gives to links and ranks. */
enum { NODES_S = 40 };

/* So long an end that the head has seen takes to come back to it through its log. */
enum { EXPLAINED_S = 5 };

/* Whether node @p number takes part in the job, as far as the log says, and knows of no reason to
 * end. */
static bool takes_part(int number)
{
    const struct sim_node *node = number >= 0 && number < SIM_NODES ? &sim.nodes[number] : NULL;

    return node != NULL && node->has_begun && node->is_alive && !node->is_over &&
           node->lost_at < 0 && node->left_at < 0 && (node->is_first || node->has_joined) &&
           !node->members.has_asked_leave;
}

/* Whether the head may end all agents. */
static bool has_reason_to_end(void)
{
    return sim.was_harmed || sim.was_asked || sim.is_ended || sim.plan.refuses >= 0;
}

void sim_rule_agent(int host, enum cddpi_head_action_kind kind)
{
    bool ends = kind == CDDPI_HEAD_CLOSE || kind == CDDPI_HEAD_KILL;
    int node;

    if (host < 0) {
        return;
    }
    node = sim_head.agents[host].node;
    if (kind == CDDPI_HEAD_START && sim_head.agents[host].is_alive) {
        sim_break("an agent is started on h%d, and the last one lives", host);
    }
    if (kind == CDDPI_HEAD_START && takes_part(node)) {
        sim_break("an agent is started on h%d, and node %d there, which lives, is not lost", host,
                  node);
    }
    if (kind == CDDPI_HEAD_START && sim.is_ended && sim_head.heard > sim.ended_at) {
        sim_break("an agent is started on h%d after the end of the job", host);
    }
    if (ends && sim_head.state.steps == 0 && takes_part(node) && !sim_head.hosts[host].has_ended &&
        !sim.is_ended) {
        sim_break("the head ends node %d on h%d, which takes part in the job", node, host);
    }
    if (ends && sim_head.state.steps > 0 && !has_reason_to_end()) {
        sim_break("the head ends all agents, and nothing has happened to the job");
    }
}

/* A host has one agent, so one of its nodes takes part. */
void sim_rule_one_node(const struct sim_node *node)
{
    for (int i = 0; i < sim.node_count; i++) {
        const struct cddpi_job_member *other = cddpi_membership_find(&node->members, i);

        if (i != node->number && sim.nodes[i].host == node->host && takes_part(i) &&
            other != NULL && other->ranks > 0) {
            sim_break("nodes %d and %d, both on h%d, take part in one generation", i, node->number,
                      node->host);
        }
    }
}

/* An agent of an elastic job is started again, or ended, at a time that is known. */
static void check_agent(int i)
{
    const struct cddpi_head_host *host = &sim_head.hosts[i];
    const struct cddpi_job_member *member = cddpi_membership_find(&sim_head.members, host->node);
    bool is_to_end = !host->has_ended && host->end_steps < 2 &&
                     (!host->has_come || (member != NULL && member->is_lost));

    if (host->due_ns == CDDPI_HEAD_NEVER && !host->is_over && host->is_started &&
        (host->has_ended || is_to_end)) {
        sim_break("the agent of h%d %s without a deadline", i,
                  host->has_ended ? "is not started again" : "is waited for");
    }
}

void sim_rule_head_waits(void)
{
    const struct cddpi_head_state *state = &sim_head.state;
    bool is_ending = state->steps > 0 || state->asked_signal != 0 ||
                     state->members->end.kind != CDDPI_EVENT_NONE;
    bool has_failed = !state->is_elastic && state->members->failure.kind != CDDPI_EVENT_NONE;

    if (state->due_ns == CDDPI_HEAD_NEVER && (is_ending || has_failed)) {
        sim_break("the head waits for the end of the job without a deadline");
    }
    for (int i = 0; i < state->count && state->is_elastic && !is_ending; i++) {
        if (state->unexplained == 0 && state->members->asked_signal == 0) {
            check_agent(i);
        }
    }
}

void sim_rule_met(void)
{
    if (sim.met_count < sim.plan.least) {
        sim_break("the head begins with %d nodes, and the job needs %d", sim.met_count,
                  sim.plan.least);
    }
}

/* Agents of a fixed job have ended before it began: the first one's status is the head's. */
static void check_unstarted(void)
{
    bool is_judged = !sim.plan.is_elastic && sim_head.members.generation < 0 && !sim.was_asked &&
                     sim_head.members.failure.kind == CDDPI_EVENT_NONE &&
                     sim_head.members.end.kind == CDDPI_EVENT_NONE && sim_head.first_end > 0 &&
                     !sim_head.is_apart;

    if (is_judged && sim_head.exit_status != sim_head.first_end) {
        sim_break("the head ends with status %d, and what led to a host had ended with %d",
                  sim_head.exit_status, sim_head.first_end);
    }
}

void sim_rule_head_exit(void)
{
    const struct cddpi_membership *members = &sim_head.members;
    int status = sim_head.exit_status;

    for (int i = 0; i < sim.plan.hosts; i++) {
        if (sim_head.agents[i].is_alive) {
            sim_break("the head ends, and its agent of h%d lives", i);
        }
    }
    if (status == 0 && (!sim.is_ended || sim.end_status != 0)) {
        sim_break("the head ends with status 0, and the job has not ended so");
    }
    if (members->end.kind != CDDPI_EVENT_NONE && (sim.plan.is_elastic || !sim.was_harmed) &&
        status != members->end.exit_status) {
        sim_break("the head ends with status %d, and the job with status %d", status,
                  members->end.exit_status);
    }
    check_unstarted();
    if (status != 0 && !has_reason_to_end()) {
        sim_break("the head ends with status %d, and nothing has happened to the job", status);
    }
}

static void check_explained(void)
{
    int64_t awake_ns = sim.hosts[SIM_STORE_HOST].frozen_until_ns;
    int64_t from_ns = sim_head.unexplained_ns > awake_ns ? sim_head.unexplained_ns : awake_ns;

    if (!sim_head.is_alive || sim_head.state.unexplained == 0) {
        sim_head.unexplained_ns = 0;
    } else if (sim_head.unexplained_ns == 0) {
        sim_head.unexplained_ns = sim.now_ns;
    } else if (sim.now_ns > from_ns + EXPLAINED_S * SIM_S) {
        sim_break("the head has seen the end of an agent, and does not find it explained");
    }
}

void sim_rule_head_time(void)
{
    int64_t most_ns = (2 * (int64_t)sim.plan.limit_ms + 3 * sim.plan.grace_ms) * SIM_MS +
                      NODES_S * SIM_S;
    int64_t from_ns = sim_head.gone_ns > sim.harmed_until_ns ? sim_head.gone_ns
                                                             : sim.harmed_until_ns;

    check_explained();
    if (sim_head.is_alive || sim.now_ns < from_ns + most_ns) {
        return;
    }
    for (int i = 0; i < sim.node_count; i++) {
        bool meets = sim.nodes[i].meets; /* with a deadline of its own */

        if (sim.nodes[i].is_alive &&
            (!meets || sim.now_ns > from_ns + most_ns + sim.plan.gather_ms * SIM_MS)) {
            sim_break("the head is gone for %.1f s, and node %d lives",
                      (double)(sim.now_ns - sim_head.gone_ns) / 1e9, i);
        }
    }
}
