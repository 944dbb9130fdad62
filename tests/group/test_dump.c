/* test_dump.c - the last operations of a group: what is recorded about them, and when it is
 * written. */
#include "group/watch/dump.h"
#include "support/test.h"

static char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = support_mkdtemp();
    unsetenv("CDDP_RUN_DIR");
    unsetenv("CDDP_DUMP_SIGNAL");
    setenv("CDDP_DUMP_DIR", folder, 1);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    support_rmdir(folder);
    return 0;
}

static cddp_status join(int rank, int n, cddp_group **out)
{
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    char rendezvous[512];

    snprintf(rendezvous, sizeof rendezvous, "file://%s/store", folder);
    options.rendezvous = rendezvous;
    options.rank = options.local_rank = rank;
    options.world_size = options.local_world_size = n;
    options.timeout_ms = SUPPORT_TIMEOUT_MS;
    return cddp_group_create(&options, out);
}

static json_t *read_dump(const char *name)
{
    char path[600];

    snprintf(path, sizeof path, "%s/collectives/%s", folder, name);
    return json_load_file(path, 0, NULL);
}

/* What a group wrote meanwhile; waits for the watcher. */
static json_t *await_dump(const char *name)
{
    json_t *dump = NULL;

    for (int waited_ms = 0; dump == NULL && waited_ms < SUPPORT_TIMEOUT_MS; waited_ms += 10) {
        dump = read_dump(name);
        support_sleep_ms(dump == NULL ? 10 : 0);
    }
    return dump;
}

static const char *text_of(json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text != NULL ? text : "";
}

static int64_t number_of(json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

static int one_rank_dies(int rank, int n, void *argument)
{
    cddp_group *group;
    float data[100] = {0};

    (void)argument;
    CHECK(join(rank, n, &group) == CDDP_OK);
    CHECK(cddp_all_reduce(group, data, data, 100, CDDP_F32, CDDP_OP_MEAN, NULL) == CDDP_OK);
    if (rank == 1) {
        _exit(3);
    }
    CHECK(cddp_broadcast(group, data, 50, CDDP_F32, 0, NULL) == CDDP_OK ||
          cddp_broadcast(group, data, 50, CDDP_F32, 0, NULL) != CDDP_OK);
    CHECK(cddp_barrier(group, NULL) == CDDP_ERR_PEER ||
          cddp_barrier(group, NULL) == CDDP_ERR_BROKEN);
    cddp_group_destroy(group);
    return 0;
}

static void a_failure_writes_what_each_rank_did_last(void **state)
{
    json_t *dump;
    json_t *calls;
    json_t *first;
    json_t *last;
    json_t *failure;

    (void)state;
    assert_int_equal(run_ranks(3, one_rank_dies, NULL), 1);
    assert_null(read_dump("rank-1.json"));
    for (int rank = 0; rank < 3; rank += 2) {
        char name[32];

        snprintf(name, sizeof name, "rank-%d.json", rank);
        dump = read_dump(name);
        assert_non_null(dump);
        assert_string_equal(text_of(dump, "kind"), "collectives");
        assert_string_equal(text_of(dump, "reason"), "failure");
        assert_int_equal(number_of(dump, "rank"), rank);
        assert_int_equal(number_of(dump, "world_size"), 3);
        failure = json_object_get(dump, "failure");
        assert_non_null(strstr(text_of(failure, "text"), "rank 1"));
        assert_int_equal(number_of(failure, "culprit"), 1);
        calls = json_object_get(dump, "calls");
        first = json_array_get(calls, 0);
        assert_string_equal(text_of(first, "operation"), "all_reduce");
        assert_string_equal(text_of(first, "reduction"), "mean");
        assert_string_equal(text_of(first, "type"), "f32");
        assert_string_equal(text_of(first, "state"), "done");
        assert_int_equal(number_of(first, "bytes"), 400);
        assert_true(number_of(first, "enqueued_ns") <= number_of(first, "started_ns"));
        assert_true(number_of(first, "started_ns") <= number_of(first, "finished_ns"));
        assert_true(number_of(first, "finished_ns") <= number_of(dump, "now_ns"));
        last = json_array_get(calls, json_array_size(calls) - 1);
        assert_string_equal(text_of(last, "state"), "failed");
        json_decref(dump);
    }
}

static int many_calls(int rank, int n, void *argument)
{
    cddp_group *group;

    (void)argument;
    CHECK(join(rank, n, &group) == CDDP_OK);
    for (int i = 0; i < 1500; i++) {
        CHECK(cddp_barrier(group, NULL) == CDDP_OK);
    }
    cddp_group_abort(group, "enough");
    cddp_group_destroy(group);
    return 0;
}

static void the_last_thousand_operations_are_kept(void **state)
{
    json_t *dump;
    json_t *calls;

    (void)state;
    assert_int_equal(run_ranks(1, many_calls, NULL), 0);
    dump = read_dump("rank-0.json");
    calls = json_object_get(dump, "calls");
    assert_int_equal(json_array_size(calls), CDDPI_RECORDER_CALLS);
    assert_int_equal(number_of(json_array_get(calls, 0), "serial"), 501);
    assert_int_equal(number_of(json_array_get(calls, 999), "serial"), 1500);
    assert_int_equal(number_of(json_array_get(calls, 999), "number"), 1500);
    assert_string_equal(text_of(json_object_get(dump, "failure"), "text"), "enough");
    json_decref(dump);
}

static int asked(int rank, int n, void *argument)
{
    cddp_group *group;
    cddp_group *part;
    cddp_work *work;
    int32_t data = rank;
    json_t *dump;
    json_t *call;
    char name[32];

    (void)argument;
    setenv("CDDP_DUMP_SIGNAL", "USR1", 1);
    CHECK(join(rank, n, &group) == CDDP_OK);
    CHECK(cddp_group_split(group, 0, n - rank, &part) == CDDP_OK); /* in the opposite order */
    CHECK(cddp_barrier(part, NULL) == CDDP_OK);
    if (rank == 0) { /* waits for the other rank */
        CHECK(cddp_all_reduce(group, &data, &data, 1, CDDP_I32, CDDP_OP_SUM, &work) == CDDP_OK);
    }
    CHECK(raise(SIGUSR1) == 0);
    snprintf(name, sizeof name, "rank-%d.part-1.json", rank);
    dump = await_dump(name);
    CHECK(dump != NULL && strcmp(text_of(dump, "reason"), "request") == 0);
    CHECK(number_of(dump, "rank") == n - 1 - rank);
    CHECK(json_integer_value(json_array_get(json_object_get(dump, "ranks_of_job"), 0)) == n - 1);
    json_decref(dump);
    snprintf(name, sizeof name, "rank-%d.json", rank);
    dump = await_dump(name);
    CHECK(dump != NULL);
    call = json_array_get(json_object_get(dump, "calls"),
                          json_array_size(json_object_get(dump, "calls")) - 1);
    CHECK(rank != 0 || strcmp(text_of(call, "operation"), "all_reduce") == 0);
    CHECK(rank != 0 || json_is_null(json_object_get(call, "finished_ns")));
    json_decref(dump);
    if (rank != 0) {
        CHECK(cddp_all_reduce(group, &data, &data, 1, CDDP_I32, CDDP_OP_SUM, &work) == CDDP_OK);
    }
    CHECK(cddp_work_wait(work) == CDDP_OK);
    cddp_work_destroy(work);
    cddp_group_destroy(part);
    cddp_group_destroy(group);
    CHECK(raise(SIGUSR1) == 0); /* nobody is there, and nothing happens */
    return 0;
}

static void a_signal_lets_all_groups_of_a_rank_be_written(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, asked, NULL), 0);
}

static volatile sig_atomic_t called;

static void own_handler(int number)
{
    called = number;
}

static int has_a_handler(int rank, int n, void *argument)
{
    cddp_group *group;

    (void)argument;
    (void)signal(SIGUSR2, own_handler);
    setenv("CDDP_DUMP_SIGNAL", "USR2", 1);
    setenv("CDDP_LOG", "off", 1);
    CHECK(join(rank, n, &group) == CDDP_OK);
    CHECK(raise(SIGUSR2) == 0 && called == SIGUSR2);
    cddp_group_destroy(group);
    return 0;
}

static void a_handler_of_the_program_stays(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, has_a_handler, NULL), 0);
    assert_null(read_dump("rank-0.json"));
}

static int was_not_asked(int rank, int n, void *argument)
{
    cddp_group *group;
    static const int numbers[] = {SIGUSR1, SIGUSR2, SIGTERM};
    struct sigaction action;

    (void)argument;
    unsetenv("CDDP_DUMP_DIR");
    CHECK(join(rank, n, &group) == CDDP_OK);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        CHECK(sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    }
    cddp_group_abort(group, "no folder");
    cddp_group_destroy(group);
    return 0;
}

static void without_being_asked_there_is_no_handler_and_no_file(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, was_not_asked, NULL), 0);
    assert_null(read_dump("rank-0.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_failure_writes_what_each_rank_did_last, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(the_last_thousand_operations_are_kept, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_signal_lets_all_groups_of_a_rank_be_written, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_handler_of_the_program_stays, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(without_being_asked_there_is_no_handler_and_no_file,
                                        make_folder, remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
