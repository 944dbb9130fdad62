/* supervise.c - the ranks of one cddp-run: it drives the real state machine of the ranks of one
 * machine (job_state.c), as supervise.c and job_actions.c of the launcher do. */
#include "tests/sim/sim.h"

#include <signal.h>
#include <string.h>

static void signal_ranks(struct sim_node *node, int number)
{
    for (int i = 0; i < node->job.count; i++) {
        if (number == SIGKILL && sim_planted(SIM_PLANT_NO_KILL)) {
            sim.planted++;
            continue;
        }
        if (node->job.ranks[i].is_alive) {
            sim_rank_signal(node->rank_ids[i], number);
        }
    }
}

static void publish_of_rank(struct sim_node *node, const struct cddpi_job_action *action)
{
    struct cddpi_node_event event = {
        .kind = action->kind == CDDPI_JOB_PUBLISH_FAILURE  ? CDDPI_EVENT_FAILURE
                : action->kind == CDDPI_JOB_PUBLISH_FOLLOW ? CDDPI_EVENT_FOLLOW
                                                           : CDDPI_EVENT_SAVING,
        .generation = node->members.generation,
        .node = node->number,
        .rank = action->rank,
        .exit_status = action->exit_status & 255,
        .may_restart = action->may_restart};

    if (event.kind == CDDPI_EVENT_FAILURE && sim_planted(SIM_PLANT_HIDE_FAILURE)) {
        sim.planted++;
        return;
    }
    if (event.kind == CDDPI_EVENT_FAILURE && sim_planted(SIM_PLANT_BLAME_OTHER) && event.rank > 0) {
        sim.planted++;
        event.rank--;
    }
    if (event.kind == CDDPI_EVENT_FAILURE && sim_planted(SIM_PLANT_HIDE_UNABLE) && event.rank < 0) {
        sim.planted++;
        event.rank = 0;
    }
    snprintf(event.text, sizeof event.text, "rank %d ended with status %d", action->rank,
             action->exit_status);
    if (!sim.plan.is_alone) {
        sim_link_publish(node, &event);
    }
}

static void act_on_ranks(struct sim_node *node, const struct cddpi_job_action *action)
{
    switch (action->kind) {
    case CDDPI_JOB_SIGNAL_GROUPS:
    case CDDPI_JOB_SIGNAL_RANKS:
        signal_ranks(node, action->number);
        break;
    case CDDPI_JOB_TELL_FAILURE:
        sim_link_tell_ranks(node, node->members.generation);
        break;
    case CDDPI_JOB_PUBLISH_FAILURE:
    case CDDPI_JOB_PUBLISH_FOLLOW:
    case CDDPI_JOB_PUBLISH_SAVING:
        publish_of_rank(node, action);
        break;
    case CDDPI_JOB_SAY_KILLING:
    case CDDPI_JOB_SAY_OVERDUE:
        sim_say("%s kills its ranks", sim_node_name(node));
        break;
    case CDDPI_JOB_SAY_GIVEN_UP:
        node->members.is_expelled = true;
        sim_say("%s says that the others went on without it", sim_node_name(node));
        break;
    case CDDPI_JOB_ABANDON:
        sim_say("%s cannot kill its ranks", sim_node_name(node));
        break;
    default:
        break;
    }
}

void sim_node_feed_job(struct sim_node *node, const struct cddpi_job_event *event)
{
    struct cddpi_job_event timed = *event;
    struct cddpi_job_actions actions;

    if (timed.now_ns == 0) {
        timed.now_ns = sim_clock(node->host);
    }
    timed.is_given_up = node->members.asked_signal == 0 &&
                        (node->members.is_expelled || sim_slept_ms(node) > 0);
    cddpi_job_state_step(&node->job, &timed, &actions);
    for (int i = 0; i < actions.count; i++) {
        act_on_ranks(node, &actions.list[i]);
    }
}

void sim_node_job(struct sim_node *node, const struct cddpi_job_event *event)
{
    if (node->runs) {
        sim_node_feed_job(node, event);
        sim_node_settle(node);
    }
}

void sim_node_tell_job(struct sim_node *node, const struct cddpi_job_event *job)
{
    struct cddpi_job_event event = *job;

    if (!node->runs) {
        return;
    }
    if (event.kind == CDDPI_JOB_CHANGED && sim_planted(SIM_PLANT_HASTY_CHANGE)) {
        sim.planted++;
        signal_ranks(node, SIGKILL);
    }
    sim_node_feed_job(node, &event);
}

static void catch_up(struct sim_node *node)
{
    static struct cddpi_membership_actions actions;

    cddpi_membership_catch_up(&node->members, &actions);
    for (int i = 0; i < actions.count; i++) {
        if (actions.list[i].kind == CDDPI_DO_TELL) {
            actions.list[i].job.now_ns = 0;
            sim_node_tell_job(node, &actions.list[i].job);
        } else if (actions.list[i].kind == CDDPI_DO_TELL_LOSS) {
            sim_link_tell_ranks(node, node->members.generation);
        }
    }
}

#define JOB(node, ...)                                                                             \
    sim_node_feed_job((node),                                                                      \
                      &(const struct cddpi_job_event){.culprit = -1, .node = -1, __VA_ARGS__})

bool sim_could_others(const struct sim_node *node)
{
    int able = 0;

    for (int i = 0; i < sim.node_count; i++) {
        const struct sim_node *other = &sim.nodes[i];
        bool is_there = other != node && other->is_alive && other->lost_at < 0 &&
                        !other->members.has_asked_leave && (other->is_first || other->has_joined);

        if (is_there && sim.hosts[other->host].unable_until_ns > 0) {
            return false; /* perhaps not */
        }
        able += is_there;
    }
    return sim.plan.has_store ? able > 0 : node != sim_leader();
}

/* The host has no process left, or its program is gone. */
static void fail_to_start(struct sim_node *node, int generation)
{
    sim_say("%s cannot start its ranks of generation %d", sim_node_name(node), generation);
    sim.may_end = sim.may_end || generation == 0 || !sim_could_others(node);
    sim.is_foggy = true;
    JOB(node, .kind = CDDPI_JOB_NOT_STARTED, .rank = -1, .text = "no process is left");
    catch_up(node);
    sim_node_settle(node);
}

void sim_node_start_ranks(struct sim_node *node, int generation)
{
    const struct cddpi_job_member *own = cddpi_membership_find(&node->members, node->number);

    if (node->is_over || node->members.phase != CDDPI_MEMBERS_RUN) {
        return;
    }
    generation = node->members.generation;
    memset(node->ranks, 0, sizeof node->ranks);
    node->job = (struct cddpi_job_state){.ranks = node->ranks,
                                         .count = own->ranks,
                                         .first_rank = own->first_rank,
                                         .grace_ms = sim.plan.grace_ms,
                                         .has_nodes = !sim.plan.is_alone};
    sim.groups[generation].world = node->members.world_size;
    cddpi_job_state_begin(&node->job);
    node->runs = true;
    node->took_part |= UINT64_C(1) << generation;
    for (int i = 0; i < own->ranks; i++) {
        if (sim.now_ns < sim.hosts[node->host].unable_until_ns) {
            fail_to_start(node, generation);
            return;
        }
        node->rank_ids[i] = sim_rank_start(node, own->first_rank + i);
        JOB(node, .kind = CDDPI_JOB_STARTED, .rank = own->first_rank + i);
    }
    JOB(node, .kind = CDDPI_JOB_BEGUN, .rank = -1);
    sim_say("%s starts ranks %d to %d of %d, generation %d", sim_node_name(node), own->first_rank,
            own->first_rank + own->ranks - 1, node->members.world_size, generation);
    catch_up(node);
    if (node->orphaned) {
        JOB(node, .kind = CDDPI_JOB_ORPHANED, .rank = -1, .text = "the launcher was killed");
    }
    sim_node_settle(node);
}
