/* test_group_info.c - what a group tells about itself: in one piece, to any thread, after a failure
 * and in a fork. */
#include "support/group.h"
#include "support/test.h"

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

static int asking_rank(int rank, int n, void *seed)
{
    cddp_group_info info = CDDP_GROUP_INFO_INIT;
    struct rank_in_group at = {NULL, rank, n};
    pthread_t thread;
    void *result;
    int status;
    pid_t pid;

    CHECK(group_from_seed(seed, rank, n, SUPPORT_TIMEOUT_MS, &at.group) == CDDP_OK);
    CHECK(info_is_right(at.group, rank, n, CDDP_GROUP_OPEN) == 0);
    CHECK(pthread_create(&thread, NULL, ask_in_thread, &at) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == &at);
    pid = fork();
    if (pid == 0) {
        _exit(info_is_right(at.group, rank, n, CDDP_GROUP_OPEN));
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
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

static void an_info_without_its_initialiser_is_refused(void **state)
{
    cddp_group_info info = {0};
    cddp_group *group;

    (void)state;
    assert_int_equal(cddp_group_create(NULL, &group), CDDP_OK);
    assert_int_equal(cddp_group_get_info(group, &info), CDDP_ERR_ARGUMENT);
    assert_non_null(strstr(cddp_last_error(), "CDDP_GROUP_INFO_INIT"));
    assert_int_equal(cddp_group_get_info(group, NULL), CDDP_ERR_ARGUMENT);
    cddp_group_destroy(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_tells_all_of_itself_at_once),
        cmocka_unit_test(an_info_without_its_initialiser_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
