/* test_launcher.c - cddp-run owns its ranks: which rank is to blame, which ranks are told, and
 * which must end. */
#include "support/launcher.h"

#include <stdbool.h>

static void a_rank_that_exits_with_seven_gives_seven(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "3", "--", "sh", "-c", "[ $RANK != 2 ] || exit 7");
    assert_int_equal(job.exit_status, 7);
    assert_err(&job, "cddp-run: rank 2 (pid ");
    assert_err(&job, ") exited with status 7\n");
    launcher_end(&job);
}

static void a_killed_rank_gives_its_signal(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--", "sh", "-c", "[ $RANK = 0 ] || kill -9 $$");
    assert_int_equal(job.exit_status, 137);
    assert_err(&job, ") was killed by signal 9 (SIGKILL)\n");
    launcher_end(&job);
    LAUNCH(&job, "--nproc", "1", "--", "sh", "-c", "ulimit -c 0; kill -SEGV $$");
    assert_int_equal(job.exit_status, 139);
    assert_err(&job, "rank 0 (pid ");
    assert_err(&job, ") was killed by signal 11 (SIGSEGV)\n");
    launcher_end(&job);
}

static bool put_line(const char *folder, const char *name, const char *line)
{
    char path[4400];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "we");
    if (file == NULL) {
        return false;
    }
    fputs(line, file);
    return fclose(file) == 0;
}

/* A new control group below ours in which processes may take so much memory; NULL: we may not make
 * one. */
static char *make_control_group(const char *megabytes)
{
    static const char *const parents[] = {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"};
    static const char *const limits[] = {"memory.limit_in_bytes", "memory.max"};
    static const char *const swaps[] = {"memory.swappiness", "memory.swap.max"};
    char *path = malloc(4200);

    for (int is_v2 = 0; is_v2 < 2; is_v2++) {
        char *text = launcher_read("/proc/self", "cgroup");
        char *own = text != NULL ? strstr(text, is_v2 ? "0::/" : ":memory:/") : NULL;

        if (own == NULL) {
            free(text);
            continue;
        }
        own = strchr(own, '/');
        own[strcspn(own, "\n")] = '\0';
        snprintf(path, 4200, "%s%s/cddp-test-%d", parents[is_v2], own, (int)getpid());
        free(text);
        if (mkdir(path, 0755) != 0) {
            continue;
        }
        if (put_line(path, limits[is_v2], megabytes)) {
            (void)put_line(path, swaps[is_v2], "0");
            return path;
        }
        rmdir(path);
    }
    free(path);
    return NULL;
}

static void a_rank_that_the_kernel_kills_for_memory_says_so(void **state)
{
    struct launched job = {0};
    char *group = make_control_group("200M");
    char script[4400];

    (void)state;
    if (group == NULL) {
        print_message("skipped: no control group for memory may be made here\n");
        skip();
    }
    snprintf(script, sizeof script, "echo $$ >%s/cgroup.procs || exit 55; exec \"$@\"", group);
    launcher_start_program(&job, "/bin/sh",
                           (const char *const[]){"-c", script, "sh",
                                                 launcher_path("launcher/cddp-run"), "--nproc", "2",
                                                 "--", "sh", "-c",
                                                 "[ $RANK = 0 ] && exec sleep 1000; exec tail "
                                                 "/dev/zero",
                                                 NULL});
    launcher_wait(&job);
    for (int i = 0; rmdir(group) != 0 && i < 1000; i++) {
        support_sleep_ms(10);
    }
    free(group);
    if (job.exit_status == 55) {
        launcher_end(&job);
        print_message("skipped: no process may enter a control group here\n");
        skip();
    }
    assert_int_equal(job.exit_status, 137);
    assert_failed_rank(&job, 1);
    assert_err(&job, ": memory ran out, so the kernel killed it (oom_kill in /sys/fs/cgroup/");
    launcher_end(&job);
}

static void the_first_failure_is_named_with_its_last_lines(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "3", "--", "sh", "-c",
           "if [ $RANK = 1 ]; then i=0; while [ $i -lt 30 ]; do echo line $i >&2; i=$((i+1)); "
           "done; exit 3; fi; sleep 1000");
    assert_int_equal(job.exit_status, 3);
    assert_failed_rank(&job, 1);
    assert_err(&job, "last lines of rank 1's stderr:\n[1] line 10\n");
    assert_err(&job,
               "[1] line 29\ncddp-run: stopping the other 2 ranks; after 10 s they are killed\n");
    launcher_end(&job);
}

/* Ranks that follow a failure say so in the launcher's pipe, and may end before the one that
 * failed; here rank 0 ends only once both others have. */
static void the_rank_that_is_the_cause_is_named_not_the_first_that_follows(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "3", "--grace", "1000", "--", "sh", "-c",
           "echo $$ >pid$RANK; "
           "if [ $RANK != 0 ]; then printf \"b\\00$RANK\\000\\000\\000\" "
           ">/proc/$$/fd/$CDDP_REPORT_FD; exit 1; fi; "
           "for r in 1 2; do while [ ! -s pid$r ] || kill -0 $(cat pid$r) 2>&-; do sleep 0.01; "
           "done; done; exit 6");
    assert_int_equal(job.exit_status, 6);
    assert_failed_rank(&job, 0);
    assert_int_equal(launcher_failures(job.err, NULL), 1);
    launcher_end(&job);
}

/* Who is named as the cause may do well, or hang: then the one that failed is named after all. */
static void a_rank_that_blames_another_wrongly_is_named_itself(void **state)
{
    static const char *const rests[] = {"exit 0", "exec sleep 1000"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct launched job = {0};
        char script[256];

        snprintf(script, sizeof script,
                 "[ $RANK = 0 ] || { printf "
                 "'b\\001\\000\\000\\000' >/proc/$$/fd/$CDDP_REPORT_FD; exit 4; }; sleep 0.2; %s",
                 rests[i]);
        LAUNCH(&job, "--nproc", "2", "--grace", "0.5", "--", "sh", "-c", script);
        assert_int_equal(job.exit_status, 4);
        assert_failed_rank(&job, 1);
        launcher_end(&job);
    }
}

/* Three ranks end while the supervisor cannot look; in which order is still known. */
static void ends_are_blamed_in_the_order_in_which_they_happened(void **state)
{
    struct launched job = {0};
    long pids[3];
    long supervisor;

    (void)state;
    launcher_start(&job, (const char *const[]){"--nproc", "3", "--", "sh", "-c",
                                               "echo $PPID >parent$RANK; echo $$ >pid$RANK; "
                                               "echo up; exec sleep 1000",
                                               NULL});
    for (int rank = 0; rank < 3; rank++) {
        char name[16];

        snprintf(name, sizeof name, "pid%d", rank);
        pids[rank] = launcher_number(&job, name);
    }
    supervisor = launcher_number(&job, "parent0");
    launcher_await_text(job.dir, "out", "up"); /* what it has passed on, it has seen all start */
    kill((pid_t)supervisor, SIGSTOP);
    for (int i = 0; i < 3; i++) {
        static const int order[] = {2, 0, 1};
        static const int numbers[] = {SIGUSR1, SIGKILL, SIGABRT};

        kill((pid_t)pids[order[i]], numbers[i]);
        assert_true(launcher_is_gone((pid_t)pids[order[i]]));
    }
    kill((pid_t)supervisor, SIGCONT);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 128 + SIGUSR1);
    assert_failed_rank(&job, 2);
    assert_int_equal(launcher_failures(job.err, NULL), 1);
    launcher_end(&job);
}

static void survivors_that_ignore_sigterm_are_killed_after_the_grace(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--grace", "0.3", "--", "sh", "-c",
           "trap '' TERM; echo $$ >pid$RANK; if [ $RANK = 0 ]; then while [ ! -s pid1 ]; do sleep "
           "0.01; done; exit 5; fi; while :; do sleep 1; done");
    assert_int_equal(job.exit_status, 5);
    assert_failed_rank(&job, 0);
    assert_err(&job, ") did not end within 0.3 s: killing it\n");
    assert_true(launcher_is_gone((pid_t)launcher_number(&job, "pid1")));
    launcher_end(&job);
}

static void a_stopped_survivor_is_ended_too(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--", "sh", "-c",
           "echo $$ >pid$RANK; if [ $RANK = 0 ]; then while ! grep -q 'T (stopped)' /proc/$(cat "
           "pid1)/status; do sleep 0.01; done; exit 4; fi; kill -STOP $$; sleep 1000");
    assert_int_equal(job.exit_status, 4);
    assert_true(launcher_is_gone((pid_t)launcher_number(&job, "pid1")));
    launcher_end(&job);
}

/* Each rank has a child in its group, and one in a session of its own that ignores SIGTERM. */
#define FAMILY                                                                                     \
    "sleep 1000 & echo $! >child$RANK; setsid sh -c 'trap \"\" TERM HUP; echo $$ >far'$RANK'; "    \
    "sleep 1001' & while [ ! -s far$RANK ]; do sleep 0.01; done; echo $PPID >parent$RANK; "        \
    "echo $$ >pid$RANK; "

static void start_family(struct launched *job, const char *rest, pid_t pids[6])
{
    static const char *const names[] = {"pid0", "child0", "far0", "pid1", "child1", "far1"};
    char script[1024];

    snprintf(script, sizeof script, "%s%s", FAMILY, rest);
    launcher_start(job, (const char *const[]){"--nproc", "2", "--", "sh", "-c", script, NULL});
    for (int i = 0; i < 6; i++) {
        pids[i] = (pid_t)launcher_number(job, names[i]);
    }
}

static void assert_all_gone(const pid_t pids[6])
{
    for (int i = 0; i < 6; i++) {
        assert_true(launcher_is_gone(pids[i]));
    }
}

static void killing_the_launcher_leaves_no_process(void **state)
{
    struct launched job = {0};
    pid_t pids[6];
    pid_t supervisor;

    (void)state;
    launcher_needs_orphans();
    start_family(&job, "sleep 1002", pids);
    supervisor = (pid_t)launcher_number(&job, "parent0");
    kill(job.pid, SIGKILL);
    launcher_wait(&job);
    assert_all_gone(pids);
    assert_true(launcher_is_gone(supervisor));
    launcher_end(&job);
}

static void killing_the_supervisor_leaves_no_process(void **state)
{
    struct launched job = {0};
    pid_t pids[6];

    (void)state;
    launcher_needs_orphans();
    start_family(&job, "sleep 1002", pids);
    kill((pid_t)launcher_number(&job, "parent0"), SIGKILL);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 137);
    assert_err(&job, "cddp-run: the supervisor (pid ");
    assert_all_gone(pids);
    launcher_end(&job);
}

static void killing_a_rank_leaves_no_process(void **state)
{
    struct launched job = {0};
    pid_t pids[6];

    (void)state;
    launcher_needs_orphans();
    start_family(&job, "sleep 1002", pids);
    kill(pids[3], SIGKILL);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 137);
    assert_failed_rank(&job, 1);
    for (int i = 0; i < 6; i++) { /* at once: they are reaped before cddp-run exits */
        assert_int_equal(kill(pids[i], 0), -1);
    }
    launcher_end(&job);
}

static void what_ranks_leave_behind_ends_with_them(void **state)
{
    struct launched job = {0};
    pid_t pids[6];

    (void)state;
    launcher_needs_orphans();
    start_family(&job, "exit 0", pids);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(kill(pids[i], 0), -1);
    }
    launcher_end(&job);
}

static void a_rank_may_end_early_with_success(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--", "sh", "-c",
           "[ $RANK = 0 ] || { sleep 0.3; echo still here; }");
    assert_int_equal(job.exit_status, 0);
    assert_string_equal(job.err, "");
    assert_string_equal(job.out, "[1] still here\n");
    launcher_end(&job);
}

static void start_and_signal(struct launched *job, const char *script, int number)
{
    launcher_start(job, (const char *const[]){"--nproc", "2", "--grace", "1000", "--", "sh", "-c",
                                              script, NULL});
    (void)launcher_number(job, "pid0");
    (void)launcher_number(job, "pid1");
    kill(job->pid, number);
}

static void ranks_that_obey_sigterm_give_success(void **state)
{
    struct launched job = {0};

    (void)state;
    start_and_signal(&job,
                     "trap 'echo saved; exit 0' TERM; echo $$ >pid$RANK; while :; do sleep 0.05; "
                     "done",
                     SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_err(&job, "cddp-run: SIGTERM: stopping 2 ranks; after 3000 s, or at a second signal, "
                     "they are killed\n");
    assert_out(&job, "[1] saved\n");
    assert_int_equal(launcher_count(job.out, "saved"), 2);
    launcher_end(&job);
}

static void ranks_that_die_of_the_signal_are_not_blamed(void **state)
{
    struct launched job = {0};

    (void)state;
    start_and_signal(&job, "echo $$ >pid$RANK; exec sleep 1000", SIGINT);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 130);
    assert_int_equal(launcher_failures(job.err, NULL), 0);
    launcher_end(&job);
}

static void a_failure_after_sigterm_is_still_named(void **state)
{
    struct launched job = {0};

    (void)state;
    start_and_signal(&job,
                     "trap '[ $RANK = 0 ] || exit 9' TERM; echo $$ >pid$RANK; while [ $RANK = 1 ] "
                     "|| kill -0 $(cat pid1); do sleep 0.05; done",
                     SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 9);
    assert_failed_rank(&job, 1);
    launcher_end(&job);
}

static void a_second_signal_kills_but_two_at_once_are_one(void **state)
{
    struct launched job = {0};
    pid_t supervisor;

    (void)state;
    launcher_start(&job, (const char *const[]){"--nproc", "2", "--grace", "1000", "--", "sh", "-c",
                                               "trap 'echo asked >asked$RANK' TERM HUP; echo $PPID "
                                               ">pid$RANK; while :; do sleep 0.05; done",
                                               NULL});
    supervisor = (pid_t)launcher_number(&job, "pid0");
    (void)launcher_number(&job, "pid1");
    kill(supervisor, SIGSTOP); /* so that it cannot see one long before the other */
    kill(job.pid, SIGTERM);
    kill(job.pid, SIGHUP); /* in a second it is continued */
    assert_int_equal(launcher_number(&job, "asked0"), 0);
    support_sleep_ms(400); /* what comes now is no longer the same wish */
    assert_int_equal(waitpid(job.pid, NULL, WNOHANG), 0);
    kill(job.pid, SIGTERM);
    launcher_wait(&job); /* much less than the 3000 s */
    assert_int_equal(job.exit_status, 128 + SIGTERM);
    assert_err(&job, "cddp-run: SIGHUP: ");
    assert_err(&job, "cddp-run: SIGTERM: killing 2 ranks\n");
    launcher_end(&job);
}

static void user_signals_reach_the_ranks(void **state)
{
    struct launched job = {0};

    (void)state;
    start_and_signal(&job, "trap 'exit 0' USR1; echo $$ >pid$RANK; while :; do sleep 0.05; done",
                     SIGUSR1);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_string_equal(job.err, "");
    launcher_end(&job);
}

static void restarts_are_counted_and_get_a_new_generation(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--max-restarts", "2", "--", "sh", "-c",
           "echo $CDDP_GENERATION $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS "
           "$MASTER_PORT >>ran$RANK; [ $RANK = 0 ] || exit 6; sleep 1000");
    assert_int_equal(job.exit_status, 6);
    assert_err(&job, "cddp-run: restarting (1 of 2) under generation 1\n");
    assert_err(&job, "cddp-run: restarting (2 of 2) under generation 2\n");
    assert_int_equal(launcher_failures(job.err, NULL), 3);
    free(job.out);
    job.out = launcher_read(job.dir, "ran1");
    assert_out(&job, "0 0 2 ");
    assert_out(&job, "\n1 1 2 ");
    assert_out(&job, "\n2 2 2 ");
    launcher_end(&job);
    LAUNCH(&job, "--nproc", "2", "--max-restarts", "3", "--", "sh", "-c",
           "[ $CDDP_GENERATION = 1 ] || exit 1");
    assert_int_equal(job.exit_status, 0);
    launcher_end(&job);
}

static void the_others_hear_of_a_failure_through_the_store(void **state)
{
    struct launched job = {0};
    char *helper;

    (void)state;
    helper = strdup(launcher_path("tests/launcher_rank"));
    setenv("HELPER", helper, 1);
    LAUNCH(&job, "--nproc", "2", "--grace", "300", "--", "sh", "-c",
           "if [ $RANK = 0 ]; then trap '' TERM; $HELPER await failure >heard; exit 0; fi; "
           "while [ ! -s heard ]; do sleep 0.01; done; exit 11");
    assert_int_equal(job.exit_status, 11);
    free(job.out);
    job.out = launcher_read(job.dir, "heard");
    assert_out(&job, "heard: ");
    launcher_need_rank(job.out, 1);
    free(helper);
    launcher_end(&job);
}

static void a_kernel_without_pidfd_will_do(void **state)
{
    struct launched job = {0};
    char *helper;

    (void)state;
    helper = strdup(launcher_path("tests/launcher_rank"));
    launcher_start_program(&job, helper,
                           (const char *const[]){"no-pidfd", launcher_path("launcher/cddp-run"),
                                                 "--nproc", "3", "--", "sh", "-c",
                                                 "(sleep 0 &) ; [ $RANK = 1 ] || exec sleep 1000; "
                                                 "echo bad >&2; exit 8",
                                                 NULL});
    free(helper);
    launcher_wait(&job);
    if (job.exit_status == 77) {
        print_message("skipped: %s", job.err); /* as by qemu, which refuses it what it emulates */
        launcher_end(&job);
        skip();
    }
    assert_int_equal(job.exit_status, 8);
    assert_failed_rank(&job, 1);
    assert_err(&job, "[1] bad\n");
    assert_no_err(&job, "last lines"); /* which were shown a moment ago */
    launcher_end(&job);
}

/* In a mount namespace of its own nobody else writes to /tmp and /dev/shm. */
static void nothing_is_left_in_tmp_and_dev_shm(void **state)
{
    struct launched job = {0};

    (void)state;
    setenv("CDDP_RUN_PROGRAM", launcher_path("launcher/cddp-run"), 1);
    launcher_start_program(
        &job, "unshare",
        (const char *const[]){
            "-r", "-m", "sh", "-c",
            "mount -t tmpfs none /dev/shm && mkdir in && mount -t tmpfs none in || exit 77; "
            "export TMPDIR=$PWD/in; "
            "$CDDP_RUN_PROGRAM -n 2 -- sh -c '[ $RANK = 0 ] || kill -9 $$; sleep 1000'; "
            "$CDDP_RUN_PROGRAM -n 2 -- sh -c 'echo >here$RANK; sleep 1000' & "
            "while [ ! -e here0 ] || [ ! -e here1 ]; do sleep 0.01; done; kill -9 $!; wait; "
            "while [ \"$(ls -A in)$(ls -A /dev/shm)\" ]; do sleep 0.05; done; "
            "ls -A in /dev/shm",
            NULL});
    launcher_wait(&job);
    if (job.exit_status == 77 || job.exit_status == 98 || strstr(job.err, "unshare:") != NULL) {
        launcher_end(&job);
        skip(); /* no namespaces here */
    }
    assert_int_equal(job.exit_status, 0);
    assert_string_equal(job.out, "/dev/shm:\n\nin:\n");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_exits_with_seven_gives_seven),
        cmocka_unit_test(a_killed_rank_gives_its_signal),
        cmocka_unit_test(a_rank_that_the_kernel_kills_for_memory_says_so),
        cmocka_unit_test(the_first_failure_is_named_with_its_last_lines),
        cmocka_unit_test(the_rank_that_is_the_cause_is_named_not_the_first_that_follows),
        cmocka_unit_test(a_rank_that_blames_another_wrongly_is_named_itself),
        cmocka_unit_test(ends_are_blamed_in_the_order_in_which_they_happened),
        cmocka_unit_test(survivors_that_ignore_sigterm_are_killed_after_the_grace),
        cmocka_unit_test(a_stopped_survivor_is_ended_too),
        cmocka_unit_test(killing_the_launcher_leaves_no_process),
        cmocka_unit_test(killing_the_supervisor_leaves_no_process),
        cmocka_unit_test(killing_a_rank_leaves_no_process),
        cmocka_unit_test(what_ranks_leave_behind_ends_with_them),
        cmocka_unit_test(a_rank_may_end_early_with_success),
        cmocka_unit_test(ranks_that_obey_sigterm_give_success),
        cmocka_unit_test(ranks_that_die_of_the_signal_are_not_blamed),
        cmocka_unit_test(a_failure_after_sigterm_is_still_named),
        cmocka_unit_test(a_second_signal_kills_but_two_at_once_are_one),
        cmocka_unit_test(user_signals_reach_the_ranks),
        cmocka_unit_test(restarts_are_counted_and_get_a_new_generation),
        cmocka_unit_test(the_others_hear_of_a_failure_through_the_store),
        cmocka_unit_test(a_kernel_without_pidfd_will_do),
        cmocka_unit_test(nothing_is_left_in_tmp_and_dev_shm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
