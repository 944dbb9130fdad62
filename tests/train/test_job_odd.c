/* test_job_odd.c - jobs on unusual machines or with unusual input: many jobs at once, names with
 * any characters, few descriptors, little shared memory, numbers with a decimal comma. All end with
 * the same bits. */
#include "support/job.h"

enum { STEPS = 3, JOBS = 10 };

#define SHORT_RUN in_work("small.conf"), "train.max_steps=3"

/* The run that nothing is odd about. */
static int make_plain(void **state)
{
    struct launched job = {0};

    if (make_work(state) != 0) {
        return 1;
    }
    JOB_RUN_WELL(&job, "--nproc", "2", SHORT_RUN, run_dir_argument("plain"));
    launcher_end(&job);
    return 0;
}

static void many_jobs_at_once_do_not_meet(void **state)
{
    struct launched all[JOBS] = {{0}};

    (void)state;
    for (int i = 0; i < JOBS; i++) {
        JOB_START(&all[i], "--nproc", "2", SHORT_RUN, run_dir_argument(argument("job-%d", i)));
    }
    for (int i = 0; i < JOBS; i++) {
        launcher_wait(&all[i]);
        if (all[i].exit_status != 0) {
            fail_msg("exit status %d: %s", all[i].exit_status, all[i].err);
        }
        assert_same_checkpoint("plain", argument("job-%d", i), STEPS);
        launcher_end(&all[i]);
    }
}

static void names_may_hold_any_character(void **state)
{
    static const char odd[] = "a \"b\" 'c' $d `e` %s;*?[f]\\ {g} \xc3\xa9 #\n=h";
    char conf[4400];
    struct launched job = {0};
    char *text;
    size_t bytes = 0;

    (void)state;
    snprintf(conf, sizeof conf, "%s", in_work("%s.conf", odd));
    text = get_file(in_work("small.conf"), &bytes);
    assert_non_null(text);
    support_write_file(conf, text, bytes);
    free(text);
    JOB_RUN_WELL(&job, "--nproc", "2", "--log-dir", in_work("%s-logs", odd), "--run-dir",
                 in_work("%s", odd), conf, "train.max_steps=3");
    assert_same_checkpoint("plain", odd, STEPS);
    assert_int_equal(access(in_work("%s-logs/rank-1.log", odd), F_OK), 0);
    launcher_end(&job);
}

/* Run @p steps of small.conf into @p run_dir by a shell's @p script, which executes "$@". */
static void run_by_shell(struct launched *job, const char *script, const char *run_dir)
{
    launcher_start_program(job, "sh",
                           (const char *const[]){"-c", script, "sh",
                                                 argument("%s", launcher_path("launcher/cddp-run")),
                                                 "--nproc", "2", SHORT_RUN,
                                                 run_dir_argument(run_dir), NULL});
    launcher_wait(job);
}

static void thirty_two_descriptors_will_do(void **state)
{
    struct launched job = {0};

    (void)state;
    run_by_shell(&job, "ulimit -n 32 && exec \"$@\"", "few");
    if (job.exit_status != 0) {
        fail_msg("exit status %d: %s", job.exit_status, job.err);
    }
    assert_same_checkpoint("plain", "few", STEPS);
    launcher_end(&job);
}

static void little_shared_memory_will_do(void **state)
{
    struct launched job = {0};

    (void)state;
    if (system("unshare -Urm mount -t tmpfs -o size=64k tmpfs /dev/shm 2>/dev/null") != 0) {
        print_message("no small /dev/shm: unshare -Urm may not mount here\n");
        skip();
    }
    run_by_shell(&job,
                 "exec unshare -Urm sh -c "
                 "'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec \"$@\"' sh \"$@\"",
                 "small-shm");
    if (job.exit_status != 0) {
        fail_msg("exit status %d: %s", job.exit_status, job.err);
    }
    assert_same_checkpoint("plain", "small-shm", STEPS);
    launcher_end(&job);
}

static void a_locale_with_a_comma_changes_nothing(void **state)
{
    struct launched job = {0};

    (void)state;
    if (system(argument("localedef -i de_DE -f UTF-8 '%s' >/dev/null 2>&1", in_work("de_DE"))) !=
        0) {
        print_message("no German locale can be made: localedef or its sources are missing\n");
        skip();
    }
    run_by_shell(&job,
                 argument("LOCPATH='%s' LC_ALL=de_DE exec \"$@\" optimizer.lr=0.1", in_work(".")),
                 "comma");
    if (job.exit_status != 0) {
        fail_msg("exit status %d: %s", job.exit_status, job.err);
    }
    assert_same_checkpoint("plain", "comma", STEPS);
    assert_float_equal(metric("comma", STEPS, "loss"), metric("plain", STEPS, "loss"), 0);
    launcher_end(&job);
}

static void a_clock_that_jumps_by_days_changes_nothing(void **state)
{
    struct launched job = {0};

    (void)state;
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    print_message("a sanitizer wants to be loaded before the clock\n");
    skip();
#endif
    run_by_shell(&job,
                 argument("LD_PRELOAD='%s' exec \"$@\" train.checkpoint_seconds=3600",
                          launcher_path("tests/libjumping_clock.so")),
                 "clock");
    if (job.exit_status != 0) {
        fail_msg("exit status %d: %s", job.exit_status, job.err);
    }
    assert_no_err(&job, "preload");
    assert_same_checkpoint("plain", "clock", STEPS);
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_jobs_at_once_do_not_meet),
        cmocka_unit_test(names_may_hold_any_character),
        cmocka_unit_test(thirty_two_descriptors_will_do),
        cmocka_unit_test(little_shared_memory_will_do),
        cmocka_unit_test(a_locale_with_a_comma_changes_nothing),
        cmocka_unit_test(a_clock_that_jumps_by_days_changes_nothing),
    };

    return cmocka_run_group_tests(tests, make_plain, remove_work);
}
