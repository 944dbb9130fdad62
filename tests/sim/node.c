/* node.c - a cddp-run: it drives the real state machine of the members (membership.c), as nodes.c
 * and generations.c do. */
#include "tests/sim/sim_head.h"

#include <signal.h>
#include <string.h>

/* --- actions of the members' machine --- */

static void start_generation(struct sim_node *node, const struct cddpi_membership_action *action)
{
    struct cddpi_node_event start = action->event;

    node->busy_until_ns = sim.now_ns + sim_between(1, 300) * SIM_MS; /* cddp-train --validate */
    if (start.generation == sim.plan.refuses) {
        node->pending = 2;
        sim_say("%s: the configuration is refused", sim_node_name(node));
        return;
    }
    if (sim.now_ns < sim.hosts[node->host].unable_until_ns && start.generation > 0 &&
        node->checked_ranks != action->number) {
        node->pending = 1;
        sim.may_end = sim.may_end || !sim_could_others(node);
        sim_say("%s cannot check the configuration", sim_node_name(node));
        return;
    }
    if (start.generation >= SIM_GENERATIONS || action->number > SIM_WORLD) {
        sim_break("generation %d of %d ranks: more than the simulator has room for",
                  start.generation, action->number);
        return;
    }
    node->checked_ranks = action->number;
    start.number = 29500;
    sim_link_publish(node, &start);
}

static void finish(struct sim_node *node)
{
    node->is_over = true;
    node->exit_status = node->members.exit_status;
    sim_say("%s ends with status %d", sim_node_name(node), node->exit_status);
    sim_rule_exit(node);
    sim_link_close(node);
}

static void act(struct sim_node *node, const struct cddpi_membership_action *action)
{
    switch (action->kind) {
    case CDDPI_DO_PUBLISH:
        sim_link_publish(node, &action->event);
        break;
    case CDDPI_DO_START:
        start_generation(node, action);
        break;
    case CDDPI_DO_RUN:
        node->busy_until_ns = sim.now_ns + sim_between(1, 40) * SIM_MS;
        sim_at(node->busy_until_ns, SIM_NODE_RANKS, node->number, node->members.generation, 0);
        break;
    case CDDPI_DO_TELL:
        sim_node_tell_job(node, &action->job);
        break;
    case CDDPI_DO_TELL_LOSS:
        sim_link_tell_ranks(node, node->members.generation);
        break;
    case CDDPI_DO_SAY:
        sim_say("%s says: %s", sim_node_name(node), action->text);
        break;
    case CDDPI_DO_FINISH:
        finish(node);
        break;
    }
}

static void feed(struct sim_node *node, const struct cddpi_membership_event *event)
{
    static struct cddpi_membership_actions actions; /* static, since it is large */
    struct cddpi_membership_event timed = *event;

    if (node->is_over) {
        return;
    }
    timed.now_ns = sim_clock(node->host);
    timed.slept_ms = sim_slept_ms(node);
    cddpi_membership_step(&node->members, &timed, &actions);
    for (int i = 0; i < actions.count; i++) {
        act(node, &actions.list[i]);
    }
}

#define FEED(node, ...) feed((node), &(const struct cddpi_membership_event){__VA_ARGS__})

/* --- timers, and what follows from what has happened --- */

static void set_timer(struct sim_node *node)
{
    int64_t due_ns = node->members.deadline_ns;

    if (sim_planted(SIM_PLANT_NO_DEADLINE)) {
        sim.planted += due_ns != SIM_NEVER;
        due_ns = SIM_NEVER;
    }
    if (node->runs && node->job.deadline_ns < due_ns) {
        due_ns = node->job.deadline_ns;
    }
    if (due_ns != node->timer_ns) {
        node->timer_ns = due_ns;
        node->timer++;
        sim_at(sim_when(node->host, due_ns), SIM_NODE_TIME, node->number, 0, node->timer);
    }
}

static bool have_ended(const struct sim_node *node)
{
    if (sim_planted(SIM_PLANT_LEAVE_RANKS) && node->job.alive < node->job.count) {
        sim.planted++;
        return true;
    }
    return node->job.phase == CDDPI_JOB_OVER;
}

void sim_node_settle(struct sim_node *node)
{
    while (node->pending != 0) { /* without the node that was refused, it may be refused again */
        int status = node->pending;

        node->pending = 0;
        FEED(node, .kind = CDDPI_MEMBERS_REFUSED, .number = status);
    }
    if (node->runs && have_ended(node)) {
        struct cddpi_generation_outcome outcome = node->job.outcome;

        if (sim_planted(SIM_PLANT_WRONG_STATUS) && outcome.exit_status != 0) {
            sim.planted++;
            outcome.exit_status = 0;
        }
        node->runs = false;
        node->ended_ns = sim.now_ns;
        sim_say("%s: its ranks of generation %d have ended, with status %d", sim_node_name(node),
                node->members.generation, outcome.exit_status);
        FEED(node, .kind = CDDPI_MEMBERS_RANKS_ENDED, .outcome = outcome);
    }
    if (node->is_alive && !node->is_over) {
        sim_rule_waits(node);
        set_timer(node);
    }
}

void sim_node_time(struct sim_node *node)
{
    int64_t now_ns = sim_clock(node->host);

    node->timer_ns = 0;
    if (now_ns >= node->members.deadline_ns && !sim_planted(SIM_PLANT_NO_DEADLINE)) {
        FEED(node, .kind = CDDPI_MEMBERS_TIME);
    }
    if (node->runs) {
        sim_node_feed_job(node,
                          &(const struct cddpi_job_event){.kind = CDDPI_JOB_TIME, .rank = -1});
    }
    sim_node_settle(node);
}

/* --- the log --- */

/* What a planted fault makes of an event. Returns false: the node does not hear it. */
static bool spoil(struct sim_node *node, struct cddpi_node_event *event)
{
    if (sim_planted(SIM_PLANT_FORGET_LOST) && event->kind == CDDPI_EVENT_LOST) {
        sim.planted++;
        return event->node != node->number;
    }
    if (sim_planted(SIM_PLANT_LOSE_EVENT) && event->kind != CDDPI_EVENT_SAVING && sim_chance(3)) {
        sim.planted++;
        return false;
    }
    return true;
}

static void spoil_members(struct sim_node *node, const struct cddpi_node_event *event)
{
    if (sim_planted(SIM_PLANT_START_EARLY) && event->kind == CDDPI_EVENT_DONE) {
        for (int i = 0; i < node->members.count; i++) {
            sim.planted += !node->list[i].is_done;
            node->list[i].is_done = true;
        }
    }
    if (sim_planted(SIM_PLANT_STALE_DONE) && event->kind == CDDPI_EVENT_START &&
        event->generation > 0) {
        for (int i = 1; i < node->members.count; i++) {
            sim.planted += node->list[i].ranks > 0;
            node->list[i].is_done = true;
        }
    }
    for (int i = sim.met_count; i < node->members.count && sim_planted(SIM_PLANT_EVER_NEW); i++) {
        sim.planted++;
        node->list[i].is_new = true;
    }
}

static void hear(struct sim_node *node, const struct cddpi_node_event *event)
{
    struct cddpi_node_event copy = *event;

    if (spoil(node, &copy)) {
        FEED(node, .kind = CDDPI_MEMBERS_HEARD, .heard = &copy);
        spoil_members(node, &copy);
    }
}

void sim_node_hear(struct sim_node *node, const struct cddpi_node_event *event, bool is_in_log)
{
    if (node->number == SIM_WATCHER && sim.plan.has_head) {
        sim_head_hear(event, is_in_log);
        return;
    }
    if (node->is_over || node->number == SIM_WATCHER) {
        return;
    }
    if (is_in_log && sim_planted(SIM_PLANT_SWAP_EVENTS) && !sim.plan.is_alone &&
        node->heard + 1 < sim.log_count && node->heard % 5 == 3 && node->number == 1) {
        sim.planted++;
        hear(node, &sim.events[node->heard + 1]); /* too early; and then once more */
    }
    if (is_in_log) {
        node->heard++;
    } else {
        node->is_apart = true;
    }
    hear(node, event);
    if (!node->is_over) {
        sim_rule_view(node);
    }
    sim_node_settle(node);
}

/* --- what the world does to a cddp-run --- */

void sim_node_signal(struct sim_node *node, int number)
{
    sim_say("signal %d to %s", number, sim_node_name(node));
    node->asked_ns = sim.now_ns;
    FEED(node, .kind = CDDPI_MEMBERS_SIGNALLED, .number = number);
    sim_node_settle(node);
}

void sim_node_orphan(struct sim_node *node)
{
    node->orphaned = true;
    FEED(node, .kind = CDDPI_MEMBERS_ORPHANED);
    if (node->runs) {
        sim_node_feed_job(node, &(const struct cddpi_job_event){.kind = CDDPI_JOB_ORPHANED,
                                                                .rank = -1,
                                                                .text = "the launcher was killed"});
    }
    sim_node_settle(node);
}

void sim_node_ranks_leave(struct sim_node *node, int rank)
{
    FEED(node, .kind = CDDPI_MEMBERS_RANK_LEAVES, .number = rank);
    sim_node_settle(node);
}

/* What the node knows when it begins, of the job and of its first nodes. */
static void set_up_members(struct sim_node *node)
{
    struct cddpi_membership *members = &node->members;

    members->list = node->list;
    members->room = SIM_NODES;
    members->self = node->number;
    members->least = sim.plan.least;
    members->most = sim.plan.most;
    members->is_elastic = sim.plan.is_elastic;
    members->is_alone = sim.plan.is_alone;
    members->outside_store = sim.plan.has_store ? SIM_STORE : NULL;
    members->least_ranks = members->most_ranks = 0;
    if (sim.plan.is_alone && sim.plan.is_elastic) {
        members->least_ranks = 1;
        members->most_ranks = sim.plan.nproc[0];
    }
    members->max_restarts = sim.plan.max_restarts;
    members->gather_ms = sim.plan.gather_ms;
    for (int i = 0; i < sim.met_count; i++) {
        char name[16];

        snprintf(name, sizeof name, "h%d", sim.met[i].host);
        (void)cddpi_membership_add(members, sim.met[i].number, name,
                                   sim.plan.nproc[sim.met[i].host]);
        node->is_first = node->is_first || sim.met[i].number == node->number;
    }
}

/* The node comes late. */
static void join(struct sim_node *node, int nproc)
{
    struct cddpi_node_event join = {
        .kind = CDDPI_EVENT_JOIN, .node = node->number, .rank = -1, .number = nproc};

    snprintf(join.text, sizeof join.text, "h%d", node->host);
    sim_link_open(node);
    sim_link_publish(node, &join);
    sim_node_begin(node);
}

void sim_node_come(int host, int nproc, bool is_first)
{
    struct sim_node *node = &sim.nodes[sim.node_count];

    if (sim.node_count == SIM_NODES || (!is_first && (sim.is_ended || !sim_store_is_served()))) {
        return;
    }
    *node = (struct sim_node){
        .is_alive = true, .host = host, .number = sim.node_count++, .lost_at = -1, .left_at = -1};
    sim.hosts[host].is_off = false;
    set_up_members(node);
    if (!is_first) {
        sim_say("%s is started, with %d ranks", sim_node_name(node), nproc);
        join(node, nproc);
    }
}

void sim_node_meets(struct sim_node *node)
{
    set_up_members(node);
    sim_say("%s %s", sim_node_name(node), node->is_first ? "has met the others" : "comes late");
    if (node->is_first) {
        sim_node_begin(node);
    } else {
        join(node, node->nproc);
    }
}

void sim_node_begin(struct sim_node *node)
{
    node->has_begun = true;
    if (node->is_first) {
        sim_link_open(node);
    }
    node->timer_ns = SIM_NEVER;
    FEED(node, .kind = CDDPI_MEMBERS_BEGIN);
    sim_node_settle(node);
}

void sim_node_gone(struct sim_node *node, bool is_silent)
{
    if (!node->is_alive) {
        return;
    }
    node->is_alive = false;
    node->runs = false;
    if (!node->is_over) {
        node->has_crashed = true;
    }
    for (int i = 0; i < sim.rank_count; i++) {
        if (sim.ranks[i].is_alive && sim.ranks[i].node == node->number) {
            if (is_silent) {
                sim_rank_dies(i, 137, true);
            } else {
                sim_in(sim_between(1, 50) * SIM_MS, SIM_RANK_KILL, i, 0, 0);
            }
        }
    }
    if (sim.plan.has_head) {
        sim_agent_node_gone(node, is_silent, node->is_over ? node->exit_status & 255 : 137);
    }
    if (node->number == CDDPI_LEADER && !sim.plan.has_store && !sim.plan.has_head) {
        sim_store_end(is_silent);
    } else if (!is_silent && node->has_begun) {
        sim_at(sim_arrival(node->host, sim_store_host()), SIM_GONE, node->number, 0, 0);
    }
}
