/* rules_end.c - the rules about ends and waiting: nothing is left behind, nothing is waited for
 * without a deadline, and every job ends. */
#include "tests/sim/sim_head.h"

/* After the last disturbance, a job has to be over after this time: the sum of all deadlines. */
enum { MOST_S = 300, MOST_WAIT_S = 5 };

void sim_rule_exit(const struct sim_node *node)
{
    const struct cddpi_membership *members = &node->members;
    bool has_reason = members->end.kind != CDDPI_EVENT_NONE || members->has_left ||
                      members->is_cut || node->lost_at >= 0 || node->is_apart ||
                      (sim.plan.has_head && !sim.plan.has_store && sim.nodes[0].lost_at >= 0) ||
                      node->orphaned || node->number == CDDPI_LEADER;

    for (int i = 0; i < sim.rank_count; i++) {
        if (sim.ranks[i].is_alive && sim.ranks[i].node == node->number) {
            sim_break("node %d ends, and its rank %d of generation %d lives", node->number,
                      sim.ranks[i].rank, sim.ranks[i].generation);
        }
    }
    if (members->is_cut && !sim.was_harmed && !sim.is_ended) {
        sim_break("node %d is cut off, and nothing has happened to it", node->number);
    }
    if (members->is_expelled && node->number == CDDPI_LEADER && sim.plan.is_elastic &&
        !sim.plan.has_store) {
        sim_break("node %d has said that the others went on without it, and they did not",
                  node->number);
    }
    if (!has_reason) {
        sim_break("node %d ends with status %d without a reason", node->number, node->exit_status);
    }
    if (members->end.kind != CDDPI_EVENT_NONE && !members->has_left && !node->is_apart &&
        (node->exit_status & 255) != sim.end_status) {
        sim_break("node %d ends with status %d, and the job with status %d", node->number,
                  node->exit_status, sim.end_status);
    }
}

/* Whether a node waits, though there is room for it. */
static bool is_kept_out(const struct cddpi_membership *members)
{
    int most = members->most;

    for (int i = 0; i < members->count; i++) {
        most -= members->list[i].is_there && !members->list[i].is_leaving;
        if (members->list[i].is_there && !members->list[i].is_leaving &&
            members->list[i].ranks == 0 && most >= 0) {
            return true;
        }
    }
    return false;
}

/* Node 0 lets nodes in, and others out, after seconds. */
static void check_waiting(const struct sim_node *node)
{
    const struct cddpi_membership *members = &node->members;
    bool is_kept;

    if (node != sim_leader() || sim.plan.has_store) {
        return;
    }
    is_kept = members->phase == CDDPI_MEMBERS_RUN && members->is_elastic &&
              members->change.kind == CDDPI_EVENT_NONE &&
              members->failure.kind == CDDPI_EVENT_NONE &&
              members->follow.kind == CDDPI_EVENT_NONE && members->asked_signal == 0 &&
              is_kept_out(members) && !sim.was_harmed;
    if (!is_kept) {
        sim.kept_since_ns = 0;
    } else if (sim.kept_since_ns == 0) {
        sim.kept_since_ns = sim.now_ns;
    } else if (sim.now_ns > sim.kept_since_ns + MOST_WAIT_S * SIM_S) {
        sim_break("a node waits for %d s, and there is room for it", MOST_WAIT_S);
    }
    if (members->made > members->restarts.made) {
        sim_break("%d restarts are told, and %d were made", members->made, members->restarts.made);
    }
}

void sim_rule_waits(const struct sim_node *node)
{
    const struct cddpi_membership *members = &node->members;
    bool counts_time = members->phase == CDDPI_MEMBERS_LEAVE ||
                       (members->leads && members->phase != CDDPI_MEMBERS_RUN &&
                        (members->leader == CDDPI_LEADER_PAUSES ||
                         members->leader == CDDPI_LEADER_GATHERS));

    check_waiting(node);
    if (counts_time && members->deadline_ns == CDDPI_JOB_NEVER) {
        sim_break("node %d waits without a deadline", node->number);
    }
    if (node->runs && node->job.phase > CDDPI_JOB_RUNS && node->job.phase < CDDPI_JOB_OVER &&
        node->job.deadline_ns == CDDPI_JOB_NEVER) {
        sim_break("node %d waits for its ranks without a deadline", node->number);
    }
}

static const char *phase_name(const struct sim_node *node)
{
    static const char *const names[] = {
        "?",      "awaits START", "runs", "waits for others' ranks", "waits until all have left",
        "is over"};

    return names[node->members.phase];
}

/* Who is still there, for the message. */
static void describe_living(char *out, size_t bytes)
{
    size_t used = 0;

    out[0] = '\0';
    if (sim.plan.has_head && sim_head.is_alive) {
        used += (size_t)snprintf(out, bytes, " the head;");
    }
    for (int i = 0; i < sim.node_count && used < bytes; i++) {
        if (sim.nodes[i].is_alive) {
            used += (size_t)snprintf(out + used, bytes - used, " node %d %s;", i,
                                     sim.nodes[i].meets ? "meets the others"
                                                        : phase_name(&sim.nodes[i]));
        }
    }
    for (int i = 0; i < sim.rank_count && used < bytes; i++) {
        if (sim.ranks[i].is_alive) {
            used += (size_t)snprintf(out + used, bytes - used, " rank %d of generation %d lives;",
                                     sim.ranks[i].rank, sim.ranks[i].generation);
        }
    }
}

/* A node that was asked to leave may go once its ranks have ended. */
static void check_leavers(void)
{
    for (int i = 1; i < sim.node_count && !sim.was_harmed; i++) {
        const struct sim_node *node = &sim.nodes[i];

        if (node->is_alive && !node->is_over && node->members.has_asked_leave && !node->runs &&
            node->members.phase == CDDPI_MEMBERS_ENDED &&
            sim.now_ns > node->asked_ns + MOST_WAIT_S * SIM_S &&
            sim.now_ns > node->ended_ns + MOST_WAIT_S * SIM_S) {
            sim_break(
                "node %d was asked to leave, its ranks have ended, and it waits for more than "
                "%d s",
                i, MOST_WAIT_S);
        }
    }
}

void sim_rule_time(void)
{
    char living[256];

    check_leavers();
    if (sim.plan.has_head) {
        sim_rule_head_time();
    }
    if (sim.now_ns > sim.quiet_ns + MOST_S * SIM_S) {
        describe_living(living, sizeof living);
        sim_break("nothing has disturbed the job for %d s, and it is not over:%s", MOST_S, living);
    }
}

void sim_rule_finally(void)
{
    char living[256];

    describe_living(living, sizeof living);
    if (living[0] != '\0') {
        sim_break("nothing happens any more:%s", living);
    }
    if (!sim.is_ended && !sim.was_harmed &&
        !((sim.plan.has_store || sim.plan.has_head) && sim.was_asked)) {
        sim_break("the job has no end");
    }
}
