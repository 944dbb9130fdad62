/* test_train_cards.c - a job whose card fails while it trains: NVML says so, cddp-run leaves the
 * card out, and the job goes on. */
#include "support/ctl_run.h"
#include "support/train_cuda.h"

#define CARD_1 "cuda:1 (GPU-cacacaca-caca-caca-caca-cacacacaca01)"

/* Card 1 of three: the process that computes on it has a memory error after some steps. */
static void begin_fault(const char *xids)
{
    setenv("CDDP_FAKE_CUDA_DEVICES", "3", 1);
    setenv("CDDP_FAKE_CUDA_FAIL_CARD", "1", 1);
    setenv("CDDP_FAKE_CUDA_FAIL_LAUNCH", "1500", 1);
    setenv("CDDP_FAKE_NVML_CARD", "1", 1);
    setenv("CDDP_FAKE_NVML_XIDS", xids, 1);
}

static void end_fault(void)
{
    unsetenv("CDDP_FAKE_CUDA_FAIL_CARD");
    unsetenv("CDDP_FAKE_CUDA_FAIL_LAUNCH");
    unsetenv("CDDP_FAKE_NVML_CARD");
    unsetenv("CDDP_FAKE_NVML_XIDS");
    setenv("CDDP_FAKE_CUDA_DEVICES", "8", 1);
}

static void a_spare_card_takes_the_place_and_cddp_ctl_shows_it(void **state)
{
    struct launched job = {0};
    json_t *status;
    const json_t *cards;
    const char *text;

    (void)state;
    NEEDS_EMULATED_MODULE();
    begin_fault("48");
    JOB_START(&job, "--nproc", "2", "--max-restarts", "3", LONG_RUN, CUDA,
              run_dir_argument("spare"), "train.checkpoint_steps=20", "train.log_steps=1");
    launcher_await_text_after(in_work("spare"), "metrics.jsonl", "\"generation\":1", "\"loss\"");
    status = read_status("spare");
    cards = json_object_get(status, "cards_left_out");
    assert_int_equal(json_array_size(cards), 1);
    text = json_string_value(json_object_get(json_array_get(cards, 0), "card"));
    assert_string_equal(text, CARD_1 ": NVML reports Xid 48 (uncorrectable memory error)");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(cards, 0), "rank")), 1);
    json_decref(status);
    (void)stop(&job, "spare", SIGTERM);
    assert_err(&job, "cddp-run: " CARD_1 " is not used any more: NVML reports Xid 48 "
                     "(uncorrectable memory error). Another card takes its "
                     "place\n");
    end_fault();
    launcher_end(&job);
}

static void without_a_spare_it_goes_on_with_a_rank_less(void **state)
{
    struct launched job = {0};
    struct launched ctl = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    begin_fault("79");
    JOB_START(&job, "--nproc", "3", "--elastic", "2:3", LONG_RUN, CUDA, run_dir_argument("less"),
              "train.checkpoint_steps=20", "train.log_steps=1");
    launcher_await_text_after(in_work("less"), "metrics.jsonl", "\"generation\":1", "\"loss\"");
    assert_int_equal(status_number("less", "world_size"), 2);
    CTL_GIVES(&ctl, 1, in_work("%s", "less"), "add", "1");
    assert_err(&ctl, "may have 2 to 2 (--elastic)");
    launcher_end(&ctl);
    (void)stop(&job, "less", SIGTERM);
    assert_err(&job, "2 cards remain, so the job goes on with 2 ranks\n");
    end_fault();
    launcher_end(&job);
}

/* Three ranks on two cards: a rank reports how many it sees. */
static void ranks_that_share_cards_share_the_one_that_remains(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    begin_fault("79");
    setenv("CDDP_FAKE_CUDA_DEVICES", "2", 1);
    setenv("CDDP_BACKEND", "host", 1);
    JOB_START(&job, "--nproc", "3", "--max-restarts", "3", LONG_RUN, CUDA,
              run_dir_argument("shared"), "train.checkpoint_steps=20", "train.log_steps=1");
    launcher_await_text_after(in_work("shared"), "metrics.jsonl", "\"generation\":1", "\"loss\"");
    assert_int_equal(status_number("shared", "world_size"), 3);
    (void)stop(&job, "shared", SIGTERM);
    assert_err(&job, "Ranks share the cards that remain\n");
    unsetenv("CDDP_BACKEND");
    end_fault();
    launcher_end(&job);
}

/* What a program does wrong is no reason to change cards. */
static void an_error_of_the_program_costs_no_card(void **state)
{
    struct launched job = {0};

    (void)state;
    NEEDS_EMULATED_MODULE();
    begin_fault("13,31,43");
    LAUNCH(&job, "--nproc", "2", "--max-restarts", "1", LONG_RUN, CUDA, run_dir_argument("program"),
           "train.log_steps=1", "train.max_steps=400");
    assert_int_not_equal(job.exit_status, 0);
    assert_err(&job, "NVML reports Xid 13 (exception of a kernel, mostly by the program)");
    assert_err(&job, "restarting (1 of 1)");
    assert_no_err(&job, "not used any more");
    end_fault();
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spare_card_takes_the_place_and_cddp_ctl_shows_it),
        cmocka_unit_test(without_a_spare_it_goes_on_with_a_rank_less),
        cmocka_unit_test(ranks_that_share_cards_share_the_one_that_remains),
        cmocka_unit_test(an_error_of_the_program_costs_no_card),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
