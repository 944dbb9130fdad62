/* rank.c - a rank: a process of cddp-train. It executes its program, meets the ranks of its
 * generation, and then makes steps with them (group.c). */
#include "tests/sim/sim.h"

#include <signal.h>

static void to_node(const struct sim_rank *rank, const struct cddpi_job_event *event)
{
    struct sim_node *node = &sim.nodes[rank->node];

    if (node->is_alive && node->runs && node->members.generation == rank->generation) {
        sim_node_job(node, event);
    }
}

int sim_rank_start(struct sim_node *node, int number)
{
    int id = sim.rank_count;
    struct sim_rank *rank = &sim.ranks[id];

    if (sim.rank_count == (int)(sizeof sim.ranks / sizeof sim.ranks[0])) {
        sim_break("the simulator has no room for so many ranks");
        return 0;
    }
    sim.rank_count++;
    sim_rule_fork(node, node->members.generation, number);
    *rank = (struct sim_rank){.is_alive = true,
                              .node = node->number,
                              .host = node->host,
                              .generation = node->members.generation,
                              .rank = number};
    sim.groups[rank->generation].ids[number] = id;
    if (sim.now_ns < sim.harmed_until_ns) {
        sim.groups[rank->generation].is_harmed = true;
    }
    sim_in(sim_between(2, 60) * SIM_MS, SIM_RANK_RUNS, id, 0, 0);
    return id;
}

void sim_rank_signal(int id, int number)
{
    switch (number) {
    case SIGKILL:
        sim_in(sim_between(100, 5000) * 1000, SIM_RANK_KILL, id, 0, 0);
        break;
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
        sim_in(sim_between(10, 500) * 1000, SIM_RANK_TERM, id, 0, 0);
        break;
    default:
        break;
    }
}

void sim_rank_dies(int id, int exit_status, bool is_silent)
{
    struct sim_rank *rank = &sim.ranks[id];

    if (!rank->is_alive) {
        return;
    }
    rank->is_alive = false;
    rank->exit_status = exit_status;
    sim_say("rank %d of generation %d ends with status %d", rank->rank, rank->generation,
            exit_status);
    if (!is_silent) {
        sim_in(sim_between(50, 2000) * 1000, SIM_RANK_REAPED, id, exit_status, 0);
    }
    sim_group_lost(rank->generation, rank->rank, is_silent);
}

/* SIGTERM: before it trains, a rank dies of it; later, all ranks agree to save and end. */
static void take_term(int id)
{
    struct sim_rank *rank = &sim.ranks[id];
    struct sim_group *group = &sim.groups[rank->generation];

    if (rank->is_deaf || rank->is_stuck) {
        return;
    }
    if (!rank->runs || !group->is_formed || group->is_broken) {
        sim_in(sim_between(1, 20) * SIM_MS, SIM_RANK_EXITS, id, 128 + SIGTERM, 0);
    } else if (!group->is_asked) {
        group->is_asked = true;
        sim_say("rank %d of generation %d is asked to end: all save after their next step",
                rank->rank, rank->generation);
    }
}

/* Its group is broken: it reports the rank that is to blame, if it knows that, and ends. */
static void fail(int id, int culprit)
{
    struct sim_rank *rank = &sim.ranks[id];

    if (culprit >= 0 && culprit != rank->rank) {
        to_node(rank,
                &(const struct cddpi_job_event){
                    .kind = CDDPI_JOB_BLAMED, .rank = rank->rank, .culprit = culprit, .node = -1});
    }
    sim_in(sim_between(1, 10) * SIM_MS, SIM_RANK_EXITS, id, 1, 0);
}

static void join(int id)
{
    struct sim_rank *rank = &sim.ranks[id];
    struct sim_group *group = &sim.groups[rank->generation];

    if (group->is_told) {
        fail(id, -1);
    } else if (!sim_can_reach(rank->host, sim_store_host())) {
        sim_in(200 * SIM_MS, SIM_RANK_JOINS, id, 0, 0);
    } else {
        rank->has_joined = true;
        group->joined++;
        sim_group_joined(rank->generation);
    }
}

void sim_rank_event(const struct sim_event *event)
{
    int id = event->a;
    struct sim_rank *rank = &sim.ranks[id];
    struct sim_group *group = &sim.groups[rank->generation];

    if (event->kind == SIM_RANK_REAPED) {
        to_node(rank, &(const struct cddpi_job_event){.kind = CDDPI_JOB_ENDED,
                                                      .rank = rank->rank,
                                                      .exit_status = event->b,
                                                      .culprit = -1,
                                                      .node = -1});
        return;
    }
    if (!rank->is_alive) {
        return;
    }
    switch (event->kind) {
    case SIM_RANK_RUNS:
        rank->runs = true;
        to_node(rank, &(const struct cddpi_job_event){
                          .kind = CDDPI_JOB_EXECUTED, .rank = rank->rank, .node = -1});
        sim_in(sim_between(5, 800) * SIM_MS, SIM_RANK_JOINS, id, 0, 0);
        sim_in(sim.plan.group_ms * SIM_MS, SIM_RANK_LATE, id, 0, 0);
        break;
    case SIM_RANK_JOINS:
        join(id);
        break;
    case SIM_RANK_LATE:
        if (!group->is_formed) {
            sim_say("rank %d of generation %d: not all ranks have come", rank->rank,
                    rank->generation);
            fail(id, -1);
        }
        break;
    case SIM_RANK_TERM:
        take_term(id);
        break;
    case SIM_RANK_KILL:
        sim_rank_dies(id, 128 + SIGKILL, false);
        break;
    case SIM_RANK_FAILS:
        if (!rank->is_stuck) {
            fail(id, event->b);
        }
        break;
    default:
        sim_rank_dies(id, event->b, false);
        break;
    }
}
