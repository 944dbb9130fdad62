/* test_members.c - ranks that join learn which ranks are on which host. */
#include "base/clock.h"
#include "group/join/members.h"
#include "store/server.h"
#include "support/failure.h"
#include "support/test.h"

#include <stdbool.h>

#define TOKEN SUPPORT_TOKEN

struct layout {
    const char *hosts; /* a letter a rank: its host */
    char url[4200];
};

/* Hosts count from 0 in the order of their lowest ranks: rank @p rank's, by the letters. */
static int host_of(const char *hosts, int rank)
{
    int host = 0;

    for (int r = 0; hosts[r] != hosts[rank]; r++) {
        host += strchr(hosts, hosts[r]) == hosts + r;
    }
    return host;
}

static int member_rank(int rank, int n, void *argument)
{
    const struct layout *layout = argument;
    struct cddpi_launch_env env = {
        .rank = rank, .world_size = n, .join_timeout_ms = SUPPORT_TIMEOUT_MS, .origin = "the test"};
    struct cddpi_rendezvous rendezvous;
    struct cddpi_members members;
    int local = 0;

    snprintf(env.store, sizeof env.store, "%.1100s", layout->url);
    snprintf(env.job, sizeof env.job, "%s", layout->hosts);
    setenv("CDDP_HOST_ID", (const char[]){layout->hosts[rank], '\0'}, 1);
    CHECK(cddpi_rendezvous_open(&env, &rendezvous) == CDDP_OK);
    CHECK(cddpi_members_gather(&env, &rendezvous, &members) == CDDP_OK);
    for (int r = 0; r < n; r++) {
        CHECK(members.host_of[r] == host_of(layout->hosts, r));
        if (layout->hosts[r] == layout->hosts[rank]) {
            CHECK(members.locals[local] == r);
            CHECK(r != rank || members.local_rank == local);
            local++;
        }
    }
    CHECK(members.local_size == local);
    cddpi_members_fini(&members);
    cddpi_rendezvous_close(&rendezvous, false);
    return 0;
}

static void every_rank_learns_the_host_of_every_rank(void **state)
{
    static const char *const layouts[] = {"aaaaaaa", "aaabbbb", "aabbccd", "abcdefg",
                                          "abcabca", "abbaabb", "aabbbcc", "zyyzxxw"};
    char *folder = support_mkdtemp();

    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct layout layout = {.hosts = layouts[i]};

        snprintf(layout.url, sizeof layout.url, "file://%s/%s", folder, layouts[i]);
        assert_int_equal(run_ranks((int)strlen(layouts[i]), member_rank, &layout), 0);
    }
    support_rmdir(folder);
}

/* Rank 0 of a job, and a store in which a test writes what its other ranks would. */
struct rank_0 {
    struct cddpi_store_server *server;
    struct cddpi_launch_env env;
    struct cddpi_rendezvous rendezvous;
    cddp_store *others;
};

static void open_rank_0(int world_size, struct rank_0 *out)
{
    struct cddpi_store_server_options server = {.token = TOKEN};
    cddp_store_options options = CDDP_STORE_OPTIONS_INIT;

    *out = (struct rank_0){.env = {.world_size = world_size,
                                   .join_timeout_ms = SUPPORT_TIMEOUT_MS,
                                   .origin = "the test",
                                   .job = "test",
                                   .token = TOKEN}};
    assert_int_equal(cddpi_store_server_create(&server, &out->server), CDDP_OK);
    snprintf(out->env.store, sizeof out->env.store, "tcp://127.0.0.1:%d",
             cddpi_store_server_port(out->server));
    assert_int_equal(cddpi_rendezvous_open(&out->env, &out->rendezvous), CDDP_OK);
    options.url = out->env.store;
    options.token = TOKEN;
    options.prefix = "test/0/";
    assert_int_equal(cddp_store_open(&options, &out->others), CDDP_OK);
}

static void close_rank_0(struct rank_0 *job)
{
    cddp_store_close(job->others);
    cddpi_rendezvous_close(&job->rendezvous, false);
    cddpi_store_server_destroy(job->server);
}

static void write_member(struct rank_0 *job, int rank, int world_size, const char *host)
{
    char key[CDDPI_MEMBER_KEY_BYTES];
    struct cddpi_member member = {.world_size = world_size};

    cddpi_rendezvous_member(rank, key);
    snprintf(member.host_id, sizeof member.host_id, "%s", host);
    assert_int_equal(cddpi_message_set(job->others, key, &cddpi_member_form, &member), CDDP_OK);
}

/* To read the members, to wait for those that are missing, to read them; and to write its own key
 * and its answer, of which it first deletes what an earlier group has left. */
static void rank_0_needs_as_few_requests_for_many_members_as_for_two(void **state)
{
    enum { REQUESTS = 6 };
    static const int sizes[] = {2, 100, 3000};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct cddpi_store_served before;
        struct cddpi_store_served after;
        struct cddpi_members members;
        struct rank_0 job;
        char host[16];

        open_rank_0(sizes[i], &job);
        for (int rank = sizes[i] - 1; rank > 0; rank--) {
            snprintf(host, sizeof host, "host %d", rank / 2);
            write_member(&job, rank, sizes[i], host);
        }
        setenv("CDDP_HOST_ID", "host 0", 1);
        cddpi_store_server_served(job.server, &before);
        assert_int_equal(cddpi_members_gather(&job.env, &job.rendezvous, &members), CDDP_OK);
        cddpi_store_server_served(job.server, &after);
        assert_in_range(after.requests - before.requests, 1, REQUESTS);
        for (int rank = 0; rank < sizes[i]; rank++) {
            assert_int_equal(members.host_of[rank], rank / 2);
        }
        cddpi_members_fini(&members);
        close_rank_0(&job);
    }
}

static void a_member_of_another_size_is_named_while_others_are_awaited(void **state)
{
    struct cddpi_members members;
    struct rank_0 job;

    (void)state;
    open_rank_0(5, &job);
    write_member(&job, 3, 4, "host");
    write_member(&job, 12, 16, "host"); /* of no rank of this job: left by another */
    assert_true(failure_is(cddpi_members_gather(&job.env, &job.rendezvous, &members),
                           CDDP_ERR_MISMATCH, -1, -1, ""));
    assert_true(last_error_has("rank 3 was started for a world size of 4 and rank 0 for one of 5"));
    close_rank_0(&job);
}

static void a_member_that_ended_without_coming_is_named_while_others_are_awaited(void **state)
{
    struct cddpi_members members;
    struct rank_0 job;

    (void)state;
    for (int line = 0; line < 2; line++) {
        const char *told = line ? "0\nno data: goodbye" : "143";

        open_rank_0(5, &job);
        write_member(&job, 2, 5, "host");
        assert_int_equal(cddp_store_set(job.others, "ended/2", "0", 1), CDDP_OK); /* but it came */
        assert_int_equal(cddp_store_set(job.others, "ended/4", told, strlen(told)), CDDP_OK);
        assert_true(failure_is(cddpi_members_gather(&job.env, &job.rendezvous, &members),
                               CDDP_ERR_PEER, -1, -1, ""));
        assert_string_equal(cddp_last_error(),
                            line ? "joining job test: rank 4 ended, with status 0, before it "
                                   "joined; the last line of its stderr: no data: goodbye"
                                 : "joining job test: rank 4 ended, with status 143, before it "
                                   "joined");
        close_rank_0(&job);
    }
}

static void members_that_do_not_come_are_named(void **state)
{
    struct cddpi_members members;
    struct rank_0 job;

    (void)state;
    open_rank_0(5, &job);
    write_member(&job, 2, 5, "host");
    write_member(&job, 3, 5, "host");
    job.rendezvous.deadline_ns = cddpi_deadline_ns(100);
    assert_true(failure_is(cddpi_members_gather(&job.env, &job.rendezvous, &members),
                           CDDP_ERR_TIMEOUT, -1, -1, ""));
    assert_true(last_error_has("ranks 1, 4 did not come to tcp://"));
    close_rank_0(&job);
}

/* What is logged meanwhile goes to a file, whose text this gives: the caller's. */
static char *logged_while_waiting(struct rank_0 *job, int64_t news_ns)
{
    char *folder = support_mkdtemp();
    struct cddpi_members members;
    char path[4200];
    char *text = calloc(1, 4000);
    int before = dup(2);
    FILE *file;

    snprintf(path, sizeof path, "%s/log", folder);
    file = fopen(path, "w+e");
    assert_non_null(file);
    fflush(stderr);
    assert_int_equal(dup2(fileno(file), 2), 2);
    job->rendezvous.deadline_ns = cddpi_deadline_ns(1000);
    job->rendezvous.news_ns = news_ns;
    assert_int_equal(cddpi_members_gather(&job->env, &job->rendezvous, &members), CDDP_ERR_TIMEOUT);
    fflush(stderr);
    assert_int_equal(dup2(before, 2), 2);
    close(before);
    rewind(file);
    (void)!fread(text, 1, 3999, file);
    fclose(file);
    support_rmdir(folder);
    return text;
}

static void who_is_missing_is_said_while_others_wait_and_whose_words_that_is(void **state)
{
    struct rank_0 job;
    char *text;

    (void)state;
    open_rank_0(5, &job);
    snprintf(job.env.says, sizeof job.env.says, "RANK=0, WORLD_SIZE=5");
    write_member(&job, 2, 5, "host");
    text = logged_while_waiting(&job, cddpi_now_ns());
    if (strstr(text, "of 5 ranks these have not come to tcp://") == NULL ||
        strstr(text, "1, 3, 4; that there are 5 is what the test says: RANK=0, WORLD_SIZE=5") ==
            NULL) {
        fail_msg("%s", text);
    }
    assert_null(strstr(strstr(text, "these have") + 1, "these have")); /* once */
    assert_true(last_error_has("is what the test says: RANK=0, WORLD_SIZE=5"));
    free(text);
    text = logged_while_waiting(&job, cddpi_deadline_ns(CDDPI_FIRST_NEWS_MS));
    assert_null(strstr(text, "these have not come"));
    free(text);
    close_rank_0(&job);
}

/* Comes as rank 0, too, says so, and stays. */
static void come_as_well(const struct rank_0 *job, int to)
{
    struct cddpi_launch_env env = job->env;
    struct cddpi_rendezvous rendezvous;
    bool is_there = cddpi_rendezvous_open(&env, &rendezvous) == CDDP_OK &&
                    cddpi_rendezvous_be_rank(&rendezvous) == CDDP_OK;

    (void)!write(to, is_there ? "y" : "n", 1);
    for (;;) {
        pause();
    }
}

static void a_second_process_of_one_rank_is_refused_at_once_and_both_are_named(void **state)
{
    struct cddpi_members members;
    struct rank_0 job;
    int pipes[2];
    char said = '?';
    char name[64];
    pid_t pid;

    (void)state;
    open_rank_0(2, &job);
    assert_int_equal(pipe(pipes), 0);
    pid = fork();
    if (pid == 0) {
        come_as_well(&job, pipes[1]);
    }
    assert_int_equal(read(pipes[0], &said, 1), 1);
    assert_int_equal(said, 'y');
    assert_true(failure_is(cddpi_members_gather(&job.env, &job.rendezvous, &members),
                           CDDP_ERR_MISMATCH, -1, -1, ""));
    assert_true(last_error_has("rank 0 came twice"));
    snprintf(name, sizeof name, "process %d on host ", (int)pid);
    assert_true(last_error_has(name));
    snprintf(name, sizeof name, "process %d on host ", (int)getpid());
    assert_true(last_error_has(name));
    /* all others hear of it */
    assert_int_equal(cddp_store_wait(job.others, (const char *const[]){"failure"}, 1, 1000),
                     CDDP_OK);
    assert_int_equal(cddp_store_delete(job.others, "failure", NULL), CDDP_OK);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    /* a process that is gone is in nobody's way */
    assert_int_equal(cddpi_rendezvous_be_rank(&job.rendezvous), CDDP_OK);
    close(pipes[0]);
    close(pipes[1]);
    close_rank_0(&job);
}

static void a_process_of_another_host_that_takes_a_rank_is_found_by_the_one_that_waits(void **state)
{
    static const struct cddpi_who far = {77, 1, "far", "elsewhere"};
    struct cddpi_members members;
    struct rank_0 job;

    (void)state;
    open_rank_0(2, &job);
    assert_int_equal(cddpi_message_set(job.others, "who/0", &cddpi_who_form, &far), CDDP_OK);
    assert_int_equal(cddpi_rendezvous_be_rank(&job.rendezvous), CDDP_OK); /* it may be gone */
    assert_int_equal(cddpi_message_set(job.others, "failure/0", &cddpi_who_form, &far), CDDP_OK);
    assert_true(failure_is(cddpi_members_gather(&job.env, &job.rendezvous, &members),
                           CDDP_ERR_MISMATCH, -1, -1, ""));
    assert_true(last_error_has("process 77 on host far"));
    close_rank_0(&job);
}

static void what_another_version_writes_is_refused_in_words(void **state)
{
    static const char *const keys[] = {"member/1", "failure/0"};

    (void)state;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct cddpi_members members;
        struct rank_0 job;

        open_rank_0(2, &job);
        assert_int_equal(cddp_store_set(job.others, keys[i], "2|host", 6), CDDP_OK); /* cddp 0.1 */
        assert_true(failure_is(cddpi_members_gather(&job.env, &job.rendezvous, &members),
                               CDDP_ERR_FORMAT, -1, -1, ""));
        assert_true(last_error_has(i == 0 ? "rank 1" : "rank 0"));
        assert_true(last_error_has("not from cddp 0.2 or later"));
        close_rank_0(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_learns_the_host_of_every_rank),
        cmocka_unit_test(rank_0_needs_as_few_requests_for_many_members_as_for_two),
        cmocka_unit_test(a_member_of_another_size_is_named_while_others_are_awaited),
        cmocka_unit_test(a_member_that_ended_without_coming_is_named_while_others_are_awaited),
        cmocka_unit_test(members_that_do_not_come_are_named),
        cmocka_unit_test(what_another_version_writes_is_refused_in_words),
        cmocka_unit_test(who_is_missing_is_said_while_others_wait_and_whose_words_that_is),
        cmocka_unit_test(a_second_process_of_one_rank_is_refused_at_once_and_both_are_named),
        cmocka_unit_test(
            a_process_of_another_host_that_takes_a_rank_is_found_by_the_one_that_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
