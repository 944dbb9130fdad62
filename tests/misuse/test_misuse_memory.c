/* test_misuse_memory.c - every allocation of every function that creates something fails once: the
 * rank gets CDDP_ERR_NO_MEMORY with a message, the others an error, no rank hangs, and nothing
 * leaks. */
#include "base/alloc.h"
#include "support/misuse.h"

#include <cddp/spawn.h>

/* Of LeakSanitizer, where the tests are built with it. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

enum { SUCCEEDED = 42, ENOUGH = 3, MOST = 400, PHASE = 1000, PAIRS = 32, ALL = 2 * PAIRS };

enum { PAIR_TIMEOUT_MS = 10000 };

enum phase { JOIN, JOIN_ALONE, JOIN_BY, SPLIT, ALLOC, STORE, WATCH, WATCH_SHARDED };

static int check_leaks(void)
{
    CHECK(__lsan_do_recoverable_leak_check == NULL || __lsan_do_recoverable_leak_check() == 0);
    return 0;
}

static cddp_status broadcast(void *state, void *data, size_t bytes)
{
    return cddp_broadcast(state, data, bytes, CDDP_U8, 0, NULL);
}

static cddp_status all_gather(void *state, const void *own, size_t bytes, void *out_all)
{
    return cddp_all_gather(state, own, out_all, bytes, CDDP_U8, NULL);
}

/* Another group of the ranks of @p group, which meet by it. */
static cddp_status join_by(cddp_group *group)
{
    cddp_bootstrap bootstrap = CDDP_BOOTSTRAP_INIT;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *other = NULL;
    cddp_status status;

    bootstrap.state = group;
    bootstrap.rank = cddp_group_rank(group);
    bootstrap.world_size = cddp_group_world_size(group);
    bootstrap.broadcast = broadcast;
    bootstrap.all_gather = all_gather;
    options.timeout_ms = PAIR_TIMEOUT_MS;
    status = cddp_group_create_by(&bootstrap, &options, &other);
    cddp_group_destroy(other);
    return status;
}

/* Do what the phase creates, and release it. */
static cddp_status create(enum phase phase, cddp_group *group, struct misuse_model *model)
{
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;
    cddp_group *part = NULL;
    cddp_store *store;
    void *memory = NULL;
    cddp_status status;

    switch (phase) {
    case SPLIT:
        status = cddp_group_split(group, 0, -cddp_group_rank(group), &part);
        cddp_group_destroy(part);
        return status;
    case JOIN_BY:
        return join_by(group);
    case STORE:
        return cddp_group_store_create(group, &store);
    case ALLOC:
        status = cddp_group_alloc(group, 5000, 0, &memory);
        cddp_group_free(group, memory);
        return status;
    default:
        options.shard = phase == WATCH_SHARDED;
        status = cddp_ddp_create(group, model->params, MISUSE_PARAMS, NULL, 0, &options,
                                 &model->ddp);
        cddp_ddp_destroy(status == CDDP_OK ? model->ddp : NULL);
        return status;
    }
}

/* A failure anywhere: as the others see it, it may come with the next call. */
static cddp_status see_failure(cddp_group *group, cddp_status status)
{
    return status == CDDP_OK ? cddp_barrier(group, NULL) : status;
}

static int join(struct misuse *misuse, int rank, int size, int nth)
{
    bool fails = rank == size - 1;
    cddp_group *group = NULL;
    cddp_status status;

    cddpi_alloc_fail_nth(fails ? (unsigned)nth : 0);
    status = misuse_join(misuse, rank, size, &group);
    cddpi_alloc_fail_nth(0);
    if (status != CDDP_OK) {
        CHECK(!fails || misuse_gives(status, CDDP_ERR_NO_MEMORY, "memory"));
        CHECK(group == NULL && cddp_last_error()[0] != '\0');
    }
    cddp_group_destroy(group);
    CHECK(check_leaks() == 0);
    return status == CDDP_OK && fails ? SUCCEEDED : 0;
}

static int join_alone_rank(int rank, int size, void *argument)
{
    struct misuse *misuse = argument;

    return join(misuse, rank, size, misuse->which % PHASE);
}

static int create_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    enum phase phase = (enum phase)(misuse->which / PHASE);
    bool fails = rank == size - 1;
    struct misuse_model model;
    cddp_group *group;
    cddp_status status;

    CHECK(misuse_join(misuse, rank, size, &group) == CDDP_OK);
    CHECK(misuse_watch(&model, group, NULL) == CDDP_OK); /* for its parameters */
    CHECK(misuse_step(&model) == 0);
    cddp_ddp_destroy(model.ddp);
    cddpi_alloc_fail_nth(fails ? (unsigned)(misuse->which % PHASE) : 0);
    status = create(phase, group, &model);
    cddpi_alloc_fail_nth(0);
    if (fails && status != CDDP_OK) {
        CHECK(misuse_gives(status, CDDP_ERR_NO_MEMORY, "memory"));
    }
    if (!fails && status != CDDP_OK) {
        CHECK(misuse_gives(status, status, "rank") || misuse_gives(status, status, "memory"));
    }
    if (fails && status != CDDP_OK) {
        cddp_group_abort(group, cddp_last_error()); /* as a program that gives up does */
    }
    (void)see_failure(group, status);
    cddp_group_destroy(group);
    CHECK(check_leaks() == 0);
    return status == CDDP_OK && fails ? SUCCEEDED : 0;
}

/* Ranks 0 and 1 are a job, 2 and 3 another ...: in each a later allocation fails. Jobs mostly wait,
 * some for a rank that never says anything until their deadline, so they do it at the same time. */
static int pair_rank(int rank, int size, void *argument)
{
    struct misuse misuse = *(struct misuse *)argument;
    char job[sizeof misuse.job];

    (void)size;
    misuse.timeout_ms = misuse.which < PHASE ? PAIR_TIMEOUT_MS : SUPPORT_TIMEOUT_MS;
    snprintf(job, sizeof job, "%.40s-%d", misuse.job, rank / 2);
    memcpy(misuse.job, job, sizeof job);
    misuse.which += rank / 2;
    return misuse.which < PHASE ? join(&misuse, rank % 2, 2, misuse.which)
                                : create_rank(rank % 2, 2, &misuse);
}

/* What became of a try: failed as it should, or did not come so far. Counts both. */
struct tries {
    int failures;
    int in_a_row;
};

static void count_try(struct tries *tries, int status)
{
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SUCCEEDED) {
        tries->in_a_row++;
    } else {
        assert_int_equal(status, 0);
        tries->in_a_row = 0;
        tries->failures++;
    }
}

static void end_tries(const struct tries *tries)
{
    assert_true(tries->in_a_row >= ENOUGH);
    assert_true(tries->failures > 0);
    print_message("%d allocations failed\n", tries->failures);
}

/* Let the n-th allocation of a lone rank fail, for n from 1 on, until several in a row do not come
 * to it. */
static void fail_each_alone(struct misuse *misuse, enum phase phase)
{
    struct tries tries = {0, 0};

    for (int n = 1; tries.in_a_row < ENOUGH && n < MOST; n++) {
        int status = 0;

        (void)misuse_run(misuse, 1, phase == JOIN_ALONE ? join_alone_rank : create_rank,
                         (int)phase * PHASE + n, &status);
        count_try(&tries, status);
    }
    end_tries(&tries);
}

/* The same for jobs of two ranks, many at a time. */
static void fail_each_in_pairs(struct misuse *misuse, enum phase phase)
{
    struct tries tries = {0, 0};

    for (int n = 1; tries.in_a_row < ENOUGH && n < MOST; n += PAIRS) {
        int statuses[ALL] = {0};

        (void)misuse_run(misuse, ALL, pair_rank, (int)phase * PHASE + n, statuses);
        for (int pair = 0; pair < PAIRS; pair++) {
            assert_int_equal(statuses[2 * pair], 0);
            count_try(&tries, statuses[2 * pair + 1]);
        }
    }
    end_tries(&tries);
}

static void no_memory_while_joining_is_an_error(void **state)
{
    fail_each_alone(*state, JOIN_ALONE);
    fail_each_in_pairs(*state, JOIN);
}

static void no_memory_while_a_program_of_others_joins_is_an_error(void **state)
{
    fail_each_in_pairs(*state, JOIN_BY);
}

static void no_memory_for_a_store_of_the_group_is_an_error(void **state)
{
    fail_each_in_pairs(*state, STORE);
}

static void no_memory_for_a_part_is_an_error(void **state)
{
    fail_each_in_pairs(*state, SPLIT);
}

static void no_memory_for_shared_memory_is_an_error(void **state)
{
    fail_each_in_pairs(*state, ALLOC);
}

static void no_memory_for_a_model_is_an_error_of_all(void **state)
{
    fail_each_alone(*state, WATCH);
    fail_each_in_pairs(*state, WATCH);
    fail_each_in_pairs(*state, WATCH_SHARDED);
}

static cddp_status make_sample(void *state, uint64_t index, void *out)
{
    (void)state;
    *(uint64_t *)out = index;
    return CDDP_OK;
}

static cddp_status open_loader(void)
{
    cddp_loader_options options = CDDP_LOADER_OPTIONS_INIT;
    cddp_loader *loader = NULL;
    cddp_status status;

    options.samples = options.batch_size = 6;
    options.sample_bytes = sizeof(uint64_t);
    options.load = make_sample;
    options.order = CDDP_ORDER_RANDOM;
    status = cddp_loader_create(&options, &loader);
    cddp_loader_destroy(loader);
    return status;
}

static cddp_status spawned(void *state, int rank)
{
    (void)state;
    (void)rank;
    return CDDP_OK;
}

static cddp_status spawn_two(void)
{
    return cddp_spawn(2, spawned, NULL, NULL);
}

/* In one process, which goes on after each. */
static int fail_here(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    int in_a_row = 0;
    unsigned failures = 0;

    (void)rank;
    (void)size;
    for (unsigned n = 1; in_a_row < ENOUGH && n < MOST; n++) {
        cddp_status status;

        cddpi_alloc_fail_nth(n);
        status = misuse->which == 0 ? open_loader() : spawn_two();
        cddpi_alloc_fail_nth(0);
        CHECK(status == CDDP_OK || misuse_gives(status, CDDP_ERR_NO_MEMORY, "memory"));
        in_a_row = status == CDDP_OK ? in_a_row + 1 : 0;
        failures += status != CDDP_OK;
        CHECK(check_leaks() == 0);
    }
    CHECK(in_a_row == ENOUGH && failures > 0);
    printf("%u allocations failed\n", failures);
    return 0;
}

static void no_memory_for_a_loader_is_an_error(void **state)
{
    assert_int_equal(misuse_run(*state, 1, fail_here, 0, NULL), 0);
}

static void no_memory_to_spawn_ranks_is_an_error(void **state)
{
    assert_int_equal(misuse_run(*state, 1, fail_here, 1, NULL), 0);
}

int main(void)
{
    /* Hosts connect and measure their link for a part as for a job, and nobody waits for a rank
     * that has not begun to join. */
    const struct CMUnitTest between_hosts[] = {
        MISUSE_TEST(no_memory_for_a_part_is_an_error),
    };
    const struct CMUnitTest tests[] = {
        MISUSE_TEST(no_memory_for_a_part_is_an_error),
        MISUSE_TEST(no_memory_for_shared_memory_is_an_error),
        MISUSE_TEST(no_memory_for_a_model_is_an_error_of_all),
        MISUSE_TEST(no_memory_while_a_program_of_others_joins_is_an_error),
        MISUSE_TEST(no_memory_for_a_store_of_the_group_is_an_error),
        MISUSE_TEST(no_memory_for_a_loader_is_an_error),
        MISUSE_TEST(no_memory_to_spawn_ranks_is_an_error),
        MISUSE_TEST(no_memory_while_joining_is_an_error),
    };

    return getenv("TEST_HOSTS") != NULL ? cmocka_run_group_tests(between_hosts, NULL, NULL)
                                        : cmocka_run_group_tests(tests, NULL, NULL);
}
