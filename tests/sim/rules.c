/* rules.c - what must hold in every history, checked after each event that could break it. */
#include "tests/sim/sim_head.h"

#include <stdarg.h>

void sim_break(const char *format, ...)
{
    va_list arguments;

    if (sim.broken[0] != '\0') {
        return;
    }
    va_start(arguments, format);
    vsnprintf(sim.broken, sizeof sim.broken, format, arguments);
    va_end(arguments);
    sim_say("RULE BROKEN: %s", sim.broken);
}

/* --- the cause that is named is the cause --- */

void sim_cause_is(enum sim_harm harm, int node, int rank, int exit_status)
{
    const struct cddpi_membership *members = &sim_leader()->members;
    const struct cddpi_job_member *member = cddpi_membership_find(members, node);
    const struct sim_group *group = &sim.groups[members->generation < 0 ? 0 : members->generation];

    if (members->phase != CDDPI_MEMBERS_RUN || group->is_asked || group->is_finished ||
        group->is_saving || group->is_broken || member == NULL || member->ranks == 0 ||
        member->is_done || node == CDDPI_LEADER || sim.plan.has_store) {
        sim.cause.count = 10; /* its consequences depend on more */
        return;
    }
    if (sim.cause.count++ == 0) {
        sim.cause.harm = harm;
        sim.cause.node = node;
        sim.cause.rank = rank;
        sim.cause.exit_status = exit_status;
    }
}

/* A generation has ended on all nodes. */
static void check_cause(void)
{
    const struct cddpi_node_event *named = &sim_leader()->members.failure;

    if (!sim.is_foggy && sim.plan.grace_ms > 0 && sim.cause.count == 1 &&
        sim_leader()->members.change.kind == CDDPI_EVENT_NONE && !sim.was_asked) {
        bool is_rank = sim.cause.harm == SIM_KILL_RANK;

        if (is_rank && (named->kind != CDDPI_EVENT_FAILURE || named->rank != sim.cause.rank ||
                        named->exit_status != sim.cause.exit_status)) {
            sim_break("the cause was rank %d (status %d), and what is named is %s", sim.cause.rank,
                      sim.cause.exit_status, sim_event_words(named));
        }
        if (!is_rank && (named->kind != CDDPI_EVENT_LOST ||
                         sim.nodes[named->node].host != sim.nodes[sim.cause.node].host)) {
            sim_break("the cause was the loss of node %d, and what is named is %s", sim.cause.node,
                      sim_event_words(named));
        }
    }
    sim.cause = (struct sim_cause){0};
    for (int i = 0; i < sim.node_count; i++) { /* it will be missed in the next generation */
        sim.cause.count += sim.nodes[i].has_crashed && sim.nodes[i].lost_at < 0 ? 10 : 0;
    }
}

/* Whether the job has to go on after the one thing that has happened. */
static bool has_to_go_on(const struct cddpi_node_event *end)
{
    const struct cddpi_membership *members = &sim_leader()->members;
    bool may_restart = (members->max_restarts < 0 ||
                        members->restarts.made < members->max_restarts) &&
                       members->restarts.fruitless < CDDPI_MOST_FRUITLESS;

    if (sim.is_foggy || sim.was_asked || sim.cause.count != 1 || sim.plan.refuses >= 0) {
        return false;
    }
    return sim.cause.harm == SIM_KILL_RANK
               ? may_restart && end->exit_status != CDDPI_TOO_FEW
               : sim.plan.is_elastic && end->exit_status != CDDPI_TOO_FEW;
}

/* --- the log --- */

static void check_start(const struct cddpi_node_event *start)
{
    for (int i = 0; i < sim.rank_count; i++) {
        const struct sim_rank *rank = &sim.ranks[i];

        if (rank->is_alive && sim.nodes[rank->node].lost_at < 0) {
            sim_break("generation %d starts while rank %d of generation %d lives on node %d, which "
                      "is not lost",
                      start->generation, rank->rank, rank->generation, rank->node);
        }
    }
    if (sim.is_ended) {
        sim_break("generation %d starts after the end of the job", start->generation);
    }
    sim.starts_at[start->generation] = sim.log_count - 1;
}

static void check_lost(const struct cddpi_node_event *lost)
{
    struct sim_node *node = &sim.nodes[lost->node];
    bool may_be = sim.was_harmed || (sim.plan.has_head && sim.was_asked);

    if (node->lost_at < 0) {
        node->lost_at = sim.log_count - 1;
    }
    if (node->left_at >= 0 && !may_be) {
        sim_break("node %d left when it was asked to, and the others are told that it is lost",
                  lost->node);
    } else if (!may_be) {
        sim_break("node %d is called lost, and nothing has happened to it", lost->node);
    }
    if (lost->number == CDDPI_LOST_NEWCOMER && (node->took_part & sim.saved) != 0) {
        sim_break("node %d is expelled as if it were new, and has saved with the others",
                  lost->node);
    }
}

/* A job that needs one node only, and may restart, ends only after its last step. */
static void check_survival(const struct cddpi_node_event *end)
{
    const struct cddpi_membership *members = &sim_leader()->members;

    if (sim.plan.is_elastic && !sim.plan.is_alone && sim.plan.least == 1 &&
        sim.plan.max_restarts < 0 && sim.plan.refuses < 0 && !sim.may_end &&
        members->restarts.fruitless < CDDPI_MOST_FRUITLESS && end->exit_status != 0) {
        sim_break(
            "the job ends with status %d, though its node 0 lives, and it may restart without "
            "limit",
            end->exit_status);
    }
}

/* Whether the job has ended well: all ranks of the last generation have ended with status 0, and
 * all nodes have said so. */
static bool have_all_ended_well(void)
{
    const struct sim_group *group = sim.last_formed >= 0 ? &sim.groups[sim.last_formed] : NULL;

    if (group == NULL || sim_leader()->members.generation != sim.last_formed) {
        return false;
    }
    for (int i = 0; i < sim_leader()->members.count; i++) {
        const struct cddpi_job_member *member = &sim_leader()->list[i];

        if (member->ranks > 0 && !member->is_done) {
            return false;
        }
    }
    for (int i = 0; i < group->world; i++) {
        if (sim.ranks[group->ids[i]].is_alive || sim.ranks[group->ids[i]].exit_status != 0) {
            return false;
        }
    }
    return true;
}

static void check_end(const struct cddpi_node_event *end)
{
    bool is_complete = sim.disk.step >= sim.plan.steps;

    check_survival(end);
    if (end->exit_status != 0 && sim.plan.is_elastic && sim_leader()->members.asked_signal == 0 &&
        !sim_leader()->orphaned && have_all_ended_well()) {
        sim_break("the job ends with status %d, and all its ranks ended with 0", end->exit_status);
    }
    if (has_to_go_on(end)) {
        sim_break("the job ends with status %d, though it could go on after the loss of %s %d",
                  end->exit_status, sim.cause.harm == SIM_KILL_RANK ? "rank" : "node",
                  sim.cause.harm == SIM_KILL_RANK ? sim.cause.rank : sim.cause.node);
    }
    if (sim.is_ended && end->exit_status != sim.end_status) {
        sim_break("the job ends twice, with status %d and %d", sim.end_status, end->exit_status);
    }
    sim.is_ended = true;
    sim.ended_at = sim.log_count - 1;
    sim.end_status = end->exit_status;
    if (end->exit_status == 0 && !is_complete) {
        sim_break("the job ends with status 0 after %d of %d steps", sim.disk.step, sim.plan.steps);
    }
    if (end->exit_status != 0 && !sim.was_harmed && !sim.was_asked && sim.plan.refuses < 0) {
        sim_break("the job ends with status %d, and nothing has happened to it", end->exit_status);
    }
    if (sim.cause.count == 1 && !sim.is_foggy && !sim.was_asked && sim.plan.refuses < 0 &&
        sim.plan.grace_ms > 0 && sim.cause.harm == SIM_KILL_RANK &&
        end->exit_status != CDDPI_TOO_FEW && end->exit_status != sim.cause.exit_status) {
        sim_break("the job ends with status %d, and rank %d has ended it with status %d",
                  end->exit_status, sim.cause.rank, sim.cause.exit_status);
    }
}

/* A request that is repeated over a new connection is not done twice. */
static void check_once(const struct cddpi_node_event *event)
{
    struct sim_node *node;

    if (event->node < 0) {
        return; /* the head's */
    }
    node = &sim.nodes[event->node];
    if (event->kind == CDDPI_EVENT_JOIN && node->has_joined) {
        sim_break("JOIN of node %d is twice in the log", event->node);
    }
    node->has_joined = node->has_joined || event->kind == CDDPI_EVENT_JOIN;
    if (event->kind == CDDPI_EVENT_DONE && node->done_generation == event->generation + 1) {
        sim_break("DONE of node %d for generation %d is twice in the log", event->node,
                  event->generation);
    }
    if (event->kind == CDDPI_EVENT_DONE) {
        node->done_generation = event->generation + 1;
        if (event->has_saved && node->lost_at < 0) {
            sim.saved |= UINT64_C(1) << event->generation;
        }
    }
}

void sim_rule_appended(const struct cddpi_node_event *event)
{
    if (!sim_outside_counts(event)) {
        return;
    }
    check_once(event);
    switch (event->kind) {
    case CDDPI_EVENT_START:
        check_start(event);
        check_cause();
        break;
    case CDDPI_EVENT_END:
        check_end(event);
        check_cause();
        break;
    case CDDPI_EVENT_LOST:
        check_lost(event);
        break;
    case CDDPI_EVENT_BYE:
        if (event->node >= 0) {
            sim.nodes[event->node].left_at = sim.log_count - 1;
        }
        break;
    default:
        break;
    }
}

/* --- all nodes know the same --- */

static void mix(uint64_t *digest, int64_t value)
{
    *digest = (*digest ^ (uint64_t)value) * 0x100000001b3;
    *digest ^= *digest >> 29;
}

static uint64_t view_of(const struct cddpi_membership *members)
{
    uint64_t digest = 0xcbf29ce484222325;
    const struct cddpi_node_event *events[] = {&members->failure, &members->follow,
                                               &members->change, &members->end};

    mix(&digest, members->generation);
    mix(&digest, members->world_size);
    mix(&digest, members->asked_signal);
    for (int i = 0; i < 4; i++) {
        mix(&digest, events[i]->kind);
        mix(&digest, events[i]->node * 1000 + events[i]->rank);
        mix(&digest, events[i]->exit_status);
    }
    for (int i = 0; i < members->count; i++) {
        const struct cddpi_job_member *member = &members->list[i];

        mix(&digest, member->node);
        mix(&digest, member->nproc * 64 + member->ranks);
        mix(&digest, member->is_there + 2 * member->is_lost + 4 * member->is_leaving +
                         8 * member->is_done + 16 * member->has_left + 32 * member->is_new +
                         64 * member->is_unable);
    }
    return digest | 1;
}

void sim_rule_members_view(const struct cddpi_membership *members, int heard, const char *who)
{
    uint64_t view = view_of(members);

    if (sim.views[heard - 1] == 0) {
        sim.views[heard - 1] = view;
    } else if (sim.views[heard - 1] != view) {
        sim_break("after %d events, %s does not know what the others know", heard, who);
    }
}

void sim_rule_view(const struct sim_node *node)
{
    if (node->is_apart || node->heard == 0 || node->members.phase == CDDPI_MEMBERS_LEAVE ||
        (node->members.leads && node->members.leader != CDDPI_LEADER_IDLE)) {
        return; /* a leader that has decided is ahead of the log */
    }
    sim_rule_members_view(&node->members, node->heard, sim_node_name(node));
}

/* --- generations --- */

void sim_rule_fork(const struct sim_node *node, int generation, int rank)
{
    if (sim.plan.has_head) {
        sim_rule_one_node(node);
    }
    if (sim.groups[generation].ids[rank] >= 0) {
        sim_break("rank %d of generation %d is started twice", rank, generation);
    }
    if (node->lost_at >= 0 && node->lost_at < sim.starts_at[generation]) {
        sim_break("node %d was expelled and takes part in generation %d", node->number, generation);
    }
    if (sim.is_ended && sim.ended_at < sim.starts_at[generation]) {
        sim_break("node %d starts ranks after the end of the job", node->number);
    }
    for (int i = 0; i < node->members.count; i++) {
        const struct cddpi_job_member *member = &node->list[i];
        const struct sim_node *other = &sim.nodes[member->node];

        if (member->ranks > 0 && other->lost_at >= 0 &&
            other->lost_at < sim.starts_at[generation] && sim.plan.is_elastic) {
            sim_break("generation %d waits for ranks of node %d, which was lost before it began",
                      generation, member->node);
        }
        if (member->ranks > 0 && other->left_at >= 0 &&
            other->left_at < sim.starts_at[generation]) {
            sim_break("generation %d waits for ranks of node %d, which has left", generation,
                      member->node);
        }
    }
}

void sim_rule_formed(int generation)
{
    const struct sim_group *group = &sim.groups[generation];
    const struct sim_group *before = sim.last_formed >= 0 ? &sim.groups[sim.last_formed] : NULL;

    if (generation <= sim.last_formed) {
        sim_break("generation %d begins after generation %d", generation, sim.last_formed);
        return;
    }
    if (before != NULL && (sim.plan.grace_ms > 0 || !sim.was_asked) && !before->is_harmed &&
        !group->is_harmed && group->first_step != before->step) {
        sim_break("nothing but polite requests has happened, and generation %d goes on from step "
                  "%d, though generation %d had completed step %d",
                  generation, group->first_step, sim.last_formed, before->step);
    }
    sim.last_formed = generation;
}

void sim_rule_progress(int generation, const char *what)
{
    if (generation < sim.last_formed) {
        sim_break("generation %d %s after generation %d has begun", generation, what,
                  sim.last_formed);
    }
}

void sim_rule_checkpoint(int generation, int step)
{
    if (step < sim.disk.step) {
        sim_break("generation %d saves step %d after generation %d has saved step %d", generation,
                  step, sim.disk.generation, sim.disk.step);
    }
}
