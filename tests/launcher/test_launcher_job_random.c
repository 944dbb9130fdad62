/* test_launcher_job_random.c - thousands of jobs with random events in random order: the rules of
 * job_world.c hold in all of them. */
#include "launcher/job_world.h"

enum { HISTORIES = 4000, MOST_STEPS = 10000 };

/* The same numbers on all machines. */
static uint32_t random_number(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*seed >> 8) * below >> 24);
}

static int random_rank(const struct world *world, uint32_t *seed)
{
    return FIRST_RANK + (int)random_number(seed, (uint32_t)world->state.count);
}

static void end_one(struct world *world, uint32_t *seed)
{
    static const int ends[] = {0, 1, 7, CDDPI_STOPPED_EARLY, 128 + SIGKILL, 128 + SIGTERM};
    int rank = random_rank(world, seed);
    int exit_status = ends[random_number(seed, 6)];

    if (world->is_alive[rank - FIRST_RANK]) {
        world_end_rank(world, rank, world->is_killed ? 128 + SIGKILL : exit_status);
    }
}

static void blame_one(struct world *world, uint32_t *seed)
{
    int rank = random_rank(world, seed);
    int culprit = world->state.has_nodes && random_number(seed, 2) == 0 ? ELSEWHERE
                                                                        : random_rank(world, seed);

    if (world->is_alive[rank - FIRST_RANK] && culprit != rank) {
        FEED(world, .kind = CDDPI_JOB_BLAMED, .rank = rank, .culprit = culprit);
    }
}

/* A second request ends the waiting, and a terminal that is closed never does. */
static void send_signal(struct world *world, uint32_t *seed)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP, SIGCONT};
    int number = numbers[random_number(seed, 6)];
    int node = world->state.has_nodes ? (int)random_number(seed, 2) : -1;
    bool is_second = (number == SIGINT || number == SIGTERM) && world->state.asked_signal != 0 &&
                     (!world->state.is_change || world->state.is_asked) &&
                     node == world->state.asked_node &&
                     world->now_ns - world->state.asked_ns > INT64_C(200000000);

    FEED(world, .kind = CDDPI_JOB_SIGNALLED, .number = number, .node = node);
    HOLDS(world, !is_second || world->state.phase >= CDDPI_JOB_KILLED);
    HOLDS(world, number != SIGHUP || !world_sends(world, SIGKILL));
}

static void let_something_happen(struct world *world, uint32_t *seed)
{
    uint32_t which = random_number(seed, 43);

    if (which < 14) {
        end_one(world, seed);
    } else if (which < 21) {
        world_wait(world, random_number(seed, 2 * GRACE_MS));
    } else if (which < 24) {
        blame_one(world, seed);
    } else if (which < 27) {
        send_signal(world, seed);
    } else if (which < 30) {
        FEED(world, .kind = CDDPI_JOB_EXECUTED, .rank = random_rank(world, seed));
    } else if (which < 33) {
        FEED(world, .kind = CDDPI_JOB_SAVING);
    } else if (which < 35) {
        FEED(world, .kind = CDDPI_JOB_HEARD, .exit_status = 9, .may_restart = true);
    } else if (which < 37) {
        FEED(world, .kind = CDDPI_JOB_FAILED_THERE, .exit_status = 9, .may_restart = true);
    } else if (which < 38) {
        FEED(world, .kind = CDDPI_JOB_SAVED);
    } else if (which < 39) {
        FEED(world, .kind = CDDPI_JOB_KEPT);
    } else if (which < 40) {
        FEED(world, .kind = CDDPI_JOB_ORPHANED);
    } else if (which < 42) {
        FEED(world, .kind = CDDPI_JOB_CHANGED, .number = random_number(seed, 2) == 0 ? SIGTERM : 0);
    } else {
        FEED(world, .kind = CDDPI_JOB_NOT_EXECUTED, .rank = random_rank(world, seed),
             .exit_status = 127);
    }
}

/* All that happens to a job until nothing is left of it. */
static void live(struct world *world, const char *history, uint32_t *seed)
{
    int count = 1 + (int)random_number(seed, MOST_RANKS);
    bool has_nodes = random_number(seed, 2) == 0;

    world_begin(world, history, count, random_number(seed, 8) == 0 ? 0 : GRACE_MS, has_nodes);
    world->state.is_silent = has_nodes && random_number(seed, 2) == 0;
    if (random_number(seed, 50) == 0) { /* a rank cannot be started */
        FEED(world, .kind = CDDPI_JOB_STARTED, .rank = FIRST_RANK);
        FEED(world, .kind = CDDPI_JOB_NOT_STARTED);
    } else {
        world_start(world);
    }
    for (int steps = 0; world->state.phase != CDDPI_JOB_OVER; steps++) {
        HOLDS(world, steps < MOST_STEPS);
        let_something_happen(world, seed);
    }
    send_signal(world, seed);
}

static void random_histories_keep_the_rules_and_reach_every_phase(void **state)
{
    unsigned while_running = (1u << (CDDPI_JOB_TIME + 1)) - (1u << CDDPI_JOB_EXECUTED);
    unsigned seen[CDDPI_JOB_OVER + 1] = {0};
    uint32_t seed = 1;

    (void)state;
    for (int i = 0; i < HISTORIES; i++) {
        struct world world;
        char history[32];

        snprintf(history, sizeof history, "history %d", i);
        live(&world, history, &seed);
        for (int phase = 0; phase <= CDDPI_JOB_OVER; phase++) {
            seen[phase] |= world.seen[phase];
        }
    }
    for (int phase = CDDPI_JOB_RUNS; phase < CDDPI_JOB_OVER; phase++) {
        if ((seen[phase] & while_running) != while_running) {
            fail_msg("in phase %d only events %#x came", phase, seen[phase]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories_keep_the_rules_and_reach_every_phase),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
