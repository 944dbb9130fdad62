/* test_job_faults.c - what a job of cddp-run does when things are wrong: one clear message, a
 * nonzero exit status, in time, no process left, and nothing lost that was saved. */
#include "support/job.h"
#include "support/tokens.h"

static void what_is_wrong_with_the_configuration_is_told_once(void **state)
{
    static const struct {
        const char *argument, *says;
    } cases[] = {
        {"train.epoch=1", "argument train.epoch=1: "},
        {"train.epochs=many", "argument train.epochs=many: "},
        {"data.test_images=no-such.gz", "data.test_images: no-such.gz: "},
        {"train.batch_size=2", "argument train.batch_size=2: train.batch_size: "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct launched job = {0};

        LAUNCH(&job, "--nproc", "3", in_work("small.conf"), run_dir_argument("never"),
               cases[i].argument);
        assert_int_equal(job.exit_status, 2);
        assert_err(&job, cases[i].says);
        assert_int_equal(count_lines(job.err), 1);
        assert_int_not_equal(access(in_work("never"), F_OK), 0);
        launcher_end(&job);
    }
}

static void a_line_of_the_file_is_named(void **state)
{
    static const char text[] = "train = { epochs = 1; };\nmodel = { hiden = [8]; };\n";
    struct launched job = {0};

    (void)state;
    support_write_file(in_work("bad.conf"), text, sizeof text - 1);
    LAUNCH(&job, "--nproc", "2", in_work("bad.conf"));
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "bad.conf:2: ");
    assert_int_equal(count_lines(job.err), 1);
    launcher_end(&job);
}

/* A gzip of the images, damaged by the shell command @p damage on its standard input. */
static void put_damaged(const char *name, const char *damage)
{
    assert_int_equal(system(argument("gzip -c %s | %s > %s", in_work("train-images"), damage,
                                     in_work("%s", name))),
                     0);
}

static void damaged_data_are_told_once_with_rank_and_file(void **state)
{
    const char *cases[][2] = {
        {argument("data.train_images=%s", in_work("cut.gz")), "cut.gz: "},
        {argument("data.train_images=%s", in_work("flipped.gz")), "flipped.gz: "},
        {"data.classes=3", "train-labels: "},
    };

    (void)state;
    put_damaged("cut.gz", "head -c 9000");
    put_damaged("flipped.gz", "(head -c 9000; printf '\\001\\002\\003'; tail -c +9004)");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct launched job = {0};

        LAUNCH(&job, "--nproc", "3", in_work("small.conf"), run_dir_argument("never"), cases[i][0]);
        assert_int_equal(job.exit_status, 1);
        assert_err(&job, "cddp-train: rank ");
        assert_int_equal(launcher_count(job.err, cases[i][1]), 1);
        assert_err(&job, ") exited with status 1\n");
        assert_err(&job, "cddp-run: rank 0 (pid "); /* whichever came to its end first */
        assert_no_err(&job, "rank 0: rank 0");
        launcher_end(&job);
    }
}

/* Each rank in a folder of its own, and a name that is relative. */
static void other_data_under_the_same_name_are_told_once_with_rank_and_file(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(mkdir(in_work("of-rank-%d", rank), 0700), 0);
        assert_int_equal(system(argument("cp '%s' '%s'", in_work("train-images"),
                                         in_work("of-rank-%d/images", rank))),
                         0);
    }
    for (int differs = 0; differs < 2; differs++) {
        struct launched job = {0};

        JOB_START(&job, "--nproc", "2", "--", "sh", "-c",
                  argument("cd '%s'$CDDP_RANK && exec \"$@\"", in_work("of-rank-")), "sh",
                  argument("%s", launcher_path("src/cddp-train")), in_work("small.conf"),
                  run_dir_argument("other-data"), "data.train_images=images", "train.max_steps=1");
        launcher_wait(&job);
        assert_int_equal(job.exit_status, differs);
        if (differs) {
            assert_err(&job, "rank 1: images ");
            assert_int_equal(launcher_count(job.err, ": images "), 1);
        }
        launcher_end(&job);
        support_change_byte(in_work("of-rank-1/images"), -77);
    }
}

/* Cut off @p data once the run of @p conf is under way. */
static void cut_off(const char *data, const char *conf, const char *setting)
{
    struct launched job = {0};

    JOB_START(&job, "--nproc", "2", in_work("%s", conf), run_dir_argument(data), setting,
              "train.epochs=1000000", "train.eval_epochs=1000000", "train.checkpoint_steps=5");
    wait_for_checkpoint(&job, data);
    assert_int_equal(truncate(in_work("%s.data", data), 100), 0);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, argument("%s.data: ", data));
    assert_err(&job, ") exited with status 1\n");
    assert_no_err(&job, "killed by signal");
    launcher_end(&job);
}

static void data_that_are_cut_off_in_use_are_named(void **state)
{
    char conf[10000];

    (void)state;
    assert_int_equal(system(argument("cp %s %s", in_work("train-images"), in_work("images.data"))),
                     0);
    cut_off("images", "small.conf", argument("data.train_images=%s", in_work("images.data")));
    support_write_shard(in_work("tokens.data"), 1, 20000, 2);
    support_write_shard(in_work("val.bin"), 2, 100, 2);
    snprintf(conf, sizeof conf,
             "data = { type = \"tokens\"; train = \"%s\"; test = \"%s\"; };\n"
             "model = { type = \"gpt2\"; blocks = 1; heads = 1; embed = 8; context = 15; };\n",
             in_work("tokens.data"), in_work("val.bin"));
    support_write_file(in_work("tokens.conf"), conf, strlen(conf));
    cut_off("tokens", "tokens.conf", "train.batch_size=4");
}

static void another_configuration_on_one_rank_is_shown_key_by_key(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--", "sh", "-c",
           "odd=; [ $CDDP_RANK = 0 ] || odd='model.hidden=[24] train.epochs=7'; exec \"$@\" $odd",
           "sh", argument("%s", launcher_path("src/cddp-train")), in_work("small.conf"),
           run_dir_argument("never"));
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "model.hidden: the configurations of ranks 0 and 1 differ; give every machine "
                     "the same:\n");
    assert_err(&job, "  model.hidden: rank 0 has [16], rank 1 has [24]\n");
    assert_err(&job, "  train.epochs: rank 0 has 3, rank 1 has 7\n");
    assert_int_equal(launcher_count(job.err, "rank 1 has [24]"), 1);
    launcher_end(&job);
}

static void long_values_are_shown_from_shortly_before_their_difference(void **state)
{
    char list[300] = "[16";
    struct launched job = {0};

    (void)state;
    for (int i = 1; i < 50; i++) {
        strcat(list, ", 16");
    }
    LAUNCH(&job, "--nproc", "2", "--", "sh", "-c",
           "last=16; [ $CDDP_RANK = 0 ] || last=24; \"$@, $last]\"", "sh",
           argument("%s", launcher_path("src/cddp-train")), in_work("small.conf"),
           run_dir_argument("never"), argument("model.hidden=%s", list));
    assert_int_equal(job.exit_status, 2);
    assert_err(&job, "  model.hidden: rank 0 has ...16, 16, ");
    assert_err(&job, ", 16, 16], rank 1 has ...16, 16, ");
    assert_err(&job, ", 16, 24]\n");
    launcher_end(&job);
}

static void the_difference_is_there_on_all_ranks(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--log-dir", "logs", "--", "sh", "-c",
           "trap '' TERM; odd=; [ $CDDP_RANK = 0 ] || odd='model.hidden=[24]'; \"$@\" $odd", "sh",
           argument("%s", launcher_path("src/cddp-train")), in_work("small.conf"),
           run_dir_argument("never"));
    assert_int_equal(job.exit_status, 2);
    for (int rank = 0; rank < 2; rank++) {
        char *text = launcher_read(job.dir, rank == 0 ? "logs/rank-0.log" : "logs/rank-1.log");

        launcher_need_text(text, "model.hidden: rank 0 has [16], rank 1 has [24]", "a log");
        free(text);
    }
    launcher_end(&job);
}

#define LONG_JOB(name)                                                                             \
    in_work("small.conf"), run_dir_argument(name), "train.epochs=1000000",                         \
        "train.checkpoint_steps=10", "train.eval_epochs=1000000"

/* Of a run that was broken off: its checkpoints are whole. */
static void assert_goes_on(const char *run_dir)
{
    struct launched job = {0};

    JOB_RUN_WELL(&job, "--nproc", "2", LONG_JOB(run_dir), "train.resume=auto", "train.max_steps=1");
    assert_err(&job, "continuing from ");
    assert_no_err(&job, "passed over");
    launcher_end(&job);
}

static void a_killed_worker_ends_the_job(void **state)
{
    struct launched job = {0};

    (void)state;
    set_tmpdir();
    JOB_START(&job, "--nproc", "3", LONG_JOB("killed"));
    kill_rank(&job, "killed", 1);
    launcher_end(&job);
    assert_tmpdir_is_empty();
    assert_goes_on("killed");
}

static void a_stopped_worker_ends_the_job_within_the_deadline(void **state)
{
    struct launched job = {0};
    pid_t pid;

    (void)state;
    set_tmpdir();
    JOB_START(&job, "--nproc", "2", "--timeout", "40", LONG_JOB("stopped"));
    wait_for_checkpoint(&job, "stopped");
    pid = find_rank("stopped", 1);
    assert_true(pid > 0);
    kill(pid, SIGSTOP);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, argument(" ms for rank 1 (pid %d, stopped)", (int)pid));
    assert_no_orphan("stopped");
    launcher_end(&job);
    assert_tmpdir_is_empty();
    assert_goes_on("stopped");
}

static void no_rank_outlives_a_killed_launcher(void **state)
{
    struct launched job = {0};

    (void)state;
    set_tmpdir();
    JOB_START(&job, "--nproc", "2", LONG_JOB("headless"));
    wait_for_checkpoint(&job, "headless");
    kill(job.pid, SIGKILL);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 128 + SIGKILL);
    assert_no_orphan("headless");
    launcher_end(&job);
    assert_tmpdir_is_empty();
    assert_goes_on("headless");
}

static void a_corrupt_newest_checkpoint_is_passed_over(void **state)
{
    struct launched job = {0};
    FILE *file;

    (void)state;
    JOB_RUN_WELL(&job, "--nproc", "2", LONG_JOB("corrupt"), "train.max_steps=20");
    launcher_end(&job);
    file = fopen(in_work("corrupt/checkpoints/step-00000020/model.safetensors"), "r+e");
    assert_non_null(file);
    fseek(file, -9, SEEK_END);
    fputs("broken", file);
    fclose(file);
    JOB_RUN_WELL(&job, "--nproc", "2", LONG_JOB("corrupt"), "train.max_steps=30",
                 "train.resume=auto");
    assert_err(&job, "passed over: ");
    assert_err(&job, "step-00000020");
    assert_err(&job, "checkpoints/step-00000010: step 10");
    assert_out(&job, "after 30 steps");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_with_the_configuration_is_told_once),
        cmocka_unit_test(a_line_of_the_file_is_named),
        cmocka_unit_test(damaged_data_are_told_once_with_rank_and_file),
        cmocka_unit_test(other_data_under_the_same_name_are_told_once_with_rank_and_file),
        cmocka_unit_test(data_that_are_cut_off_in_use_are_named),
        cmocka_unit_test(another_configuration_on_one_rank_is_shown_key_by_key),
        cmocka_unit_test(long_values_are_shown_from_shortly_before_their_difference),
        cmocka_unit_test(the_difference_is_there_on_all_ranks),
        cmocka_unit_test(a_killed_worker_ends_the_job),
        cmocka_unit_test(a_stopped_worker_ends_the_job_within_the_deadline),
        cmocka_unit_test(no_rank_outlives_a_killed_launcher),
        cmocka_unit_test(a_corrupt_newest_checkpoint_is_passed_over),
    };

    return cmocka_run_group_tests(tests, make_work, remove_work);
}
