/* test_net_mpi.c - the carrier `mpi` between real ranks of the real mpirun (net_mpi_rank.c), and
 * the cases that it refuses. */
#include "base/env.h"
#include "group/net/carrier.h"
#include "support/failure.h"
#include "support/mpirun.h"

static void run_well(int ranks, const char *action)
{
    struct launched job = {0};

    NEED_MPIRUN();
    MPIRUN(&job, ranks, NULL, launcher_path("tests/net_mpi_rank"), action);
    assert_mpirun_ended_well(&job);
    launcher_end(&job);
}

static void messages_of_all_sizes_arrive_as_they_were_sent(void **state)
{
    (void)state;
    run_well(2, "transfers");
    run_well(4, "transfers");
}

/* By a module whose messages have 1000 bytes at most. */
static void long_messages_are_cut_and_put_together(void **state)
{
    const char *cutting = launcher_path("tests/libcddp-mpi-cutting.so");

    (void)state;
    setenv("CDDP_MPI_MODULE", cutting, 1);
    run_well(2, "transfers");
    unsetenv("CDDP_MPI_MODULE");
}

static void what_is_cut_goes_in_messages_of_that_size(void **state)
{
    (void)state;
    run_well(2, "cuts");
}

static void parts_of_a_group_have_carriers_of_their_own(void **state)
{
    (void)state;
    run_well(4, "parts");
}

/* A group that has failed does not end MPI properly, for which mpirun gives a status of its own. */
static void an_abort_reaches_all_other_hosts_in_its_own_words(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    MPIRUN(&job, 4, NULL, launcher_path("tests/net_mpi_rank"), "aborts");
    assert_out(&job, "rank 0 heard of all_reduce #3: the disk is full\n");
    assert_out(&job, "rank 1 heard of all_reduce #3: the disk is full\n");
    assert_out(&job, "rank 2 heard of all_reduce #3: the disk is full\n");
    assert_no_err(&job, "not so");
    launcher_end(&job);
}

static void what_nobody_sends_can_be_forgotten(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    MPIRUN(&job, 2, NULL, launcher_path("tests/net_mpi_rank"), "forgets");
    assert_out(&job, "rank 0 forgot\n");
    assert_out(&job, "rank 1 forgot\n");
    assert_no_err(&job, "not so");
    launcher_end(&job);
}

static void what_nobody_receives_is_not_given_back(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    MPIRUN(&job, 2, NULL, launcher_path("tests/net_mpi_rank"), "lends");
    assert_out(&job, "rank 0 knows that its message is still under way\n");
    assert_out(&job, "rank 1 knows that its message is still under way\n");
    assert_no_err(&job, "not so");
    launcher_end(&job);
}

static void an_error_of_mpi_becomes_ours_and_names_the_rank(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    MPIRUN(&job, 2, NULL, launcher_path("tests/net_mpi_rank"), "mismatches");
    assert_out(&job, "rank 1: receive from rank 0 on host ");
    assert_out(&job, ", of 50 bytes, by MPI: MPI_ERR_TRUNCATE");
    assert_out(&job, "; culprit 0\n");
    assert_no_err(&job, "not so");
    launcher_end(&job);
}

/* Open MPI notices, and ends the job. */
static void a_rank_that_is_killed_or_fails_ends_the_job(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    MPIRUN(&job, 3, NULL, launcher_path("tests/net_mpi_rank"), "dies");
    assert_int_not_equal(job.exit_status, 0);
    launcher_end(&job);
    MPIRUN(&job, 3, NULL, launcher_path("tests/net_mpi_rank"), "fails");
    assert_int_equal(job.exit_status, 3);
    launcher_end(&job);
}

static void a_rank_that_does_not_start_mpi_is_not_waited_for_for_ever(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    MPIRUN(&job, 2, NULL, launcher_path("tests/net_mpi_rank"), "misses");
    assert_out(&job, "MPI_Init_thread() did not return within 1000 ms");
    assert_no_err(&job, "not so");
    launcher_end(&job);
}

/* mpirun's variables say that some ranks are elsewhere, so no folder is shared. */
static void ranks_of_several_hosts_come_together_by_mpi(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    MPIRUN(&job, 3, "hosta:2,hostb:1", launcher_path("tests/net_mpi_rank"), "transfers");
    assert_mpirun_ended_well(&job);
    launcher_end(&job);
}

static void ranks_of_several_hosts_come_together_where_they_are_told_to(void **state)
{
    struct launched job = {0};
    char store[64];

    (void)state;
    NEED_MPIRUN();
    snprintf(store, sizeof store, "tcp://127.0.0.1:%d", support_free_port());
    setenv("CDDP_STORE", store, 1);
    setenv("CDDP_TOKEN", SUPPORT_TOKEN, 1);
    MPIRUN(&job, 3, "hosta:2,hostb:1", launcher_path("tests/net_mpi_rank"), "transfers");
    unsetenv("CDDP_STORE");
    unsetenv("CDDP_TOKEN");
    assert_mpirun_ended_well(&job);
    launcher_end(&job);
}

static void without_the_module_they_learn_which_variables_to_set(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    setenv("CDDP_MPI_MODULE", "nowhere/libcddp-mpi.so", 1);
    MPIRUN(&job, 2, "hosta:1,hostb:1", launcher_path("tests/net_mpi_rank"), "transfers");
    unsetenv("CDDP_MPI_MODULE");
    assert_int_not_equal(job.exit_status, 0);
    assert_err(&job, "on several hosts, and cannot meet by MPI. Set CDDP_STORE=tcp://host:port");
    assert_err(&job, "nowhere/libcddp-mpi.so");
    launcher_end(&job);
}

/* They meet in a file or a store that rank 0 takes away once it has joined. */
static void nobody_misses_the_store_that_rank_0_removes(void **state)
{
    static const char each_a_host[] = "#!/bin/sh\nCDDP_HOST_ID=$OMPI_COMM_WORLD_RANK exec \"$@\"\n";
    struct launched job = {0};
    char *folder;
    char script[4200];

    (void)state;
    NEED_MPIRUN();
    folder = support_mkdtemp();
    launcher_write(folder, "host", each_a_host);
    snprintf(script, sizeof script, "%s/host", folder);
    for (int i = 0; i < 5; i++) {
        MPIRUN(&job, 3, NULL, script, launcher_path("tests/net_mpi_rank"), "transfers");
        assert_mpirun_ended_well(&job);
        launcher_end(&job);
    }
    support_rmdir(folder);
}

static void a_group_that_one_host_breaks_ends_on_all_hosts(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    setenv("CDDP_CARRIER", "mpi", 1);
    MPIRUN(&job, 3, "hosta:1,hostb:1,hostc:1", launcher_path("tests/net_mpi_rank"), "breaks");
    unsetenv("CDDP_CARRIER");
    assert_no_err(&job, "not so");
    assert_out(&job, "rank 0 ends: ");
    assert_out(&job, "rank 1 ends: ");
    assert_out(&job, "rank 2 ends: ");
    assert_true(launcher_count(job.out, "rank 1 has had enough") >= 3);
    launcher_end(&job);
}

/* For longer than a host may be silent: its kernel answers. It is continued when another rank has
 * said for whom it waits. */
static void a_rank_that_is_stopped_is_named_and_not_taken_for_lost(void **state)
{
    struct launched job = {0};
    long pid;

    (void)state;
    NEED_MPIRUN();
    setenv("CDDP_CARRIER", "mpi", 1);
    setenv("CDDP_HEARTBEAT_MS", "100", 1);
    setenv("CDDP_STRAGGLER_MS", "1000", 1);
    mpirun_start(&job, 2, "hosta:1,hostb:1", launcher_path("tests/net_mpi_rank"),
                 (const char *const[]){"stands", NULL});
    unsetenv("CDDP_CARRIER");
    unsetenv("CDDP_HEARTBEAT_MS");
    unsetenv("CDDP_STRAGGLER_MS");
    pid = launcher_number(&job, "pid");
    launcher_await_text(job.dir, "err", "rank 0: all_reduce #2 has been waiting for 1.");
    kill((pid_t)pid, SIGCONT);
    launcher_wait(&job);
    assert_mpirun_ended_well(&job);
    assert_err(&job, " s for rank 1 on host ");
    assert_err(&job, "; its host answers");
    launcher_end(&job);
}

static void a_program_of_mpi_makes_groups_of_its_communicators(void **state)
{
    static const char *const actions[] = {"halves", "transfers", "parts", "both"};
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        MPIRUN(&job, 4, i == 0 ? "hosta:2,hostb:2" : NULL, launcher_path("tests/net_mpi_program"),
               actions[i]);
        assert_mpirun_ended_well(&job);
        launcher_end(&job);
    }
    MPIRUN(&job, 5, NULL, launcher_path("tests/net_mpi_program"), "halves"); /* on one host */
    assert_mpirun_ended_well(&job);
    launcher_end(&job);
}

static void mpi_that_a_program_started_for_one_thread_is_refused(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    MPIRUN(&job, 2, NULL, launcher_path("tests/net_mpi_program"), "refuses");
    assert_mpirun_ended_well(&job);
    assert_out(&job, "refused: carrier mpi: the program has started MPI for fewer threads than "
                     "MPI_THREAD_MULTIPLE");
    launcher_end(&job);
}

/* By MPI between "hosts", since the carrier is given. */
static void mpi_for_one_thread_at_a_time_serves_groups_without_a_thread(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    setenv("CDDP_CARRIER", "mpi", 1);
    setenv("CDDP_COMM_THREAD", "0", 1);
    MPIRUN(&job, 2, "hosta:1,hostb:1", launcher_path("tests/net_mpi_program"), "serializes");
    unsetenv("CDDP_CARRIER");
    unsetenv("CDDP_COMM_THREAD");
    assert_mpirun_ended_well(&job);
    assert_out(&job, "rank 0 calls MPI between calls of cddp\n");
    assert_out(&job, "rank 1 calls MPI between calls of cddp\n");
    launcher_end(&job);
    MPIRUN(&job, 2, NULL, launcher_path("tests/net_mpi_program"), "serializes");
    assert_mpirun_ended_well(&job);
    assert_out(&job, "refused: carrier mpi: the program has started MPI for fewer threads");
    assert_out(&job, "or for MPI_THREAD_SERIALIZED with CDDP_COMM_THREAD=0");
    launcher_end(&job);
}

static void without_mpirun_it_says_what_is_missing(void **state)
{
    (void)state;
    NEED_MPIRUN();
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("PMIX_NAMESPACE");
    assert_null(cddpi_carrier_choose("mpi"));
    assert_true(failure_is(cddpi_last_failure()->status, CDDP_ERR_UNAVAILABLE, -1, -1, ""));
    assert_true(last_error_has("carrier mpi: neither has this process called "
                               "MPI_Init(), nor has an mpirun"));
}

/* Who wants data encrypted gets no MPI, which cannot do that, unless he has named it. */
static void with_encryption_mpi_is_taken_only_if_it_is_named(void **state)
{
    struct launched job = {0};

    (void)state;
    NEED_MPIRUN();
    MPIRUN(&job, 2, NULL, launcher_path("tests/net_mpi_rank"), "chooses");
    assert_mpirun_ended_well(&job);
    assert_out(&job, "rank 1 takes mpi\n");
    launcher_end(&job);
    setenv("CDDP_ENCRYPT", "1", 1);
    MPIRUN(&job, 2, NULL, launcher_path("tests/net_mpi_rank"), "chooses");
    assert_mpirun_ended_well(&job);
    assert_out(&job, "rank 0 takes tcp\n");
    assert_out(&job, "rank 1 takes tcp\n");
    launcher_end(&job);
    setenv("CDDP_CARRIER", "mpi", 1);
    MPIRUN(&job, 2, NULL, launcher_path("tests/net_mpi_rank"), "chooses");
    assert_mpirun_ended_well(&job);
    assert_out(&job, "rank 1 takes mpi\n");
    assert_err(&job, "carrier mpi: cddp does not encrypt what goes between hosts by it");
    launcher_end(&job);
    unsetenv("CDDP_CARRIER");
    setenv("CDDP_ENCRYPT", "true", 1);
    MPIRUN(&job, 2, NULL, launcher_path("tests/net_mpi_rank"), "chooses");
    assert_int_not_equal(job.exit_status, 0);
    assert_err(&job, "CDDP_ENCRYPT=true: it must be 1");
    launcher_end(&job);
    unsetenv("CDDP_ENCRYPT");
}

/* Before the module is opened: it stays open. */
static void a_module_that_is_not_there_is_named(void **state)
{
    (void)state;
    setenv("CDDP_MPI_MODULE", "nowhere/libcddp-mpi.so", 1);
    assert_null(cddpi_carrier_choose("mpi"));
    assert_true(failure_is(cddpi_last_failure()->status, CDDP_ERR_UNAVAILABLE, -1, -1, ""));
    assert_true(last_error_has("carrier mpi: $CDDP_MPI_MODULE: "));
    unsetenv("CDDP_MPI_MODULE");
}

static void tcp_serves_where_mpi_cannot(void **state)
{
    const struct cddpi_carrier_ops *carrier;

    (void)state;
    setenv("CDDP_MPI_MODULE", "nowhere/libcddp-mpi.so", 1);
    carrier = cddpi_carrier_choose(NULL);
    unsetenv("CDDP_MPI_MODULE");
    assert_non_null(carrier);
    assert_string_equal(carrier->name, "tcp");
}

static void an_unknown_carrier_is_an_error(void **state)
{
    (void)state;
    setenv("CDDP_CARRIER", "pigeon", 1);
    assert_null(cddpi_carrier_choose(NULL));
    assert_true(failure_is(cddpi_last_failure()->status, CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("pigeon"));
    unsetenv("CDDP_CARRIER");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_that_is_not_there_is_named),
        cmocka_unit_test(tcp_serves_where_mpi_cannot),
        cmocka_unit_test(an_unknown_carrier_is_an_error),
        cmocka_unit_test(with_encryption_mpi_is_taken_only_if_it_is_named),
        cmocka_unit_test(without_mpirun_it_says_what_is_missing),
        cmocka_unit_test(messages_of_all_sizes_arrive_as_they_were_sent),
        cmocka_unit_test(long_messages_are_cut_and_put_together),
        cmocka_unit_test(what_is_cut_goes_in_messages_of_that_size),
        cmocka_unit_test(parts_of_a_group_have_carriers_of_their_own),
        cmocka_unit_test(an_abort_reaches_all_other_hosts_in_its_own_words),
        cmocka_unit_test(what_nobody_sends_can_be_forgotten),
        cmocka_unit_test(what_nobody_receives_is_not_given_back),
        cmocka_unit_test(an_error_of_mpi_becomes_ours_and_names_the_rank),
        cmocka_unit_test(a_rank_that_is_killed_or_fails_ends_the_job),
        cmocka_unit_test(a_rank_that_does_not_start_mpi_is_not_waited_for_for_ever),
        cmocka_unit_test(ranks_of_several_hosts_come_together_by_mpi),
        cmocka_unit_test(ranks_of_several_hosts_come_together_where_they_are_told_to),
        cmocka_unit_test(without_the_module_they_learn_which_variables_to_set),
        cmocka_unit_test(nobody_misses_the_store_that_rank_0_removes),
        cmocka_unit_test(a_group_that_one_host_breaks_ends_on_all_hosts),
        cmocka_unit_test(a_rank_that_is_stopped_is_named_and_not_taken_for_lost),
        cmocka_unit_test(a_program_of_mpi_makes_groups_of_its_communicators),
        cmocka_unit_test(mpi_that_a_program_started_for_one_thread_is_refused),
        cmocka_unit_test(mpi_for_one_thread_at_a_time_serves_groups_without_a_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
