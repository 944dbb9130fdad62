/* disturb.c - draws what kind of job a history has and what is done to it, and does it. */
#include "tests/sim/sim_head.h"

#include <signal.h>

const char *sim_harm_name(enum sim_harm harm)
{
    static const char *const names[SIM_HARMS] = {
        [SIM_KILL_RANK] = "a rank is killed",
        [SIM_STUCK_RANK] = "a rank hangs",
        [SIM_DEAF_RANK] = "a rank ignores SIGTERM from now on",
        [SIM_TERM_RANK] = "a rank is asked to leave",
        [SIM_CRASH_NODE] = "a cddp-run is killed",
        [SIM_POWER_OFF] = "a host loses power",
        [SIM_FREEZE] = "a host freezes",
        [SIM_CUT_LINK] = "the link between two hosts is cut",
        [SIM_CUT_ONE_WAY] = "a link is cut in one direction",
        [SIM_BREAK_CONNECTION] = "a connection breaks",
        [SIM_TERM_NODE] = "SIGTERM to a cddp-run",
        [SIM_USR1_NODE] = "SIGUSR1 to a cddp-run",
        [SIM_TERM_JOB] = "SIGINT to a cddp-run",
        [SIM_NEW_NODE] = "a node comes",
        [SIM_SLOW_DISK] = "the disk is slow",
        [SIM_FULL_DISK] = "the disk is full",
        [SIM_ORPHAN] = "the process that started a cddp-run is gone",
        [SIM_NO_START] = "no rank can be started on a host",
        [SIM_AGENT_FAILS] = "what leads to a host fails",
        [SIM_AGENT_HANGS] = "what leads to a host hangs",
        [SIM_STOP] = "all processes of a host are stopped",
        [SIM_KILL_HEAD] = "the head is killed",
        [SIM_HEAD_OFF] = "the head's host loses power",
        [SIM_FREEZE_HEAD] = "the head's host freezes",
        [SIM_TERM_HEAD] = "a signal to the head"};

    return names[harm];
}

/* --- drawing --- */

static int64_t pick(const int64_t *values, int count)
{
    return values[sim_between(0, count - 1)];
}

#define PICK(...)                                                                                  \
    pick((const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void draw_disturbance(void)
{
    /* what happens often in practice is drawn more often */
    static const enum sim_harm often[] = {SIM_KILL_RANK, SIM_CRASH_NODE, SIM_POWER_OFF,
                                          SIM_CUT_LINK,  SIM_TERM_NODE,  SIM_NEW_NODE,
                                          SIM_FREEZE,    SIM_NEW_NODE,   SIM_TERM_RANK};
    struct sim_disturbance *next = &sim.plan.list[sim.plan.count];
    int64_t before_ns = sim.plan.count > 0 ? next[-1].at_ns : 0;

    next->harm = sim_chance(60) ? often[sim_between(0, sizeof often / sizeof often[0] - 1)]
                                : (enum sim_harm)sim_between(0, SIM_NODE_HARMS - 1);
    next->at_ns = sim_chance(35)
                      ? before_ns + sim_between(0, 1500) * SIM_MS /* soon after the last */
                      : sim_between(0, 12000) * SIM_MS;
    next->lasts_ns = PICK(100, 500, 1500, 3000, 8000, 15000, 30000) * SIM_MS;
    next->target = (int)sim_between(0, 1000);
    next->comes_back = sim_chance(60);
    sim.plan.count++;
    if ((next->harm == SIM_TERM_NODE || next->harm == SIM_TERM_JOB) && sim_chance(20) &&
        sim.plan.count < SIM_DISTURBANCES) { /* the same once more */
        next[1] = *next;
        next[1].at_ns += sim_between(50, 1500) * SIM_MS;
        sim.plan.count++;
    }
}

void sim_draw_plan(void)
{
    struct sim_plan *plan = &sim.plan;
    int count = sim_chance(25) ? 1 : (int)sim_between(0, SIM_DISTURBANCES);

    plan->is_alone = sim_chance(10);
    plan->is_elastic = sim_chance(80);
    plan->hosts = plan->is_alone ? 1 : (int)sim_between(1, 4);
    plan->least = plan->is_elastic ? (int)sim_between(1, plan->hosts) : plan->hosts;
    plan->most = plan->is_elastic ? plan->hosts + (int)sim_between(0, 2) : plan->hosts;
    if (plan->is_alone) {
        plan->least = plan->most = 1;
    }
    for (int i = 0; i < SIM_HOSTS; i++) {
        plan->nproc[i] = (int)sim_between(1, SIM_LOCAL);
    }
    plan->max_restarts = (int)PICK(0, 1, 3, -1, -1);
    plan->steps = (int)sim_between(20, 160);
    plan->save_every = (int)sim_between(2, 15);
    plan->step_ns = PICK(50, 100, 250) * SIM_MS;
    plan->save_ns = PICK(5, 50, 400) * SIM_MS;
    plan->limit_ms = (uint32_t)PICK(1000, 3000, 10000);
    plan->grace_ms = PICK(0, 1000, 1000, 5000);
    plan->gather_ms = PICK(3000, 10000, 20000);
    plan->group_ms = PICK(15000, 30000);
    plan->refuses = sim_chance(3) ? (int)sim_between(0, 2) : -1;
    while (count-- > 0 && plan->count < SIM_DISTURBANCES) {
        draw_disturbance();
    }
}

void sim_begin_plan(void)
{
    const struct sim_plan *plan = &sim.plan;

    sim_say("%s job, %d node%s at first (%d to %d), restarts %d, %d steps, checkpoint every %d, "
            "a node may be silent for %u ms",
            plan->is_alone     ? "one machine's"
            : plan->is_elastic ? "an elastic"
                               : "a fixed",
            plan->hosts, plan->hosts == 1 ? "" : "s", plan->least, plan->most, plan->max_restarts,
            plan->steps, plan->save_every, plan->limit_ms);
    for (int i = 0; i < SIM_HOSTS; i++) {
        sim.hosts[i].offset_ns = sim_between(1, 1000000) * SIM_MS;
        sim.hosts[i].drift_ppm = (int)sim_between(-300, 300);
    }
    for (int i = 0; i < plan->count; i++) {
        const struct sim_disturbance *next = &plan->list[i];
        int64_t end_ns = next->at_ns + next->lasts_ns + 12 * SIM_S;

        sim_at(next->at_ns, SIM_DISTURB, i, 0, 0);
        sim.quiet_ns = end_ns > sim.quiet_ns ? end_ns : sim.quiet_ns;
    }
}

/* --- doing --- */

static bool is_target(const struct sim_node *node)
{
    return node->is_alive && !node->is_over && !node->meets;
}

static struct sim_node *living_node(int target)
{
    struct sim_node *found = NULL;
    int living = 0;

    for (int i = 0; i < sim.node_count; i++) {
        living += is_target(&sim.nodes[i]);
    }
    target = living > 0 ? target % living : 0;
    for (int i = 0; i < sim.node_count && found == NULL; i++) {
        if (is_target(&sim.nodes[i]) && target-- == 0) {
            found = &sim.nodes[i];
        }
    }
    return found;
}

static int living_rank(int target)
{
    int living = 0;

    for (int i = 0; i < sim.rank_count; i++) {
        living += sim.ranks[i].is_alive;
    }
    target = living > 0 ? target % living : 0;
    for (int i = 0; i < sim.rank_count; i++) {
        if (sim.ranks[i].is_alive && target-- == 0) {
            return i;
        }
    }
    return -1;
}

/* What costs no step. A broken connection is made anew. */
static bool is_polite(enum sim_harm harm)
{
    return harm == SIM_TERM_RANK || harm == SIM_TERM_NODE || harm == SIM_USR1_NODE ||
           harm == SIM_TERM_JOB || harm == SIM_NEW_NODE || harm == SIM_BREAK_CONNECTION ||
           harm == SIM_TERM_HEAD;
}

/* All generations that run now, or begin before it is over, are harmed. */
void sim_note_harm(const struct sim_disturbance *next)
{
    int64_t until_ns = sim.now_ns + next->lasts_ns;

    sim.was_harmed = true;
    sim.harmed_until_ns = until_ns > sim.harmed_until_ns ? until_ns : sim.harmed_until_ns;
    for (int i = 0; i < SIM_GENERATIONS; i++) {
        sim.groups[i].is_harmed = sim.groups[i].is_harmed || sim.groups[i].world > 0;
    }
    sim.is_foggy = sim.is_foggy || (next->harm != SIM_KILL_RANK && next->harm != SIM_CRASH_NODE &&
                                    next->harm != SIM_POWER_OFF);
}

static void disturb_rank(const struct sim_disturbance *next)
{
    int id = living_rank(next->target);
    struct sim_rank *rank = id >= 0 ? &sim.ranks[id] : NULL;
    struct sim_group *group = rank != NULL ? &sim.groups[rank->generation] : NULL;

    if (rank == NULL || sim_is_frozen(rank->host)) {
        return;
    }
    sim_say("%s: rank %d of generation %d", sim_harm_name(next->harm), rank->rank,
            rank->generation);
    if (next->harm == SIM_STUCK_RANK) { /* somebody else has to miss it */
        if (group->world < 2 || group->has_stuck) {
            return;
        }
        group->has_stuck = true;
        rank->is_stuck = rank->is_deaf = true;
    } else if (next->harm == SIM_DEAF_RANK) {
        rank->is_deaf = true;
    } else if (next->harm == SIM_KILL_RANK) {
        int status = (int)PICK(137, 139, 134, 1);

        sim_cause_is(next->harm, rank->node, rank->rank, status);
        sim_rank_dies(id, status, false);
    } else if (group->is_formed && !group->is_broken && !group->is_finished && !rank->is_deaf) {
        sim.was_asked = true;
        sim_rank_signal(id, SIGTERM);
        sim_node_ranks_leave(&sim.nodes[rank->node], rank->rank);
    }
}

static void end_node(const struct sim_disturbance *next, struct sim_node *node)
{
    int host = node->host;
    bool is_silent = next->harm == SIM_POWER_OFF;

    sim_cause_is(next->harm, node->number, -1, 0);
    for (int i = 0; i < sim.node_count; i++) { /* of a host, all */
        if (&sim.nodes[i] == node || (is_silent && sim.nodes[i].host == host)) {
            sim_node_gone(&sim.nodes[i], is_silent);
        }
    }
    if (is_silent) {
        sim.hosts[host].is_off = true;
    }
    if (next->comes_back && sim.plan.has_head) { /* the head starts another one */
        if (is_silent) {
            sim_in(next->lasts_ns, SIM_HOST_BACK, host, 0, 0);
        }
    } else if (next->comes_back) {
        sim_in(next->lasts_ns > 8 * SIM_S ? 8 * SIM_S : next->lasts_ns, SIM_COME, host,
               (int)sim_between(1, SIM_LOCAL), 0);
    }
}

static void freeze(const struct sim_disturbance *next, const struct sim_node *node)
{
    struct sim_host *host = &sim.hosts[node->host];
    bool is_asleep = next->target % 2 == 0; /* its clock stands still, too */

    if (sim_is_frozen(node->host)) {
        return;
    }
    host->frozen_until_ns = sim.now_ns + next->lasts_ns;
    if (is_asleep) {
        host->slept_ns += next->lasts_ns;
    }
}

static void block(int from, int to, int64_t lasts_ns)
{
    int64_t until_ns = sim.now_ns + lasts_ns;

    if (from != to && until_ns > sim.blocked_until_ns[from][to]) {
        sim.blocked_until_ns[from][to] = until_ns;
    }
}

/* Mostly between a host and node 0's, sometimes between it and all others. */
static void cut_links(const struct sim_disturbance *next, const struct sim_node *node)
{
    int other = next->target % 10 < 6 ? sim_store_host() : next->target % SIM_HOSTS;

    for (int i = 0; i <= SIM_HOSTS; i++) {
        if (next->target % 10 == 9 || i == other) {
            block(node->host, i, next->lasts_ns);
            if (next->harm == SIM_CUT_LINK) {
                block(i, node->host, next->lasts_ns);
            }
        }
    }
}

static void break_connection(const struct sim_disturbance *next, struct sim_node *node)
{
    enum cddpi_link_side side = next->target % 2 == 0 ? CDDPI_LINK_TELLER : CDDPI_LINK_HEARER;
    int connection = node->link.sides[side].connection;

    if (node->number == CDDPI_LEADER && sim_store_host() == node->host) { /* it serves the store */
        return;
    }
    for (int i = 0; i < SIM_MESSAGES; i++) { /* what is under way may or may not arrive */
        struct sim_message *message = &sim.messages[i];

        if (message->is_used && message->node == node->number && message->side == side &&
            message->waiter.entry == NULL && next->target % 4 < 2) {
            message->connection = -1; /* its answer is dropped */
        }
    }
    sim_in(0, SIM_RESET, node->number, (int)side, connection);
}

/* Whether a signal now is not the one that has asked the node to leave, which may come twice. */
static bool is_second_request(const struct sim_node *node)
{
    return node->members.has_asked_leave &&
           sim_clock(node->host) - node->members.asked_leave_ns > CDDPI_SAME_REQUEST_MS * SIM_MS;
}

static void disturb_node(const struct sim_disturbance *next, struct sim_node *node)
{
    sim_say("%s: %s (%.1f s)", sim_harm_name(next->harm), sim_node_name(node),
            (double)next->lasts_ns / 1e9);
    switch (next->harm) {
    case SIM_CRASH_NODE:
    case SIM_POWER_OFF:
        end_node(next, node);
        break;
    case SIM_FREEZE:
        freeze(next, node);
        break;
    case SIM_CUT_LINK:
    case SIM_CUT_ONE_WAY:
        cut_links(next, node);
        break;
    case SIM_BREAK_CONNECTION:
        break_connection(next, node);
        break;
    case SIM_ORPHAN:
        sim_node_orphan(node);
        break;
    case SIM_NO_START:
        sim.hosts[node->host].unable_until_ns = sim.now_ns + next->lasts_ns;
        break;
    default:
        sim.was_asked = true;
        if (is_second_request(node)) { /* it kills its ranks */
            sim_note_harm(next);
        }
        sim_node_signal(node, next->harm == SIM_TERM_NODE   ? SIGTERM
                              : next->harm == SIM_USR1_NODE ? SIGUSR1
                                                            : SIGINT);
        break;
    }
}

/* What may end an elastic job that needs one node only: its node 0 ends, a request, or the disk. */
static bool may_end_job(enum sim_harm harm, const struct sim_node *node)
{
    bool is_leader = node != NULL && node->number == CDDPI_LEADER;

    if (sim.plan.has_head && sim.plan.is_elastic &&
        (harm == SIM_CRASH_NODE || harm == SIM_POWER_OFF || harm == SIM_ORPHAN ||
         harm == SIM_AGENT_FAILS || harm == SIM_AGENT_HANGS)) {
        return false; /* the head starts other nodes, there or elsewhere */
    }
    if (sim.plan.has_store) { /* also a node that was cut off ends, and those that follow it */
        return harm != SIM_KILL_RANK && harm != SIM_NO_START && harm != SIM_NEW_NODE &&
               harm != SIM_BREAK_CONNECTION && harm != SIM_SLOW_DISK;
    }
    return harm == SIM_TERM_JOB || harm == SIM_FULL_DISK || harm == SIM_TERM_RANK ||
           (is_leader && (harm == SIM_CRASH_NODE || harm == SIM_POWER_OFF || harm == SIM_ORPHAN ||
                          harm == SIM_TERM_NODE || harm == SIM_USR1_NODE)) ||
           (node != NULL && node->host == sim_leader()->host && harm == SIM_POWER_OFF);
}

/* Whether @p harm is done to the head, or to what leads from it to a host. */
static bool is_of_head(enum sim_harm harm)
{
    return harm >= SIM_NODE_HARMS || (sim.plan.has_head && harm == SIM_ORPHAN);
}

void sim_disturb(const struct sim_disturbance *next)
{
    struct sim_node *node = living_node(next->target);
    bool ends = next->harm == SIM_CRASH_NODE || next->harm == SIM_POWER_OFF;

    if (node != NULL && node->number == CDDPI_LEADER && ends && !sim.plan.has_store &&
        next->target % 7 < 5) {
        node = living_node(next->target + 1); /* the job seldom ends with node 0 */
    }
    if (sim.is_ended && next->harm != SIM_FREEZE && next->harm != SIM_CUT_LINK &&
        next->harm != SIM_CRASH_NODE) {
        return;
    }
    sim.may_end = sim.may_end || may_end_job(next->harm, node);
    if (!is_polite(next->harm)) {
        sim_note_harm(next);
    }
    if (is_of_head(next->harm)) {
        sim_disturb_head(next);
        return;
    }
    switch (next->harm) {
    case SIM_KILL_RANK:
    case SIM_STUCK_RANK:
    case SIM_DEAF_RANK:
    case SIM_TERM_RANK:
        disturb_rank(next);
        break;
    case SIM_NEW_NODE:
        if (!sim.plan.is_alone && sim.plan.is_elastic) {
            sim_node_come(next->target % SIM_HOSTS, 1 + next->target / 8 % SIM_LOCAL, false);
        }
        break;
    case SIM_SLOW_DISK:
        sim.disk.slow_until_ns = sim.now_ns + next->lasts_ns;
        sim_say("the disk is slow for %.1f s", (double)next->lasts_ns / 1e9);
        break;
    case SIM_FULL_DISK:
        sim.disk.full_until_ns = sim.now_ns + next->lasts_ns;
        sim_say("the disk is full for %.1f s", (double)next->lasts_ns / 1e9);
        break;
    default:
        if (node != NULL && sim_is_frozen(node->host) && next->harm != SIM_POWER_OFF) {
            sim_at(sim.hosts[node->host].frozen_until_ns, SIM_DISTURB, (int)(next - sim.plan.list),
                   0, 0);
        } else if (node != NULL) {
            disturb_node(next, node);
        }
        break;
    }
}
