/* test_local_token.c - ranks without a given token, on loopback or in a file, still have one, and
 * nobody else has it. */
#include "base/clock.h"
#include "group/group.h"
#include "group/launch/local_token.h"
#include "support/failure.h"
#include "support/test.h"

struct place {
    const char *url;
    const char *tmpdir_of_1; /* NULL: that of all */
    const char *text;        /* of rank 1's error; NULL: all join */
    int generations;
    bool two_hosts;
    uint32_t timeout_ms;
};

static const char *folder; /* TMPDIR of the ranks */

static int set_up(void **state)
{
    (void)state;
    folder = support_mkdtemp();
    setenv("TMPDIR", folder, 1);
    unsetenv("CDDP_TOKEN");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unsetenv("TMPDIR");
    support_rmdir((char *)(uintptr_t)folder);
    return 0;
}

static const char *loopback(void)
{
    static char url[64];

    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", support_free_port());
    return url;
}

/* Where rank 0 that serves @p url leaves its token; makes the folder. */
static void token_path(const char *url, char *out, size_t bytes)
{
    char space[64] = "";
    char name[128];
    char made[512];
    ssize_t length = readlink("/proc/self/ns/net", space, sizeof space - 1);

    assert_true(length > 0);
    snprintf(name, sizeof name, "port-%s-%llu", strrchr(url, ':') + 1,
             strtoull(strchr(space, '[') + 1, NULL, 10));
    assert_int_equal(cddpi_own_folder_make(name, made, sizeof made), CDDP_OK);
    snprintf(out, bytes, "%s/token", made);
}

static int is_left(void)
{
    DIR *opened = opendir(folder);
    struct dirent *entry;
    int count = 0;

    while ((entry = readdir(opened)) != NULL) {
        if (entry->d_name[0] != '.') {
            fprintf(stderr, "left over: %s/%s\n", folder, entry->d_name);
            count++;
        }
    }
    closedir(opened);
    return count;
}

/* All have the same token, of 32 digits. */
static int compare_tokens(cddp_group *group, int n, char first[33])
{
    char all[8][33];

    CHECK(strlen(group->token) == 32);
    CHECK(cddp_all_gather(group, group->token, all, 33, CDDP_U8, NULL) == CDDP_OK);
    for (int r = 0; r < n; r++) {
        CHECK(strcmp(all[r], group->token) == 0);
    }
    snprintf(first, 33, "%.32s", group->token);
    return 0;
}

static int join_rank(int rank, int n, void *argument)
{
    const struct place *place = argument;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_group *group;
    char token[33] = "";
    char before[33] = "";

    if (rank == 1 && place->tmpdir_of_1 != NULL) {
        setenv("TMPDIR", place->tmpdir_of_1, 1);
    }
    if (place->two_hosts) {
        setenv("CDDP_HOST_ID", rank % 2 == 0 ? "a" : "b", 1);
    }
    options.rendezvous = place->url;
    options.rank = rank;
    options.world_size = n;
    options.timeout_ms = place->timeout_ms != 0 ? place->timeout_ms : SUPPORT_TIMEOUT_MS;
    for (int i = 1; i <= place->generations; i++) {
        options.generation = (uint32_t)i;
        if (place->text != NULL) {
            CHECK(cddp_group_create(&options, &group) != CDDP_OK);
            CHECK(rank != 1 || last_error_has(place->text));
            return 0;
        }
        CHECK(cddp_group_create(&options, &group) == CDDP_OK);
        CHECK(compare_tokens(group, n, token) == 0);
        CHECK(strcmp(token, before) != 0);
        memcpy(before, token, sizeof before);
        cddp_group_destroy(group);
    }
    return 0;
}

static void ranks_on_loopback_without_a_token_have_one(void **state)
{
    struct place place = {.url = loopback(), .generations = 3};

    (void)state;
    assert_int_equal(run_ranks(3, join_rank, &place), 0);
    assert_int_equal(is_left(), 0);
}

static void ranks_in_a_file_without_a_token_have_one(void **state)
{
    char url[4200];
    struct place place = {.url = url, .generations = 2};

    (void)state;
    snprintf(url, sizeof url, "file://%s/meet", folder);
    for (int i = 0; i < 2; i++) {
        place.two_hosts = i == 1; /* then they listen on all addresses */
        assert_int_equal(run_ranks(4, join_rank, &place), 0);
    }
}

static void a_token_that_a_killed_job_left_hinders_nobody(void **state)
{
    struct place place = {.url = loopback(), .generations = 1};
    char path[600];
    FILE *file;

    (void)state;
    token_path(place.url, path, sizeof path);
    file = fopen(path, "w");
    fputs("00112233445566778899aabbccddeeff\n", file);
    fclose(file);
    assert_int_equal(run_ranks(3, join_rank, &place), 0);
    assert_int_equal(is_left(), 0);
}

static void a_folder_that_others_can_look_into_is_refused(void **state)
{
    struct place place = {
        .url = loopback(), .generations = 1, .timeout_ms = 2000, .text = "of this user alone"};
    char path[600];

    (void)state;
    token_path(place.url, path, sizeof path);
    *strrchr(path, '/') = '\0';
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(run_ranks(2, join_rank, &place), 0);
    assert_int_equal(rmdir(path), 0);
}

/* In the place of the token, for whoever reads it before rank 0 has come. */
static void a_pipe_or_a_link_in_the_tokens_place_blocks_nobody(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct cddpi_launch_env env = {.rank = 1, .world_size = 2, .hosts_store = true};
        cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
        cddp_store *store = NULL;
        char path[600];

        snprintf(env.store, sizeof env.store, "%s", loopback());
        token_path(env.store, path, sizeof path);
        assert_int_equal(kind == 0 ? mkfifo(path, 0600) : symlink("/dev/zero", path), 0);
        options.url = env.store;
        assert_true(failure_is(
            cddpi_local_token_open(&env, &options, cddpi_deadline_ns(SUPPORT_TIMEOUT_MS), &store),
            CDDP_ERR_IO, -1, -1, ""));
        assert_true(last_error_has(path));
        assert_true(last_error_has("CDDP_TOKEN"));
        assert_int_equal(unlink(path), 0);
        *strrchr(path, '/') = '\0';
        assert_int_equal(rmdir(path), 0);
    }
}

static void a_rank_with_another_tmp_is_told_what_to_set(void **state)
{
    char *other = support_mkdtemp();
    struct place place = {.url = loopback(),
                          .generations = 1,
                          .tmpdir_of_1 = other,
                          .timeout_ms = 60000,
                          .text = "cannot read it: set CDDP_TOKEN to the same secret"};
    pid_t pid;
    int status;

    (void)state;
    pid = fork(); /* rank 0 would wait for rank 1 until its deadline */
    if (pid == 0) {
        cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
        cddp_group *group;

        options.rendezvous = place.url;
        options.world_size = 2;
        options.timeout_ms = 60000;
        _exit(cddp_group_create(&options, &group) == CDDP_OK);
    }
    status = fork();
    if (status == 0) {
        _exit(join_rank(1, 2, &place));
    }
    assert_int_equal(waitpid(status, &status, 0) > 0, 1);
    assert_int_equal(status, 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    support_rmdir(other);
}

/* Rank 0 alone: who has no token, or guesses, is refused by its store. */
static void a_stranger_on_loopback_is_refused(void **state)
{
    static const char *const tokens[] = {"", "cddp", "x", "00000000000000000000000000000000"};
    const char *url = loopback();
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
        cddp_group *group;

        options.rendezvous = url;
        options.world_size = 2;
        options.timeout_ms = SUPPORT_TIMEOUT_MS;
        _exit(cddp_group_create(&options, &group) == CDDP_OK);
    }
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        cddp_store_options options = CDDP_STORE_OPTIONS_INIT;
        cddp_store *store = NULL;

        options.url = url;
        options.token = tokens[i];
        options.timeout_ms = 3000;
        assert_int_not_equal(cddp_store_open(&options, &store), CDDP_OK);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ranks_on_loopback_without_a_token_have_one),
        CASE(ranks_in_a_file_without_a_token_have_one),
        CASE(a_token_that_a_killed_job_left_hinders_nobody),
        CASE(a_folder_that_others_can_look_into_is_refused),
        CASE(a_pipe_or_a_link_in_the_tokens_place_blocks_nobody),
        CASE(a_rank_with_another_tmp_is_told_what_to_set),
        CASE(a_stranger_on_loopback_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
