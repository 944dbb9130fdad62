/* test_launcher_output.c - where cddp-run writes its ranks' output: log files, lines that do not
 * mix, slow readers, terminals. */
#include "support/launcher.h"

#include <poll.h>
#include <pty.h>

static void log_files_hold_both_streams_and_grow(void **state)
{
    struct launched job = {0};

    (void)state;
    for (int run = 0; run < 2; run++) {
        free(job.out);
        free(job.err);
        LAUNCH(&job, "--nproc", "2", "--log-dir", "deep/logs", "--", "sh", "-c",
               "echo out$RANK; "
               "while [ \"$(tail -n 1 deep/logs/rank-$RANK.log)\" != out$RANK ]; do "
               "sleep 0.01; done; echo err$RANK >&2");
        assert_int_equal(job.exit_status, 0);
        assert_out(&job, "out0\n");
        assert_out(&job, "[1] out1\n");
        assert_err(&job, "err0\n");
        assert_err(&job, "[1] err1\n");
    }
    free(job.out);
    job.out = launcher_read(job.dir, "deep/logs/rank-1.log");
    assert_non_null(job.out);
    assert_string_equal(job.out, "out1\nerr1\nout1\nerr1\n");
    launcher_end(&job);
}

/* A file that may not grow is as a disk that is full. */
static void a_full_disk_under_a_log_is_said_once(void **state)
{
    static const char script[] = "head -c 4096 /dev/zero >rank-0.log; ulimit -f 1; exec \"$0\" "
                                 "--nproc 1 --log-dir . -- sh -c "
                                 "'echo a; sleep 0.05; echo b; sleep 0.05; echo c'";
    struct launched job = {0};

    (void)state;
    launcher_start_program(
        &job, "sh", (const char *const[]){"-c", script, launcher_path("launcher/cddp-run"), NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_string_equal(job.out, "a\nb\nc\n");
    assert_string_equal(
        job.err, "cddp-run: cannot write ./rank-0.log: File too large (ulimit -f); the run goes "
                 "on without it\n");
    launcher_end(&job);
}

static void output_of_rank_zero_comes_untouched_and_at_once(void **state)
{
    struct launched job = {0};

    (void)state;
    launcher_start(&job,
                   (const char *const[]){"--nproc", "2", "--", "sh", "-c",
                                         "[ $RANK = 0 ] || { echo here >ran1; exec sleep 1000; }; "
                                         "printf '\\rstep 1' >&2; while [ ! -e seen ]; do sleep "
                                         "0.01; done; exit 3",
                                         NULL});
    for (int waited_ms = 0;; waited_ms += 2) {
        char *text = launcher_read(job.dir, "err");
        int is_there = text != NULL && strcmp(text, "\rstep 1") == 0;

        free(text);
        if (is_there) {
            break;
        }
        assert_true(waited_ms < SUPPORT_TIMEOUT_MS);
        support_sleep_ms(2);
    }
    launcher_write(job.dir, "seen", "");
    launcher_wait(&job);
    assert_int_equal(strncmp(job.err, "\rstep 1\ncddp-run: rank 0 (pid ", 30), 0);
    launcher_end(&job);
}

static void lines_of_ranks_do_not_mix(void **state)
{
    struct launched job = {0};
    int lines = 0;

    (void)state;
    LAUNCH(&job, "--nproc", "3", "--tag-output", "--", "sh", "-c",
           "i=0; while [ $i -lt 300 ]; do printf 'ab'; printf 'cd%s' $RANK; printf 'ef\\n'; "
           "i=$((i+1)); done; printf last");
    assert_int_equal(job.exit_status, 0);
    for (char *line = strtok(job.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char whole[32];
        char last[32];

        snprintf(whole, sizeof whole, "[%c] abcd%cef", line[1], line[1]);
        snprintf(last, sizeof last, "[%c] last", line[1]);
        assert_true(strcmp(line, whole) == 0 || strcmp(line, last) == 0);
        lines++;
    }
    assert_int_equal(lines, 903);
    launcher_end(&job);
}

/* cddp-run keeps at most 64 KiB of a line. Longer lines are cut there, and a line that ends just
 * there is no longer line. */
static void a_line_of_any_length_has_no_empty_line_after_it(void **state)
{
    static const struct {
        int bytes;
        int pieces;
    } rows[] = {{65535, 1}, {65536, 1}, {65537, 2}, {131072, 2}, {131073, 3}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct launched job = {0};
        char script[96];
        int pieces = 0;
        size_t bytes = 0;

        snprintf(script, sizeof script, "head -c %d /dev/zero | tr '\\0' x; echo; echo end",
                 rows[i].bytes);
        LAUNCH(&job, "--nproc", "1", "--tag-output", "--", "sh", "-c", script);
        assert_int_equal(job.exit_status, 0);
        for (char *line = strtok(job.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
            assert_int_equal(strncmp(line, "[0] ", 4), 0);
            if (strcmp(line, "[0] end") != 0) {
                assert_true(line[4] == 'x');
                bytes += strlen(line + 4);
                pieces++;
            }
        }
        assert_int_equal(bytes, rows[i].bytes);
        assert_int_equal(pieces, rows[i].pieces);
        launcher_end(&job);
    }
}

/* Each rank reports what it is about to write, and where its failure begins in that: after "who R:
 * ". Rank 2 tells of another; what comes between is shown, and so are words that were not reported.
 */
static void a_failure_that_ranks_report_is_shown_once(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "4", "--grace", "1000", "--", "sh", "-c",
           "trap '' TERM; >ready$RANK; pipe=/proc/$$/fd/$CDDP_REPORT_FD; "
           "for r in 0 1 2 3; do while [ ! -e ready$r ]; do sleep 0.01; done; done; "
           "[ $RANK != 2 ] || { printf 'f\\002\\000\\007\\000\\013\\000who 2: bad\\n' >$pipe; "
           "echo 'who 2: bad' >&2; exit 4; }; "
           "[ $RANK = 3 ] || printf \"f\\00$RANK\\000\\007\\000\\030\\000who $RANK: no luck\\n  "
           "at all\\n\" >$pipe; "
           "echo \"who $RANK: no luck\" >&2; echo between >&2; echo '  at all' >&2; exit 4");
    assert_int_equal(job.exit_status, 4);
    assert_int_equal(launcher_count(job.err, ": no luck\n"), 2); /* rank 3's was not reported */
    assert_err(&job, "who 3: no luck\n");
    assert_int_equal(launcher_count(job.err, "  at all\n"), 2);
    assert_int_equal(launcher_count(job.err, "between\n"), 3);
    assert_int_equal(launcher_count(job.err, "who 2: bad\n"), 1);
    assert_err(&job, "cddp-run: 1 other rank printed the same (--tag-output shows all)\n");
    launcher_end(&job);
}

/* What no rank of ours would write: of no rank, longer than it may be, with its beginning behind
 * its end; and one that never ends. */
/* The ranks that wait for it give it as the reason. */
static void the_last_line_of_a_rank_that_ends_early_is_told_to_the_others(void **state)
{
    static const char *const wrote[] = {"echo first >&2; echo no data: goodbye >&2; exit 0",
                                        "echo to stdout; exit 0"};

    setenv("LAUNCHER_RANK", launcher_path("tests/launcher_rank"), 1);
    for (int i = 0; i < 2; i++) {
        struct launched job = {0};
        char script[256];

        (void)state;
        snprintf(script, sizeof script,
                 "[ $RANK = 1 ] || exec \"$LAUNCHER_RANK\" await ended/1; %s", wrote[i]);
        LAUNCH(&job, "--nproc", "2", "--", "sh", "-c", script);
        assert_int_equal(job.exit_status, 0);
        assert_out(&job, i == 0 ? "heard: 0\nno data: goodbye\n" : "heard: 0\n");
        launcher_end(&job);
    }
    unsetenv("LAUNCHER_RANK");
}

static void reports_that_are_none_do_no_harm(void **state)
{
    static const char *const reports[] = {
        "f\\377\\377\\000\\000\\001\\000x", "f\\000\\000\\000\\000\\377\\377x",
        "f\\000\\000\\377\\377\\002\\000x\\n", "b\\377\\377\\377\\377", "f\\000"};

    (void)state;
    for (size_t i = 0; i < sizeof reports / sizeof reports[0]; i++) {
        struct launched job = {0};
        char script[256];

        snprintf(script, sizeof script,
                 "printf '%s' >/proc/$$/fd/$CDDP_REPORT_FD; echo x >&2; exit 4", reports[i]);
        LAUNCH(&job, "--nproc", "2", "--grace", "1000", "--", "sh", "-c", script);
        assert_int_equal(job.exit_status, 4);
        assert_int_equal(launcher_count(job.err, "x\n") >= 1, 1);
        assert_true(launcher_failures(job.err, NULL) > 0);
        launcher_end(&job);
    }
}

/* More than the supervisor queues, so that it must let the rank wait, and lose nothing. */
static void a_slow_reader_loses_nothing(void **state)
{
    struct launched job = {0};

    (void)state;
    setenv("CDDP_RUN_PROGRAM", launcher_path("launcher/cddp-run"), 1);
    launcher_start_program(
        &job, "sh",
        (const char *const[]){"-c",
                              "$CDDP_RUN_PROGRAM -n 1 -- sh -c 'head -c 12000000 "
                              "/dev/zero; echo done >done' | { sleep 0.5; [ -e "
                              "done ] && echo early; wc -c; }",
                              NULL});
    launcher_wait(&job);
    assert_string_equal(job.out, "12000000\n");
    launcher_end(&job);
}

static void a_reader_that_goes_away_stops_nobody(void **state)
{
    struct launched job = {0};

    (void)state;
    setenv("CDDP_RUN_PROGRAM", launcher_path("launcher/cddp-run"), 1);
    launcher_start_program(
        &job, "sh",
        (const char *const[]){"-c",
                              "$CDDP_RUN_PROGRAM -n 2 -- sh -c 'head -c 3000000 /dev/zero; echo "
                              "fine >fine$RANK' | true; cat fine0 fine1",
                              NULL});
    launcher_wait(&job);
    assert_string_equal(job.out, "fine\nfine\n");
    launcher_end(&job);
}

/* As service managers and some job systems start programs: the first files that are opened would
 * get the numbers of the missing streams. */
static void streams_that_are_closed_hold_up_nobody(void **state)
{
    static const char script[] =
        "\"$0\" -n 2 --log-dir logs -- sh -c 'echo out $RANK; echo err $RANK >&2' <&- >&- 2>&-";
    struct launched job = {0};
    char *log;

    (void)state;
    launcher_start_program(
        &job, "sh", (const char *const[]){"-c", script, launcher_path("launcher/cddp-run"), NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    log = launcher_read(job.dir, "logs/rank-1.log");
    assert_non_null(strstr(log, "out 1\n"));
    assert_non_null(strstr(log, "err 1\n"));
    free(log);
    launcher_end(&job);
}

static void what_cannot_be_printed_is_a_failure(void **state)
{
    static const char *const options[] = {"--help", "--env", "--check"};

    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        struct launched job = {0};

        launcher_start_program(&job, "sh",
                               (const char *const[]){"-c", "\"$0\" $1 >/dev/full",
                                                     launcher_path("launcher/cddp-run"), options[i],
                                                     NULL});
        launcher_wait(&job);
        assert_int_equal(job.exit_status, 1);
        assert_err(&job, "cddp-run: standard output: ");
        launcher_end(&job);
    }
}

/* Else a script would take a result that was cut off for a whole one. */
static void output_of_ranks_that_cannot_be_written_is_a_failure(void **state)
{
    static const struct {
        const char *command, *text;
        int exit_status;
    } cases[] = {
        {"\"$0\" -n 1 -- echo last >/dev/full", "standard output: No space left on device", 1},
        {"\"$0\" -n 2 -- sh -c 'echo last; exit 5' >/dev/full", "standard output: No space left",
         5},
        {"{ \"$0\" -n 1 -- sh -c 'while [ ! -e gone ]; do sleep 0.01; done; echo last'; echo $? "
         ">status; } | { exec <&-; echo >gone; }; while [ ! -s status ]; do sleep 0.01; done; exit "
         "$(cat status)",
         "standard output: Broken pipe", 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct launched job = {0};

        launcher_start_program(&job, "sh",
                               (const char *const[]){"-c", cases[i].command,
                                                     launcher_path("launcher/cddp-run"), NULL});
        launcher_wait(&job);
        assert_err(&job, cases[i].text);
        assert_int_equal(job.exit_status, cases[i].exit_status);
        launcher_end(&job);
    }
}

/* Read from the terminal @p fd until its text holds @p part. */
static void read_terminal(int fd, char *text, size_t bytes, const char *part)
{
    size_t used = strlen(text);

    while (strstr(text, part) == NULL) {
        struct pollfd readable = {fd, POLLIN, 0};
        ssize_t got;

        if (poll(&readable, 1, SUPPORT_TIMEOUT_MS) <= 0 ||
            (got = read(fd, text + used, bytes - used - 1)) <= 0) {
            fail_msg("no \"%s\" on the terminal, but: %s", part, text);
            return;
        }
        used += (size_t)got;
        text[used] = '\0';
    }
}

/* On a terminal rank 0 is told so, its progress line is wiped for others' lines, and Ctrl-C reaches
 * each rank once. */
static void a_terminal_shows_progress_and_passes_control_c(void **state)
{
    static const char script[] =
        "n=0; trap 'n=$((n+1))' INT; if [ $RANK = 0 ]; then printf '\\rstep 1 %s' $CDDP_PROGRESS "
        ">&2; "
        "echo >seen; else while [ ! -e seen ]; do sleep 0.01; done; echo \"line "
        "${CDDP_PROGRESS-none}\"; fi; while [ $n = 0 ]; do sleep 0.05; "
        "done; sleep 0.3; echo got $n; exit 0";
    char text[8192] = "";
    const char *program = launcher_path("launcher/cddp-run");
    char *folder = support_mkdtemp();
    int status;
    int fd;
    pid_t pid;

    (void)state;
    fflush(NULL);
    pid = forkpty(&fd, NULL, NULL, NULL);
    if (pid == 0) {
        signal(SIGINT, SIG_DFL);
        alarm(SUPPORT_LIMIT_S); /* ends the launcher, and so all of them */
        if (chdir(folder) == 0) {
            execl(program, program, "--nproc", "2", "--grace", "1000", "--", "sh", "-c", script,
                  (char *)NULL);
        }
        _exit(98);
    }
    read_terminal(fd, text, sizeof text, "\rstep 1 tty\r\033[0K[1] line none\r\n");
    assert_int_equal(write(fd, "\003", 1), 1);
    read_terminal(fd, text, sizeof text, "SIGINT: stopping 2 ranks");
    read_terminal(fd, text, sizeof text, "[1] got 1\r\n");
    assert_null(strstr(text, "got 2"));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(fd); /* before its end this would be a SIGHUP */
    assert_int_equal(status, 0);
    support_rmdir(folder);
}

/* As behind a connection that was lost: the terminal takes some kilobytes, and then blocks. */
static void a_terminal_that_nobody_reads_holds_up_no_signal(void **state)
{
    static const char script[] =
        "exec \"$0\" -n 1 -- sh -c 'echo $$ >pid; head -c 1000000 /dev/zero; echo all >all; exec "
        "sleep 1000' 2>err";
    const char *program = launcher_path("launcher/cddp-run");
    char *folder = support_mkdtemp();
    int status;
    int fd;
    pid_t pid;

    (void)state;
    fflush(NULL);
    pid = forkpty(&fd, NULL, NULL, NULL);
    if (pid == 0) {
        if (chdir(folder) == 0) {
            alarm(SUPPORT_LIMIT_S);
            execlp("sh", "sh", "-c", script, program, (char *)NULL);
        }
        _exit(98);
    }
    launcher_await_text(folder, "all", "all");
    /* The second one: nor wait for the terminal. A third one would soon kill it. */
    for (int sent = 0; waitpid(pid, &status, WNOHANG) == 0; sent++) {
        kill(pid, SIGTERM);
        support_sleep_ms(sent == 0 ? 250 : 10000);
    }
    assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
    close(fd);
    support_rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_files_hold_both_streams_and_grow),
        cmocka_unit_test(a_full_disk_under_a_log_is_said_once),
        cmocka_unit_test(output_of_rank_zero_comes_untouched_and_at_once),
        cmocka_unit_test(lines_of_ranks_do_not_mix),
        cmocka_unit_test(a_line_of_any_length_has_no_empty_line_after_it),
        cmocka_unit_test(a_failure_that_ranks_report_is_shown_once),
        cmocka_unit_test(the_last_line_of_a_rank_that_ends_early_is_told_to_the_others),
        cmocka_unit_test(reports_that_are_none_do_no_harm),
        cmocka_unit_test(a_slow_reader_loses_nothing),
        cmocka_unit_test(a_reader_that_goes_away_stops_nobody),
        cmocka_unit_test(streams_that_are_closed_hold_up_nobody),
        cmocka_unit_test(what_cannot_be_printed_is_a_failure),
        cmocka_unit_test(output_of_ranks_that_cannot_be_written_is_a_failure),
        cmocka_unit_test(a_terminal_shows_progress_and_passes_control_c),
        cmocka_unit_test(a_terminal_that_nobody_reads_holds_up_no_signal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
