/* job_world.c - the simulated job, and the rules. */
#include "launcher/job_world.h"

void world_begin(struct world *world, const char *history, int count, int64_t grace_ms,
                 bool has_nodes)
{
    memset(world, 0, sizeof *world);
    world->history = history;
    world->state.ranks = world->ranks;
    world->state.count = count;
    world->state.first_rank = FIRST_RANK;
    world->state.grace_ms = grace_ms;
    world->state.has_nodes = has_nodes;
    world->first = -1;
    world->named = -1;
    world->now_ns = INT64_C(1000000000);
    for (int i = 0; i < MOST_RANKS; i++) {
        world->told_ns[i] = -1;
    }
    cddpi_job_state_begin(&world->state);
}

int world_count(const struct world *world, enum cddpi_job_action_kind kind)
{
    int count = 0;

    for (int i = 0; i < world->actions.count; i++) {
        count += world->actions.list[i].kind == kind;
    }
    return count;
}

bool world_sends(const struct world *world, int number)
{
    for (int i = 0; i < world->actions.count; i++) {
        if (world->actions.list[i].kind == CDDPI_JOB_SIGNAL_GROUPS &&
            world->actions.list[i].number == number) {
            return true;
        }
    }
    return false;
}

/* Who is killed was asked before and had the grace period, unless what came allows no waiting. */
static void check_kill(struct world *world)
{
    int64_t grace_ns = world->state.grace_ms * 1000000;

    world->is_killed = true;
    for (int i = 0; i < world->state.count && !world->may_kill; i++) {
        HOLDS(world, !world->is_alive[i] ||
                         (world->told_ns[i] >= 0 && world->now_ns - world->told_ns[i] >= grace_ns));
    }
}

/* Whether the rank that was named failed first, or the first to fail says that it is the cause. A
 * rank that ends because a signal asks for it fails nobody. */
static bool is_to_blame(const struct world *world)
{
    return world->state.asked_signal != 0 || world->named == world->first ||
           world->named == world->ranks[world->first - FIRST_RANK].culprit;
}

static void check_action(struct world *world, const struct cddpi_job_action *action)
{
    bool is_request = action->number == SIGTERM || action->number == SIGINT ||
                      action->number == SIGHUP;

    switch (action->kind) {
    case CDDPI_JOB_SIGNAL_GROUPS:
        if (action->number == SIGKILL) {
            check_kill(world);
        }
        for (int i = 0; i < world->state.count && is_request; i++) {
            world->told_ns[i] = world->now_ns;
        }
        break;
    case CDDPI_JOB_SAY_END: /* one rank is to blame, and it has ended badly */
        HOLDS(world, world->named < 0);
        world->named = action->rank;
        HOLDS(world, is_to_blame(world));
        HOLDS(world, !world->is_alive[action->rank - world->state.first_rank]);
        HOLDS(world, world->ends[action->rank - world->state.first_rank] != 0);
        break;
    case CDDPI_JOB_PUBLISH_FAILURE:
    case CDDPI_JOB_PUBLISH_FOLLOW:
        HOLDS(world, world->state.has_nodes && ++world->published == 1);
        HOLDS(world, action->exit_status != 0);
        break;
    case CDDPI_JOB_ABANDON: /* only what was killed and did not end */
        HOLDS(world, world->is_killed);
        memset(world->is_alive, 0, sizeof world->is_alive);
        break;
    default:
        break;
    }
}

static int count_alive(const struct world *world)
{
    int alive = 0;

    for (int i = 0; i < world->state.count; i++) {
        alive += world->is_alive[i];
    }
    return alive;
}

/* Where nobody says anything any more, time alone leads to the end, unless the job just runs. */
static void check_that_time_ends_it(const struct world *world)
{
    struct world copy = *world;

    copy.state.ranks = copy.ranks;
    for (int i = 0; i < 5 && copy.state.phase != CDDPI_JOB_OVER; i++) {
        struct cddpi_job_event time = {.kind = CDDPI_JOB_TIME, .now_ns = copy.state.deadline_ns};

        HOLDS(world, copy.state.deadline_ns != CDDPI_JOB_NEVER);
        cddpi_job_state_step(&copy.state, &time, &copy.actions);
    }
    HOLDS(world, copy.state.phase == CDDPI_JOB_OVER);
    HOLDS(world, copy.state.outcome.exit_status != 0);
}

static void check_state(struct world *world)
{
    const struct cddpi_job_state *state = &world->state;

    HOLDS(world, state->alive == count_alive(world));
    HOLDS(world, state->phase == CDDPI_JOB_STARTS || state->phase == CDDPI_JOB_RUNS ||
                     state->alive > 0 || state->phase == CDDPI_JOB_OVER);
    HOLDS(world, state->phase != CDDPI_JOB_OVER || state->alive == 0);
    HOLDS(world, !state->outcome.may_restart ||
                     (state->outcome.exit_status != 0 && state->asked_signal == 0));
    HOLDS(world, world->named < 0 || world->is_overruled ||
                     state->outcome.exit_status == world->ends[world->named - FIRST_RANK]);
    HOLDS(world,
          !world->is_killed || state->phase == CDDPI_JOB_KILLED || state->phase == CDDPI_JOB_OVER);
    if (state->phase == CDDPI_JOB_OVER && state->outcome.exit_status == 0) {
        for (int i = 0; i < state->count; i++) { /* what failed has not been forgotten */
            HOLDS(world, world->ends[i] == 0);
        }
    }
    if (state->phase != CDDPI_JOB_STARTS && state->phase != CDDPI_JOB_RUNS &&
        state->phase != CDDPI_JOB_OVER) {
        check_that_time_ends_it(world);
    }
}

void world_feed(struct world *world, struct cddpi_job_event event)
{
    struct cddpi_job_state *state = &world->state;
    bool ends_all = event.kind == CDDPI_JOB_NOT_STARTED || event.kind == CDDPI_JOB_ORPHANED ||
                    (event.kind == CDDPI_JOB_NOT_EXECUTED &&
                     !world->ranks[event.rank - FIRST_RANK].is_executed);
    bool changes = event.kind == CDDPI_JOB_CHANGED &&
                   (state->phase == CDDPI_JOB_RUNS || state->phase == CDDPI_JOB_HEARS);

    event.now_ns = world->now_ns;
    world->seen[state->phase] |= 1u << event.kind;
    if (event.kind == CDDPI_JOB_STARTED) {
        world->is_alive[event.rank - state->first_rank] = true;
    } else if (event.kind == CDDPI_JOB_ENDED) {
        world->is_alive[event.rank - state->first_rank] = false;
        world->ends[event.rank - state->first_rank] = event.exit_status;
        world->first = world->first < 0 && event.exit_status != 0 ? event.rank : world->first;
    } else if (event.kind == CDDPI_JOB_SAVING) {
        for (int i = 0; i < state->count; i++) {
            world->told_ns[i] = world->told_ns[i] >= 0 ? world->now_ns : -1;
        }
    }
    for (int i = 0; changes && i < state->count; i++) {
        world->told_ns[i] = world->now_ns; /* if no signal tells them, they know */
    }
    world->may_kill = ends_all || event.kind == CDDPI_JOB_SIGNALLED || state->grace_ms == 0;
    world->is_overruled = world->is_overruled || event.kind == CDDPI_JOB_NOT_EXECUTED ||
                          event.kind == CDDPI_JOB_ORPHANED || event.is_given_up ||
                          (event.kind == CDDPI_JOB_SIGNALLED && state->phase == CDDPI_JOB_OVER);
    cddpi_job_state_step(state, &event, &world->actions);
    for (int i = 0; i < world->actions.count; i++) {
        check_action(world, &world->actions.list[i]);
    }
    HOLDS(world, !ends_all || state->phase >= CDDPI_JOB_KILLED);
    check_state(world);
}

void world_start(struct world *world)
{
    for (int i = 0; i < world->state.count; i++) {
        FEED(world, .kind = CDDPI_JOB_STARTED, .rank = FIRST_RANK + i);
    }
    FEED(world, .kind = CDDPI_JOB_BEGUN);
}

void world_end_rank(struct world *world, int rank, int exit_status)
{
    FEED(world, .kind = CDDPI_JOB_ENDED, .rank = rank, .exit_status = exit_status);
}

void world_wait(struct world *world, int64_t milliseconds)
{
    world->now_ns += milliseconds * 1000000;
    FEED(world, .kind = CDDPI_JOB_TIME);
}
