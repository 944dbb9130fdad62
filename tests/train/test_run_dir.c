/* test_run_dir.c - the folder of a run disappears during the run: the run reports it and loses
 * nothing. */
#include "support/launcher.h"
#include "support/train.h"

static struct run_options endless(const char *run_dir)
{
    return (struct run_options){.ranks = 2,
                                .arguments = {argument("train.run_dir=%s", in_work("%s", run_dir)),
                                              "train.epochs=1000000", "train.eval_epochs=1000000",
                                              "train.resume=auto",
                                              "optimizer.schedule.type=constant"}};
}

/* Wait until there is a file @p path. */
static void wait_for_file(const char *path)
{
    for (int waited = 0; access(path, F_OK) != 0; waited += 5) {
        if (waited >= SUPPORT_TIMEOUT_MS) {
            fail_msg("there is no %s", path);
        }
        support_sleep_ms(5);
    }
}

static void shell(const char *command)
{
    assert_int_equal(system(command), 0);
}

/* The run stops, has said @p says, and its last checkpoint is in @p run_dir, which can be gone on
 * from.
 */
static void assert_ends_in(struct run *run, const char *run_dir, const char *says)
{
    struct run_options next = endless(run_dir);
    unsigned long long step = 0;
    char *text;

    kill(run->pids[0], SIGTERM);
    finish_stopped(run);
    assert_says(run, "err", 0, says);
    text = output(run, "out", 0);
    assert_int_equal(sscanf(text, "stopped after step %llu", &step), 1);
    free(text);
    assert_int_equal(access(in_work("%s/checkpoints/step-%08llu/state.json", run_dir, step), F_OK),
                     0);
    assert_int_equal(access(in_work("%s/train.conf", run_dir), F_OK), 0);
    next.arguments[5] = "train.max_steps=1";
    *run = run_well(&next);
    assert_says(run, "err", 0, argument("step-%08llu: step %llu", step, step));
}

static void a_run_whose_folder_is_moved_away_makes_a_fresh_one(void **state)
{
    struct run_options options = endless("moved");
    struct run run = start(&options);
    const char *says = argument("%s was removed or moved", in_work("moved"));

    (void)state;
    wait_for_steps("moved");
    assert_int_equal(rename(in_work("moved"), in_work("elsewhere")), 0);
    wait_for_file(in_work("moved/metrics.jsonl"));
    assert_ends_in(&run, "moved", says);
}

/* Stop @p pid, a child, and wait until it has stopped. */
static void stop_child(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

static void a_run_whose_folder_is_removed_makes_a_fresh_one(void **state)
{
    struct run_options options = endless("removed");
    struct run run = start(&options);

    (void)state;
    wait_for_steps("removed");
    stop_child(run.pids[0]); /* or the command may meet files that are made anew */
    shell(argument("rm -rf '%s'", in_work("removed")));
    kill(run.pids[0], SIGCONT);
    wait_for_file(in_work("removed/metrics.jsonl"));
    assert_ends_in(&run, "removed", "removed was removed or moved");
}

static void checkpoints_that_are_lost_are_made_up_for_at_once(void **state)
{
    struct run_options options = endless("lost");
    struct run run;

    (void)state;
    options.arguments[5] = "train.max_steps=2";
    run_well(&options);
    options.arguments[5] = NULL;
    run = start(&options);
    for (int waited = 0; isnan(metric("lost", 3, "loss")); waited += 10) {
        assert_true(waited < SUPPORT_TIMEOUT_MS);
        support_sleep_ms(10);
    }
    for (int part = 0; part < 2; part++) {
        stop_child(run.pids[0]); /* else it makes the folder anew while it is removed */
        shell(argument("rm -rf '%s'", in_work(part == 0 ? "lost" : "lost/checkpoints")));
        kill(run.pids[0], SIGCONT);
        wait_for_file(in_work("lost/checkpoints/latest"));
    }
    assert_ends_in(&run, "lost", "lost/checkpoints was removed or moved");
}

static void lines_go_on_where_the_file_of_metrics_was_removed(void **state)
{
    struct run_options options = endless("lines");
    struct run run;

    (void)state;
    options.arguments[5] = argument("train.prometheus=\"%s\"", in_work("lines.prom"));
    run = start(&options);
    wait_for_steps("lines");
    assert_int_equal(unlink(in_work("lines/metrics.jsonl")), 0);
    wait_for_file(in_work("lines/metrics.jsonl"));
    launcher_await_text(in_work("lines"), "metrics.jsonl", "\"loss\"");
    wait_for_file(in_work("lines.prom"));
    assert_int_equal(unlink(in_work("lines.prom")), 0);
    wait_for_file(in_work("lines.prom")); /* the numbers still arrive there */
    assert_ends_in(&run, "lines", "lines/metrics.jsonl was removed or moved");
}

static void a_second_run_in_its_place_is_left_alone(void **state)
{
    struct run_options options = endless("place");
    struct run first = start(&options);
    struct run second;

    (void)state;
    wait_for_steps("place");
    stop_child(first.pids[0]); /* so that it comes too late */
    assert_int_equal(rename(in_work("place"), in_work("displaced")), 0);
    second = start(&options);
    wait_for_steps("place");
    kill(first.pids[0], SIGCONT);
    wait_for_file(in_work("place.recovered-1/metrics.jsonl"));
    kill(first.pids[0], SIGTERM);
    finish_stopped(&first);
    assert_says(&first, "err", 0, argument("it goes on in %s", in_work("place.recovered-1")));
    assert_says(&first, "out", 0, argument(" train.resume=%s\n", in_work("place.recovered-1")));
    assert_int_equal(access(in_work("place.recovered-1/checkpoints/latest"), F_OK), 0);
    assert_int_equal(access(in_work("place/checkpoints"), F_OK), -1);
    assert_int_equal(access(in_work("place/earlier-1"), F_OK), -1);
    assert_ends_in(&second, "place", "");
    /* what the first one prints works, once its place is free */
    options.arguments[3] = argument("train.resume=%s", in_work("place.recovered-1"));
    options.arguments[5] = "train.max_steps=1";
    run_well(&options);
}

static void a_fresh_folder_that_cannot_be_made_ends_the_run_with_words(void **state)
{
    struct run_options options = endless("parent/run");
    struct run run;

    (void)state;
    assert_int_equal(mkdir(in_work("parent"), 0700), 0);
    run = start(&options);
    wait_for_steps("parent/run");
    stop_child(run.pids[0]);
    assert_int_equal(rename(in_work("parent"), in_work("parent-elsewhere")), 0);
    support_write_file(in_work("parent"), "no folder", 9);
    kill(run.pids[0], SIGCONT);
    kill(run.pids[1], SIGTERM);
    (void)finish(&run);
    assert_int_equal(WEXITSTATUS(run.statuses[0]), 1);
    assert_says(&run, "err", 0, "parent/run was removed or moved");
    assert_says(&run, "err", 0, "Not a directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_whose_folder_is_moved_away_makes_a_fresh_one),
        cmocka_unit_test(a_run_whose_folder_is_removed_makes_a_fresh_one),
        cmocka_unit_test(checkpoints_that_are_lost_are_made_up_for_at_once),
        cmocka_unit_test(lines_go_on_where_the_file_of_metrics_was_removed),
        cmocka_unit_test(a_second_run_in_its_place_is_left_alone),
        cmocka_unit_test(a_fresh_folder_that_cannot_be_made_ends_the_run_with_words),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
