/* test_misuse_memory.c - every allocation of what creates something fails once: the rank gets
 * CDDP_ERR_NO_MEMORY with a sentence, the others an error, nobody hangs, and nothing leaks. */
#include "base/alloc.h"
#include "support/misuse.h"

/* Of LeakSanitizer, where the tests are built with it. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

enum { SUCCEEDED = 42, ENOUGH = 3, MOST = 400, PHASE = 1000 };

enum phase { JOIN, JOIN_ALONE, SPLIT, ALLOC, WATCH, WATCH_SHARDED };

static int check_leaks(void)
{
    CHECK(__lsan_do_recoverable_leak_check == NULL || __lsan_do_recoverable_leak_check() == 0);
    return 0;
}

/* Do what the phase creates, and release it. */
static cddp_status create(enum phase phase, cddp_group *group, struct misuse_model *model)
{
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;
    cddp_group *part = NULL;
    void *memory = NULL;
    cddp_status status;

    switch (phase) {
    case SPLIT:
        status = cddp_group_split(group, 0, -cddp_group_rank(group), &part);
        cddp_group_destroy(part);
        return status;
    case ALLOC:
        status = cddp_group_alloc(group, 5000, &memory);
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

static int join_rank(int rank, int size, void *argument)
{
    struct misuse *misuse = argument;
    bool fails = rank == size - 1;
    cddp_group *group = NULL;
    cddp_status status;

    misuse->timeout_ms = 2000; /* of ranks that wait for one that never says anything */
    cddpi_alloc_fail_nth(fails ? (unsigned)(misuse->which % PHASE) : 0);
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

static int create_rank(int rank, int size, void *argument)
{
    const struct misuse *misuse = argument;
    bool fails = rank == size - 1;
    struct misuse_model model;
    cddp_group *group;
    cddp_status status;

    CHECK(misuse_join(misuse, rank, size, &group) == CDDP_OK);
    CHECK(misuse_watch(&model, group, NULL) == CDDP_OK); /* for its parameters */
    CHECK(misuse_step(&model) == 0);
    cddp_ddp_destroy(model.ddp);
    cddpi_alloc_fail_nth(fails ? (unsigned)(misuse->which % PHASE) : 0);
    status = create((enum phase)(misuse->which / PHASE), group, &model);
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

/* Let the n-th allocation fail, for n from 1 on, until several in a row do not come to it. */
static void fail_each(struct misuse *misuse, enum phase phase, int size)
{
    bool joins = phase == JOIN || phase == JOIN_ALONE;
    int failures = 0;
    int in_a_row = 0;

    for (int n = 1; in_a_row < ENOUGH && n < MOST; n++) {
        int statuses[3] = {0};

        (void)misuse_run(misuse, size, joins ? join_rank : create_rank, (int)phase * PHASE + n,
                         statuses);
        for (int rank = 0; rank < size - 1; rank++) {
            assert_int_equal(statuses[rank], 0);
        }
        assert_true(WIFEXITED(statuses[size - 1]));
        if (WEXITSTATUS(statuses[size - 1]) == SUCCEEDED) {
            in_a_row++;
        } else {
            assert_int_equal(statuses[size - 1], 0);
            in_a_row = 0;
            failures++;
        }
    }
    assert_int_equal(in_a_row, ENOUGH);
    assert_true(failures > 0);
    print_message("%d allocations failed\n", failures);
}

static void no_memory_while_joining_is_an_error(void **state)
{
    fail_each(*state, JOIN_ALONE, 1);
    fail_each(*state, JOIN, 2);
}

static void no_memory_for_a_part_is_an_error(void **state)
{
    fail_each(*state, SPLIT, 2);
}

static void no_memory_for_shared_memory_is_an_error(void **state)
{
    fail_each(*state, ALLOC, 2);
}

static void no_memory_for_a_model_is_an_error_of_all(void **state)
{
    fail_each(*state, WATCH, 1);
    fail_each(*state, WATCH, 2);
    fail_each(*state, WATCH_SHARDED, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {

        MISUSE_TEST(no_memory_for_a_part_is_an_error),
        MISUSE_TEST(no_memory_for_shared_memory_is_an_error),
        MISUSE_TEST(no_memory_for_a_model_is_an_error_of_all),
        MISUSE_TEST(no_memory_while_joining_is_an_error), /* slow: some wait for their deadline */
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
