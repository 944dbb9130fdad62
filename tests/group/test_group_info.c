/* test_group_info.c - what a group tells about itself: in one piece, to any thread, after a failure
 * and in a fork. */
#include "support/failure.h"
#include "support/group.h"
#include "support/test.h"

#include <cddp/ddp.h>
#include <pthread.h>

/* A rank with its group of @p n ranks of this machine. */
struct rank_in_group {
    cddp_group *group;
    int rank, n;
};

static int info_is_right(const cddp_group *group, int rank, int n, cddp_group_state state)
{
    cddp_group_info info = group_info(group);

    CHECK(info.struct_size == sizeof info && info.state == state);
    CHECK(info.rank == rank && info.world_size == n);
    CHECK(info.local_rank == rank && info.local_world_size == n && info.host == 0);
    CHECK(info.device == -1 && info.stream == NULL);
    CHECK(info.timeout_ms == SUPPORT_TIMEOUT_MS && info.generation == 0 && info.reserved == 0);
    CHECK(strcmp(info.backend, "host") == 0);
    return 0;
}

static void *ask_in_thread(void *argument)
{
    const struct rank_in_group *at = argument;

    return info_is_right(at->group, at->rank, at->n, CDDP_GROUP_OPEN) == 0 ? argument : NULL;
}

/* The questions that a forked child may ask. */
static int ask_in_fork(const cddp_group *group, int rank, int n, cddp_group_state state)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(info_is_right(group, rank, n, state) != 0 || cddp_group_rank(group) != rank ||
              cddp_group_world_size(group) != n ||
              cddp_group_translate(group, rank, NULL) != rank ||
              cddp_group_translate(NULL, n - 1, group) != n - 1);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    return 0;
}

static int asking_rank(int rank, int n, void *seed)
{
    cddp_group_info info = CDDP_GROUP_INFO_INIT;
    struct rank_in_group at = {NULL, rank, n};
    pthread_t thread;
    void *result;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &at.group) == CDDP_OK);
    CHECK(info_is_right(at.group, rank, n, CDDP_GROUP_OPEN) == 0);
    CHECK(pthread_create(&thread, NULL, ask_in_thread, &at) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == &at);
    CHECK(ask_in_fork(at.group, rank, n, CDDP_GROUP_OPEN) == 0);
    CHECK(cddp_barrier(at.group, NULL) == CDDP_OK);
    if (rank == 0) { /* it knows at once, and the others as soon as they look */
        cddp_group_abort(at.group, "enough");
        CHECK(info_is_right(at.group, rank, n, CDDP_GROUP_BROKEN) == 0);
    }
    CHECK(cddp_barrier(at.group, NULL) != CDDP_OK);
    CHECK(info_is_right(at.group, rank, n, CDDP_GROUP_BROKEN) == 0);
    cddp_group_destroy(at.group);
    CHECK(cddp_group_get_info(at.group, &info) == CDDP_ERR_CLOSED && info.rank == 0);
    return 0;
}

static void a_group_tells_all_of_itself_at_once(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        struct group_seed seed;

        assert_int_equal(group_seed_create(n, &seed), CDDP_OK);
        assert_int_equal(run_ranks(n, asking_rank, &seed), 0);
        close(seed.fd);
    }
}

/* The group is destroyed before what needs it. */
static int keeping_rank(int rank, int n, void *seed)
{
    cddp_group_info info = CDDP_GROUP_INFO_INIT;
    float value = 1;
    cddp_param param = {.name = "w", .dims = 1, .shape = {1}, .data = &value};
    cddp_group *group;
    cddp_ddp *ddp;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_ddp_create(group, &param, 1, NULL, 0, NULL, &ddp) == CDDP_OK);
    cddp_group_destroy(group);
    CHECK(info_is_right(group, rank, n, CDDP_GROUP_CLOSED) == 0);
    CHECK(ask_in_fork(group, rank, n, CDDP_GROUP_CLOSED) == 0);
    CHECK(cddp_barrier(group, NULL) == CDDP_ERR_CLOSED);
    cddp_ddp_destroy(ddp);
    CHECK(cddp_group_get_info(group, &info) == CDDP_ERR_CLOSED);
    return 0;
}

static void a_closed_group_that_is_kept_answers_questions(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++) {
        struct group_seed seed;

        assert_int_equal(group_seed_create(n, &seed), CDDP_OK);
        assert_int_equal(run_ranks(n, keeping_rank, &seed), 0);
        close(seed.fd);
    }
}

static void an_info_without_its_initialiser_is_refused(void **state)
{
    cddp_group_info info = {0};
    cddp_group *group;

    (void)state;
    assert_int_equal(cddp_group_create(NULL, &group), CDDP_OK);
    assert_true(failure_is(cddp_group_get_info(group, &info), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("CDDP_GROUP_INFO_INIT"));
    assert_int_equal(cddp_group_get_info(group, NULL), CDDP_ERR_ARGUMENT);
    cddp_group_destroy(group);
}

/* The odd ranks in reverse order; then all but the first of them. */
static int translating_rank(int rank, int n, void *seed)
{
    cddp_group *whole;
    cddp_group *part;
    cddp_group *inner;
    int size;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &whole) == CDDP_OK);
    CHECK(cddp_group_split(whole, rank % 2, -rank, &part) == CDDP_OK);
    size = cddp_group_world_size(part);
    CHECK(cddp_group_split(part, cddp_group_rank(part) > 0 ? 1 : -1, 0, &inner) == CDDP_OK);
    for (int r = 0; r < n; r++) {
        int there = cddp_group_translate(whole, r, part);

        CHECK(there == cddp_group_translate(NULL, r, part));
        CHECK(r % 2 == rank % 2 ? there == size - 1 - r / 2 : there == -1);
        CHECK(there < 0 || cddp_group_translate(part, there, NULL) == r);
        CHECK(there < 0 || cddp_group_translate(part, there, whole) == r);
        if (inner != NULL) {
            CHECK(cddp_group_translate(whole, r, inner) == (there > 0 ? there - 1 : -1));
        }
    }
    CHECK(cddp_group_translate(part, size, whole) == -1);
    CHECK(cddp_group_translate(part, -1, whole) == -1 && cddp_group_translate(NULL, n, part) == -1);
    cddp_group_destroy(inner);
    cddp_group_destroy(part);
    cddp_group_destroy(whole);
    return 0;
}

static void ranks_are_translated_between_parts_and_the_job(void **state)
{
    struct group_seed seed;

    (void)state;
    assert_int_equal(group_seed_create(5, &seed), CDDP_OK);
    assert_int_equal(run_ranks(5, translating_rank, &seed), 0);
    close(seed.fd);
}

static void groups_of_different_jobs_have_no_ranks_in_common(void **state)
{
    cddp_group *groups[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cddp_group_create(NULL, &groups[i]), CDDP_OK);
    }
    assert_int_equal(cddp_group_translate(groups[0], 0, groups[0]), 0);
    assert_int_equal(cddp_group_translate(groups[0], 0, groups[1]), -1);
    for (int i = 0; i < 2; i++) {
        cddp_group_destroy(groups[i]);
    }
}

/* Rank 0 stays away until the others have given up. */
static int limited_rank(int rank, int n, void *seed)
{
    cddp_group *group;
    int64_t start;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &group) == CDDP_OK);
    CHECK(cddp_group_set_timeout(group, 200) == CDDP_OK && group_info(group).timeout_ms == 200);
    CHECK(cddp_group_set_timeout(group, CDDP_TIMEOUT_DEFAULT) == CDDP_OK);
    CHECK(group_info(group).timeout_ms == 300000);
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    start = cddpi_now_ns();
    if (rank > 0) {
        CHECK(cddp_group_set_timeout(group, 200) == CDDP_OK);
        CHECK(cddp_barrier(group, NULL) == CDDP_ERR_TIMEOUT);
        CHECK((cddpi_now_ns() - start) / 1000000 < SUPPORT_TIMEOUT_MS / 2);
    } else {
        while (group->backend->ops->broken(group->backend) == CDDP_OK) {
            support_sleep_ms(1);
        }
    }
    cddp_group_destroy(group);
    return 0;
}

static void the_time_limit_can_be_changed(void **state)
{
    struct group_seed seed;

    (void)state;
    unsetenv("CDDP_TIMEOUT_MS");
    assert_int_equal(group_seed_create(2, &seed), CDDP_OK);
    assert_int_equal(run_ranks(2, limited_rank, &seed), 0);
    close(seed.fd);
}

/* It joins alone, so rank 1 is missing; the limit of collectives is long. */
static void joining_has_a_time_limit_of_its_own(void **state)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    char url[64];
    cddp_group *group;
    int64_t start = cddpi_now_ns();

    (void)state;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", support_free_port());
    options.rendezvous = url;
    options.world_size = 2;
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    options.join_timeout_ms = 300;
    assert_int_equal(cddp_group_create(&options, &group), CDDP_ERR_TIMEOUT);
    assert_true((cddpi_now_ns() - start) / 1000000 < SUPPORT_TIMEOUT_MS / 2);
}

/* Ranks 0 and 2 are on one machine and rank 1 on another, which no option says. */
static int placed_rank(int rank, int n, void *argument)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;
    cddp_group_info info;

    setenv("CDDP_HOST_ID", rank == 1 ? "b" : "a", 1);
    options.rendezvous = argument;
    options.token = SUPPORT_TOKEN;
    options.rank = rank;
    options.world_size = n;
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    CHECK(cddp_group_create(&options, &group) == CDDP_OK);
    info = group_info(group);
    CHECK(info.local_rank == (rank == 2) && info.local_world_size == (rank == 1 ? 1 : 2));
    CHECK(info.host == (rank == 1));
    CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    cddp_group_destroy(group);
    return 0;
}

static void ranks_find_out_who_is_on_their_machine(void **state)
{
    char url[64];

    (void)state;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%u", support_free_port());
    assert_int_equal(run_ranks(3, placed_rank, url), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_tells_all_of_itself_at_once),
        cmocka_unit_test(a_closed_group_that_is_kept_answers_questions),
        cmocka_unit_test(an_info_without_its_initialiser_is_refused),
        cmocka_unit_test(ranks_are_translated_between_parts_and_the_job),
        cmocka_unit_test(groups_of_different_jobs_have_no_ranks_in_common),
        cmocka_unit_test(the_time_limit_can_be_changed),
        cmocka_unit_test(joining_has_a_time_limit_of_its_own),
        cmocka_unit_test(ranks_find_out_who_is_on_their_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
