/* test_launcher_cards.c - ranks report that their card is ill: cddp-run leaves it out when ranks
 * start again. The ranks here compute nothing; the cards are those of the emulated module. */
#include "support/device.h"
#include "support/fleet.h"

#define CARD(number) "GPU-cacacaca-caca-caca-caca-cacacacaca0" #number

/* A report of a rank (its last digit) on card NUMBER, which it sees as INDEX: 60 bytes of text. */
#define ILL(index, number)                                                                         \
    "printf 'c\\00'$RANK'\\000\\00" #index                                                         \
    "\\000\\074\\000" CARD(number) " NVML reports Xid 79' "                                        \
                                   ">/proc/$$/fd/$CDDP_REPORT_FD"

/* The same of a rank that says how many cards it sees: 62 bytes. */
#define ILL_OF(index, number, seen)                                                                \
    "printf 'c\\00'$RANK'\\000\\00" #index                                                         \
    "\\000\\076\\000" CARD(number) "/" #seen " NVML reports Xid 79' "                              \
                                   ">/proc/$$/fd/$CDDP_REPORT_FD"

/* Each rank says which cards it gets. In the first generation, rank WHO of the job runs REPORT and
 * fails; those of later ones run LATER. */
#define RANKS(who, report, later)                                                                  \
    "echo \"generation $CDDP_GENERATION, rank $RANK of $WORLD_SIZE: [$CUDA_VISIBLE_DEVICES]\"; "   \
    "if [ $CDDP_GENERATION != 0 ]; then " later "; exit 0; fi; "                                   \
    "if [ $RANK = " who " ]; then " report "; exit 7; fi; "                                        \
    "trap 'exit 3' TERM; while :; do sleep 0.02; done"

/* Run with so many cards. */
#define RUN(job, devices, ...)                                                                     \
    do {                                                                                           \
        setenv("CDDP_FAKE_CUDA_DEVICES", devices, 1);                                              \
        LAUNCH(job, __VA_ARGS__);                                                                  \
        unsetenv("CDDP_FAKE_CUDA_DEVICES");                                                        \
    } while (0)

static void a_spare_card_takes_the_place(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    RUN(&job, "4", "--nproc", "2", "--max-restarts", "1", "--", "sh", "-c",
        RANKS("0", ILL(0, 0), "true"));
    assert_int_equal(job.exit_status, 0);
    assert_err(&job, "cddp-run: cuda:0 (" CARD(0) ") is not used any more: NVML reports Xid 79. "
                                                  "Another card takes its place\n");
    assert_int_equal(launcher_count(job.err, "is not used any more"), 1);
    assert_out(&job, "generation 0, rank 0 of 2: []\n");
    assert_out(&job, "generation 1, rank 0 of 2: [" CARD(2) "," CARD(1) "," CARD(3) "]\n");
    assert_out(&job, "generation 1, rank 1 of 2: [" CARD(2) "," CARD(1) "," CARD(3) "]\n");
    launcher_end(&job);
}

static void it_is_left_out_for_the_rest_of_the_job(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    RUN(&job, "3", "--nproc", "1", "--max-restarts", "3", "--", "sh", "-c",
        RANKS("0", ILL(0, 0),
              "[ $CDDP_GENERATION != 1 ] || { " ILL(0, 1) "; exit 7; }; "
                                                          "[ $CDDP_GENERATION != 2 ] || exit 7"));
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "generation 1, rank 0 of 1: [" CARD(1) "," CARD(2) "]\n");
    assert_out(&job, "generation 2, rank 0 of 1: [" CARD(2) "]\n");
    assert_out(&job, "generation 3, rank 0 of 1: [" CARD(2) "]\n");
    launcher_end(&job);
}

static void only_cards_that_the_user_allows_are_taken(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
    RUN(&job, "4", "--nproc", "1", "--max-restarts", "1", "--", "sh", "-c",
        RANKS("0", ILL(0, 2), "true"));
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "generation 0, rank 0 of 1: [2,0]\n");
    assert_out(&job, "generation 1, rank 0 of 1: [" CARD(0) "]\n");
    launcher_end(&job);
}

static void with_fewer_cards_an_elastic_job_goes_on_with_fewer_ranks(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    RUN(&job, "3", "--nproc", "3", "--elastic", "2:3", "--", "sh", "-c",
        RANKS("1", ILL(1, 1), "true"));
    assert_int_equal(job.exit_status, 0);
    assert_err(&job, "cddp-run: cuda:1 (" CARD(1) ") is not used any more: NVML reports Xid 79. "
                                                  "2 cards remain, so the job goes on with 2 "
                                                  "ranks\n");
    assert_out(&job, "generation 1, rank 1 of 2: [" CARD(0) "," CARD(2) "]\n");
    launcher_end(&job);
}

static void with_too_few_cards_the_job_ends_and_names_the_card(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    for (int is_elastic = 0; is_elastic < 2; is_elastic++) {
        RUN(&job, "2", "--nproc", "2", is_elastic ? "--elastic" : "--max-restarts",
            is_elastic ? "2:2" : "3", "--", "sh", "-c", RANKS("1", ILL(1, 1), "true"));
        assert_int_equal(job.exit_status, 7);
        assert_err(&job, "cddp-run: cuda:1 (" CARD(1) ") is not used any more: NVML reports Xid "
                                                      "79. 1 card remains on this machine for 2 "
                                                      "ranks, so the job ends\n");
        assert_no_err(&job, "restarting");
        launcher_end(&job);
    }
}

static void a_job_that_does_not_restart_is_left_as_it_is(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    RUN(&job, "3", "--nproc", "2", "--", "sh", "-c", RANKS("1", ILL(1, 1), "true"));
    assert_int_equal(job.exit_status, 7);
    assert_no_err(&job, "not used any more");
    launcher_end(&job);
}

/* A script chooses the card, and chooses it again. */
static void a_program_that_takes_the_card_again_ends_the_job(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    RUN(&job, "3", "--nproc", "2", "--max-restarts", "9", "--", "sh", "-c",
        RANKS("1", ILL(1, 1), "[ $RANK = 0 ] || { " ILL(0, 1) "; exit 7; }"));
    assert_int_equal(job.exit_status, 7);
    assert_err(&job, "a rank has used cuda:1 (" CARD(1) ") again, although it is left out (NVML "
                                                        "reports Xid 79): its program chooses its "
                                                        "card itself, so the job ends\n");
    assert_no_err(&job, "generation 2");
    launcher_end(&job);
}

static void the_driver_that_answers_no_more_ends_the_job(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_CUDA_DRIVER", "0", 1);
    RUN(&job, "2", "--nproc", "1", "--max-restarts", "1", "--", "sh", "-c",
        RANKS("0", ILL(0, 0), "true"));
    unsetenv("CDDP_FAKE_CUDA_DRIVER");
    assert_int_equal(job.exit_status, 7);
    assert_err(&job, "cddp-run: which cards remain? there is no CUDA driver");
    assert_err(&job, "NVML reports Xid 79. Which cards remain is not known, so the job ends\n");
    launcher_end(&job);
}

/* A process that sees the ill card hangs. The numbers are as the ranks saw them. */
static void the_driver_is_asked_without_showing_it_the_ill_card(void **state)
{
    static const char *const visible[] = {NULL, "2,1"};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_CUDA_HANG_CARD", "1", 1);
    for (int i = 0; i < 2; i++) {
        struct launched job = {0};

        if (visible[i] != NULL) {
            setenv("CUDA_VISIBLE_DEVICES", visible[i], 1);
        }
        RUN(&job, "3", "--nproc", "1", "--max-restarts", "1", "--", "sh", "-c",
            i == 0 ? RANKS("0", ILL_OF(1, 1, 3), "true") : RANKS("0", ILL_OF(1, 1, 2), "true"));
        unsetenv("CUDA_VISIBLE_DEVICES");
        assert_int_equal(job.exit_status, 0);
        assert_out(&job, i == 0 ? "generation 1, rank 0 of 1: [" CARD(0) "," CARD(2) "]\n"
                                : "generation 1, rank 0 of 1: [" CARD(2) "]\n");
        launcher_end(&job);
    }
    unsetenv("CDDP_FAKE_CUDA_HANG_CARD");
}

/* Whoever writes to the pipe is not believed everything. */
static void odd_reports_do_no_harm(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    RUN(&job, "2", "--nproc", "2", "--max-restarts", "1", "--", "sh", "-c",
        RANKS("1",
              "printf 'c\\001\\000\\000\\000\\000\\000c\\001\\000\\000\\000\\001\\000 "
              "c\\011\\000\\000\\000\\005\\000GPU-ac\\001\\000\\000\\000\\377\\377' "
              ">/proc/$$/fd/$CDDP_REPORT_FD",
              "true"));
    assert_int_equal(job.exit_status, 0);
    assert_no_err(&job, "not used any more");
    assert_out(&job, "generation 1, rank 1 of 2: []\n");
    launcher_end(&job);
}

/* --- several machines --- */

#define NODE(fleet, i, nnodes, ...)                                                                \
    START((fleet), (i), (nnodes), i == 0 ? "0" : "1", __VA_ARGS__, "--", "sh", "-c",               \
          RANKS("1", ILL(0, 0), "true"))

/* The rank that goes on ends only after the machine has left: the end of node 0 takes the store
 * away. */
static void a_machine_without_a_card_leaves_an_elastic_job(void **state)
{
    struct fleet fleet;

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_CUDA_DEVICES", "1", 1);
    fleet_begin_tcp(&fleet);
    fleet_await_all();
    for (int i = 0; i < 2; i++) {
        START(&fleet, i, "1:2", i == 0 ? "0" : "1", "--nproc", "1", "--", "sh", "-c",
              RANKS("1", ILL(0, 0), "while [ ! -e $SHARED/gone ]; do sleep 0.02; done"));
    }
    launcher_wait(&fleet.nodes[1]);
    launcher_write(fleet.folder, "gone", "");
    launcher_wait(&fleet.nodes[0]);
    unsetenv("CDDP_FAKE_CUDA_DEVICES");
    assert_int_equal(fleet.nodes[0].exit_status, 0);
    assert_err(&fleet.nodes[1],
               "NVML reports Xid 79. No card remains on this machine, so it leaves "
               "the job\n");
    assert_err(&fleet.nodes[1], "this node has left the job\n");
    assert_out(&fleet.nodes[0], "generation 1, rank 0 of 1: []\n");
    fleet_end(&fleet);
}

static void a_machine_with_fewer_cards_has_fewer_ranks(void **state)
{
    struct fleet fleet;

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_CUDA_DEVICES", "2", 1);
    fleet_begin_tcp(&fleet);
    fleet_await_all();
    NODE(&fleet, 0, "1:2", "--nproc", "1");
    NODE(&fleet, 1, "1:2", "--nproc", "2");
    fleet_wait(&fleet, 2);
    unsetenv("CDDP_FAKE_CUDA_DEVICES");
    assert_int_equal(fleet.nodes[0].exit_status, 0);
    assert_int_equal(fleet.nodes[1].exit_status, 0);
    assert_err(&fleet.nodes[1], "1 card remains on this machine, which goes on with 1 rank\n");
    assert_out(&fleet.nodes[1], "generation 1, rank 1 of 2: [" CARD(1) "]\n");
    fleet_end(&fleet);
}

static void a_job_of_fixed_machines_ends(void **state)
{
    struct fleet fleet;

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_FAKE_CUDA_DEVICES", "1", 1);
    fleet_begin_tcp(&fleet);
    for (int i = 0; i < 2; i++) {
        NODE(&fleet, i, "2", "--nproc", "1", "--max-restarts", "3");
    }
    fleet_wait(&fleet, 2);
    unsetenv("CDDP_FAKE_CUDA_DEVICES");
    assert_int_not_equal(fleet.nodes[0].exit_status, 0);
    assert_err(&fleet.nodes[1], "NVML reports Xid 79. 0 cards remain on this machine for 1 rank, "
                                "so the job ends\n");
    assert_err(&fleet.nodes[0], "the ranks of node 1 (");
    assert_err(&fleet.nodes[0], ") cannot start again: the job ends\n");
    assert_no_err(&fleet.nodes[0], "restarting");
    assert_no_err(&fleet.nodes[1], "for 1 rank, since");
    fleet_end(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spare_card_takes_the_place),
        cmocka_unit_test(it_is_left_out_for_the_rest_of_the_job),
        cmocka_unit_test(only_cards_that_the_user_allows_are_taken),
        cmocka_unit_test(with_fewer_cards_an_elastic_job_goes_on_with_fewer_ranks),
        cmocka_unit_test(with_too_few_cards_the_job_ends_and_names_the_card),
        cmocka_unit_test(a_job_that_does_not_restart_is_left_as_it_is),
        cmocka_unit_test(a_program_that_takes_the_card_again_ends_the_job),
        cmocka_unit_test(the_driver_that_answers_no_more_ends_the_job),
        cmocka_unit_test(the_driver_is_asked_without_showing_it_the_ill_card),
        cmocka_unit_test(odd_reports_do_no_harm),
        cmocka_unit_test(a_machine_without_a_card_leaves_an_elastic_job),
        cmocka_unit_test(a_machine_with_fewer_cards_has_fewer_ranks),
        cmocka_unit_test(a_job_of_fixed_machines_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
