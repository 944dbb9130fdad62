/* group.c - the ranks of one generation, which train together: they complete steps only together,
 * rank 0 writes checkpoints to the disk that all share, and a rank that is gone breaks the group of
 * the others. */
#include "tests/sim/sim.h"

#include <signal.h>

static struct sim_rank *rank_of(int generation, int number)
{
    return &sim.ranks[sim.groups[generation].ids[number]];
}

static int first_dead(const struct sim_group *group)
{
    for (int i = 0; i < group->world; i++) {
        if (!sim.ranks[group->ids[i]].is_alive) {
            return i;
        }
    }
    return -1;
}

/* Without node 0's store, a node that was frozen, and given up, may wake with rank 0, or with all
 * ranks of its generation. What it writes then is swept away by the next generation (snapshot.h),
 * but for what its ranks begin before their supervisor, which wakes with them, hears of its loss.
 * Nothing can prevent that (doc/reliability.md); here its ranks wait for their end. */
static bool is_given_up(int generation)
{
    const struct sim_group *group = &sim.groups[generation];

    return sim.plan.has_store && generation < sim.last_formed &&
           sim.nodes[sim.ranks[group->ids[0]].node].lost_at >= 0;
}

void sim_group_joined(int generation)
{
    struct sim_group *group = &sim.groups[generation];

    if (group->joined < group->world || group->is_formed) {
        return;
    }
    if (group->is_broken) { /* one has died since it came */
        sim_group_fail(generation, first_dead(group), false);
        return;
    }
    if (is_given_up(generation)) {
        sim_say("generation %d would begin: its node was frozen, and hears that it is given up",
                generation);
        return;
    }
    group->is_formed = true;
    group->first_step = group->step = sim.disk.step;
    group->is_harmed = group->is_harmed || group->is_broken;
    sim_say("generation %d begins: %d ranks, from step %d", generation, group->world, group->step);
    sim_rule_formed(generation);
    sim_in(sim.plan.step_ns, SIM_STEP, generation, 0, 0);
}

/* The others learn that rank @p culprit is gone, each at its time: a process whose host lives is
 * missed at once, another host's after a silence. */
void sim_group_fail(int generation, int culprit, bool is_silent)
{
    struct sim_group *group = &sim.groups[generation];
    int from = culprit >= 0 && group->ids[culprit] >= 0 ? rank_of(generation, culprit)->host : -1;

    group->is_broken = true;
    for (int i = 0; i < group->world; i++) {
        int id = group->ids[i];
        int64_t delay_ns = sim_between(1, 60) * SIM_MS;

        if (id < 0 || !sim.ranks[id].is_alive) {
            continue;
        }
        if (is_silent || (from >= 0 && !sim_can_reach(sim.ranks[id].host, from))) {
            delay_ns += (sim.plan.limit_ms + CDDPI_SILENCE_SPARE_MS) * SIM_MS;
        }
        sim_in(delay_ns, SIM_RANK_FAILS, id, culprit, 0);
    }
}

void sim_group_lost(int generation, int rank, bool is_silent)
{
    struct sim_group *group = &sim.groups[generation];

    if (!group->is_formed || group->is_broken || group->is_finished) {
        group->is_broken = group->is_broken || !group->is_finished;
        return;
    }
    if (group->has_ended_early) {
        return;
    }
    sim_group_fail(generation, rank, is_silent);
}

/* Whoever still waits for ranks of the generation ends. */
void sim_group_told(int generation)
{
    struct sim_group *group = &sim.groups[generation];

    group->is_told = true;
    for (int i = 0; i < group->world && !group->is_formed; i++) {
        int id = group->ids[i];

        if (id >= 0 && sim.ranks[id].is_alive && sim.ranks[id].has_joined) {
            sim_in(sim_between(1, 300) * SIM_MS, SIM_RANK_FAILS, id, -1, 0);
        }
    }
}

/* A rank that keeps the others from completing a step; -1: none. */
static int find_obstacle(const struct sim_group *group)
{
    for (int i = 0; i < group->world; i++) {
        const struct sim_rank *rank = &sim.ranks[group->ids[i]];

        if (!rank->is_alive || rank->is_stuck || sim_is_frozen(rank->host)) {
            return i;
        }
        for (int k = 0; k < i; k++) {
            if (!sim_can_reach(rank->host, sim.ranks[group->ids[k]].host)) {
                return rank->host != sim.ranks[group->ids[0]].host ? i : k;
            }
        }
    }
    return -1;
}

/* Whether a rank that runs, on another host, misses this one. */
static bool is_missed(const struct sim_group *group, int obstacle)
{
    for (int i = 0; i < group->world; i++) {
        const struct sim_rank *rank = &sim.ranks[group->ids[i]];

        if (i != obstacle && rank->is_alive && !rank->is_stuck && !sim_is_frozen(rank->host)) {
            return true;
        }
    }
    return sim.ranks[group->ids[obstacle]].is_stuck;
}

/* The step cannot be completed now. */
static void stall(int generation, int obstacle)
{
    struct sim_group *group = &sim.groups[generation];
    const struct sim_rank *rank = rank_of(generation, obstacle);
    bool is_stuck = rank->is_stuck || sim.now_ns < sim.hosts[rank->host].answers_until_ns;
    int64_t limit_ns = is_stuck ? sim.plan.group_ms * SIM_MS
                                : (sim.plan.limit_ms + CDDPI_SILENCE_SPARE_MS) * SIM_MS;

    if (group->stalled_ns == 0 || !is_missed(group, obstacle)) {
        group->stalled_ns = sim.now_ns;
    }
    if (sim.now_ns - group->stalled_ns < limit_ns) {
        sim_in(sim.plan.step_ns, SIM_STEP, generation, 0, 0);
        return;
    }
    sim_say("generation %d: rank %d has not answered for too long", generation, obstacle);
    group->is_harmed = true;
    sim_group_fail(generation, obstacle, false);
}

static void save(int generation, bool is_last)
{
    struct sim_group *group = &sim.groups[generation];
    int64_t takes_ns = sim.plan.save_ns;

    if (sim.now_ns < sim.disk.slow_until_ns) {
        takes_ns *= 20;
    }
    group->is_saving = true;
    group->is_last_save = is_last;
    group->save_began_ns = sim.now_ns;
    group->save++;
    sim_in(500 * SIM_MS, SIM_SAVING, generation, 0, 0);
    sim_in(takes_ns, SIM_SAVED, generation, 0, group->save);
}

void sim_group_step(int generation)
{
    struct sim_group *group = &sim.groups[generation];
    int obstacle;

    if (group->is_broken || group->is_finished || group->is_saving) {
        return;
    }
    obstacle = find_obstacle(group);
    if (obstacle >= 0) {
        stall(generation, obstacle);
        return;
    }
    if (is_given_up(generation)) {
        sim_say("generation %d computes: its node was frozen, and hears that it is given up",
                generation);
        return;
    }
    group->stalled_ns = 0;
    sim_rule_progress(generation, "completes a step");
    group->step++;
    if (group->step >= sim.plan.steps || group->is_asked) {
        save(generation, true);
    } else if (group->step % sim.plan.save_every == 0) {
        save(generation, false);
    } else {
        sim_in(sim.plan.step_ns, SIM_STEP, generation, 0, 0);
    }
}

static void to_first(int generation, enum cddpi_job_event_kind kind)
{
    const struct sim_rank *rank = rank_of(generation, 0);
    struct sim_node *node = &sim.nodes[rank->node];

    if (node->is_alive && node->runs && node->members.generation == generation) {
        sim_node_job(node, &(const struct cddpi_job_event){.kind = kind, .rank = -1, .node = -1});
    }
}

void sim_group_saving(int generation)
{
    struct sim_group *group = &sim.groups[generation];

    if (!group->is_saving || !rank_of(generation, 0)->is_alive) {
        return;
    }
    for (int i = 0; i < group->world; i++) { /* every rank says so to its own cddp-run */
        const struct sim_rank *rank = rank_of(generation, i);
        struct sim_node *node = &sim.nodes[rank->node];

        if (rank->is_alive && node->is_alive && node->runs &&
            node->members.generation == generation && !sim_is_frozen(node->host)) {
            sim_node_job(node, &(const struct cddpi_job_event){
                                   .kind = CDDPI_JOB_SAVING, .rank = -1, .node = -1});
        }
    }
    sim_in(500 * SIM_MS, SIM_SAVING, generation, 0, 0);
}

static void exit_all(int generation, int exit_status)
{
    struct sim_group *group = &sim.groups[generation];

    int64_t most_ms = sim_chance(20) ? 4000 : 300; /* some clear up for long */

    group->is_finished = true;
    for (int i = 0; i < group->world; i++) {
        if (sim.ranks[group->ids[i]].is_alive) {
            sim_in(sim_between(1, most_ms) * SIM_MS, SIM_RANK_EXITS, group->ids[i], exit_status, 0);
        }
    }
}

void sim_group_saved(int generation, int number)
{
    struct sim_group *group = &sim.groups[generation];
    bool is_late = sim_planted(SIM_PLANT_LATE_WRITE);
    bool waits = group->is_last_save && sim.now_ns - group->save_began_ns < 20 * SIM_S;

    if (group->save != number || !group->is_saving ||
        (!rank_of(generation, 0)->is_alive && !is_late)) {
        return;
    }
    if (is_late && !rank_of(generation, 0)->is_alive &&
        sim.now_ns < group->save_began_ns + 5 * SIM_S) {
        sim.planted++;
        sim_in(SIM_S, SIM_SAVED, generation, 0, number);
        return;
    }
    if (sim.now_ns < sim.disk.full_until_ns) {
        if (waits) {
            sim_in(500 * SIM_MS, SIM_SAVED, generation, 0, number);
            return;
        }
        sim_say("generation %d: the disk is full, so step %d is not saved", generation,
                group->step);
    } else if (is_given_up(generation)) {
        sim_say("generation %d finds its checkpoint swept away by the next one", generation);
    } else {
        sim_rule_progress(generation, "writes a checkpoint");
        sim_rule_checkpoint(generation, group->step);
        sim.disk.step = group->step;
        sim.disk.generation = generation;
        sim_say("generation %d has saved step %d", generation, group->step);
        to_first(generation, CDDPI_JOB_SAVED);
    }
    group->is_saving = false;
    if (group->is_broken) {
        return;
    }
    if (!group->is_last_save) {
        sim_in(sim.plan.step_ns, SIM_STEP, generation, 0, 0);
    } else if (sim.disk.step != group->step) {
        exit_all(generation, 1);
    } else if (group->step >= sim.plan.steps) {
        exit_all(generation, 0);
    } else {
        group->has_ended_early = true;
        exit_all(generation, CDDPI_STOPPED_EARLY);
    }
}
