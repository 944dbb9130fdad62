/* test_launcher_hostile.c - cddp-run in a hostile environment: strangers, too few resources of
 * every kind, and files of the wrong kind. */
#include "support/launcher.h"

#include <stdbool.h>
#include <sys/ptrace.h>

/* The port in the "tcp://127.0.0.1:PORT" that rank 0 wrote into the file "store". */
static uint16_t store_port(const struct launched *job)
{
    char *text;
    uint16_t port;

    launcher_await_text(job->dir, "store", "\n");
    text = launcher_read(job->dir, "store");
    port = (uint16_t)atoi(strrchr(text, ':') + 1);
    free(text);
    return port;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* More silent connections than the launcher has descriptors; and then it starts all ranks anew. */
static void silent_strangers_do_not_hinder_a_restart(void **state)
{
    enum { STRANGERS = 150 };
    struct launched job = {0};
    int fds[STRANGERS];
    uint16_t port;

    (void)state;
    setenv("CDDP_RUN_PROGRAM", launcher_path("launcher/cddp-run"), 1);
    launcher_start_program(
        &job, "sh",
        (const char *const[]){
            "-c",
            "ulimit -n 100; exec \"$CDDP_RUN_PROGRAM\" --max-restarts 1 --nproc 4 -- sh -c '"
            "[ $CDDP_GENERATION = 0 ] || { echo again >again$RANK; exit 0; }; "
            "[ $RANK = 0 ] && echo $CDDP_STORE >store; "
            "while [ ! -e go ]; do sleep 0.01; done; exit 5'",
            NULL});
    port = store_port(&job);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = connect_to(port);
    }
    launcher_write(job.dir, "go", "");
    launcher_wait(&job);
    for (int i = 0; i < STRANGERS; i++) {
        close(fds[i]);
    }
    assert_no_err(&job, "Too many open files");
    assert_int_equal(job.exit_status, 0);
    launcher_await_text(job.dir, "again3", "again");
    launcher_end(&job);
}

/* Start a job whose log of rank 0 is what @p make puts there; it is refused, in words that say what
 * it is, and nothing is written to it. */
static void assert_log_refused(const char *make, const char *what)
{
    static const char script[] =
        "mkdir logs && eval \"$1\" && exec \"$0\" --nproc 1 --log-dir logs "
        "-- sh -c 'echo ran >ran'";
    struct launched job = {0};

    launcher_start_program(
        &job, "sh",
        (const char *const[]){"-c", script, launcher_path("launcher/cddp-run"), make, NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "cddp-run: logs/rank-0.log: it is ");
    assert_err(&job, what);
    assert_null(launcher_read(job.dir, "ran"));
    launcher_end(&job);
}

static void a_log_that_is_no_file_is_refused(void **state)
{
    (void)state;
    assert_log_refused("mkfifo logs/rank-0.log", "a named pipe (FIFO), where a regular file is");
    assert_log_refused("mkdir logs/rank-0.log", "a folder, where");
    assert_log_refused("ln -s /dev/null logs/rank-0.log", "a symbolic link, where");
    assert_log_refused(": >elsewhere && ln -s ../elsewhere logs/rank-0.log",
                       "a symbolic link, where");
}

static void another_users_log_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("only root can make a file of another user\n");
        skip();
    }
    assert_log_refused(": >logs/rank-0.log && chown 65534 logs/rank-0.log && chmod 666 "
                       "logs/rank-0.log",
                       "another user's (65534)");
}

/* In his folder, too: he could read what is written. */
static void another_users_log_in_a_folder_of_his_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("only root can make a file of another user\n");
        skip();
    }
    assert_log_refused(": >logs/rank-0.log && chown -R 65534 logs", "another user's (65534)");
}

static void logs_are_for_nobody_else_to_read(void **state)
{
    struct launched job = {0};
    struct stat log;
    char path[4200];

    (void)state;
    job.dir = support_mkdtemp();
    launcher_write(job.dir, "rank-1.log", "from before\n"); /* for all to read */
    LAUNCH(&job, "--nproc", "2", "--log-dir", ".", "--", "true");
    assert_int_equal(job.exit_status, 0);
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path, sizeof path, "%s/rank-%d.log", job.dir, rank);
        assert_int_equal(stat(path, &log), 0);
        assert_int_equal(log.st_mode & 07777, 0600);
    }
    launcher_end(&job);
}

/* Whole, in two pieces with a pause between them, and as --env shows variables. */
static void the_token_is_in_no_log_and_on_no_screen(void **state)
{
    static const char script[] =
        "echo $CDDP_TOKEN >token; env; \"$0\" --env; first=${CDDP_TOKEN%????????????????}; "
        "printf %s $first >&2; sleep 0.1; echo ${CDDP_TOKEN#$first} >&2; printf %s $first; exit 4";
    struct launched job = {0};
    const char *texts[3];
    char *token;
    char *log;

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--log-dir", ".", "--", "sh", "-c", script,
           launcher_path("launcher/cddp-run"));
    assert_int_equal(job.exit_status, 4);
    token = launcher_read(job.dir, "token");
    token[strcspn(token, "\n")] = '\0';
    assert_int_equal(strlen(token), 32);
    log = launcher_read(job.dir, "rank-0.log");
    texts[0] = job.out;
    texts[1] = job.err;
    texts[2] = log;
    for (int i = 0; i < 3; i++) {
        assert_null(strstr(texts[i], token));
        assert_null(strstr(texts[i], token + 16));
        assert_non_null(strstr(texts[i], "(CDDP_TOKEN)"));
    }
    assert_out(&job, "CDDP_TOKEN=(CDDP_TOKEN)\n");
    assert_out(&job, "CDDP_TOKEN = (set, and not shown)\n");
    token[16] = '\0';
    assert_out(&job, token); /* the half that no other half followed */
    free(token);
    free(log);
    launcher_end(&job);
}

/* cddp-run beside a cddp-train that, asked @p probe, never answers; both in the job's folder. */
static void start_with_mute_train(struct launched *job, const char *probe, const char *nproc)
{
    static const char train[] =
        "#!/bin/sh\n[ $1 = %s ] || exit 0\ntrap '' INT TERM HUP\necho $$ >asked\nexec sleep 1000\n";
    char script[256];

    job->dir = support_mkdtemp();
    snprintf(script, sizeof script, train, probe);
    launcher_write(job->dir, "cddp-train", script);
    launcher_write(job->dir, "a.conf", "");
    launcher_start_program(job, "sh",
                           (const char *const[]){"-c", "cp \"$0\" . && exec ./cddp-run $1 a.conf",
                                                 launcher_path("launcher/cddp-run"), nproc, NULL});
}

static void who_checks_the_configuration_does_not_outlive_the_launcher(void **state)
{
    static const char *const questions[][2] = {
        {"--validate", "-n1"}, {"--print-nproc", "-nauto"}, {"--dry-run", "--dry-run"}};

    (void)state;
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        struct launched job = {0};
        pid_t asked;

        start_with_mute_train(&job, questions[i][0], questions[i][1]);
        asked = (pid_t)launcher_number(&job, "asked");
        kill(job.pid, SIGKILL);
        launcher_wait(&job);
        assert_true(launcher_is_gone(asked));
        launcher_end(&job);
    }
}

/* Run @p command of sh, in which $0 is cddp-run and $1 cddp-train. */
static void run_limited(struct launched *job, const char *command)
{
    char train[4200];

    snprintf(train, sizeof train, "%s", launcher_path("src/cddp-train"));
    launcher_start_program(
        job, "sh",
        (const char *const[]){"-c", command, launcher_path("launcher/cddp-run"), train, NULL});
    launcher_wait(job);
}

static void a_stack_that_is_too_small_is_said_and_one_that_may_grow_does(void **state)
{
    struct launched job = {0};

    (void)state;
    run_limited(&job, "ulimit -s 64; \"$0\" -n 2 -- true");
    assert_int_equal(job.exit_status, 1);
    assert_string_equal(job.err,
                        "cddp-run: the stack may have 64 KiB only (ulimit -s): at least 256 "
                        "KiB are needed\n");
    launcher_end(&job);
    run_limited(&job, "ulimit -s 64; \"$1\" no.conf");
    assert_int_equal(job.exit_status, 1);
    assert_err(&job, "cddp-train: the stack may have 64 KiB only");
    launcher_end(&job);
    run_limited(&job, "ulimit -S -s 64; \"$0\" -n 2 -- sh -c 'echo fine'");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "[1] fine");
    launcher_end(&job);
}

/* root may start as many as he likes, so another user does. */
static void a_process_too_many_is_said_with_its_limit(void **state)
{
    static const char script[] =
        "limited='prlimit --nproc=1'; [ $(id -u) != 0 ] || "
        "limited='setpriv --reuid=65534 --clear-groups prlimit --nproc=1'; "
        "$limited \"$0\" --version >version 2>&1 || exit 77; $limited \"$0\" -n 2 /dev/null; exec "
        "$limited \"$0\" -n 2 -- true";
    struct launched job = {0};
    int exit_status;

    (void)state;
    run_limited(&job, script);
    exit_status = job.exit_status;
    if (exit_status != 77) {
        assert_int_equal(exit_status, 1);
        assert_err(&job, "/cddp-train: Resource temporarily unavailable (too");
        assert_err(&job, "cddp-run: starting the supervisor: Resource temporarily unavailable (too "
                         "many processes and threads of this user for ulimit -u");
    }
    launcher_end(&job);
    if (exit_status == 77) {
        print_message("no user here can be kept from starting processes\n");
        skip();
    }
}

/* A job of one rank that lives until it is killed; gives the rank's pid and the supervisor's. */
static void start_patient(struct launched *job, pid_t *out_rank, pid_t *out_supervisor)
{
    launcher_start(job, (const char *const[]){"--nproc", "1", "--", "sh", "-c",
                                              "echo $PPID >parent; echo $$ >pid; exec sleep 1000",
                                              NULL});
    *out_supervisor = (pid_t)launcher_number(job, "parent");
    *out_rank = (pid_t)launcher_number(job, "pid");
}

static void a_stopped_supervisor_hears_who_asks_it_to_end(void **state)
{
    struct launched job = {0};
    pid_t supervisor;
    pid_t rank;

    (void)state;
    start_patient(&job, &rank, &supervisor);
    kill(supervisor, SIGSTOP);
    kill(job.pid, SIGTERM);
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 128 + SIGTERM);
    assert_err(&job, "SIGTERM: ");
    assert_true(launcher_is_gone(rank));
    launcher_end(&job);
}

/* A process that is being traced does nothing, as one that waits for a broken disk. */
static void who_insists_ends_even_a_supervisor_that_hangs(void **state)
{
    struct launched job = {0};
    pid_t supervisor;
    pid_t rank;
    int status;
    bool traced;

    (void)state;
    start_patient(&job, &rank, &supervisor);
    traced = ptrace(PTRACE_SEIZE, supervisor, NULL, NULL) == 0;
    if (traced) {
        assert_int_equal(ptrace(PTRACE_INTERRUPT, supervisor, NULL, NULL), 0);
        assert_int_equal(waitpid(supervisor, &status, __WALL), supervisor);
    }
    while (waitpid(job.pid, &status, WNOHANG) == 0) { /* however often it takes */
        kill(job.pid, SIGTERM);
        support_sleep_ms(250);
        (void)waitpid(supervisor, NULL, __WALL | WNOHANG); /* its tracer has to take its death */
    }
    assert_int_equal(WEXITSTATUS(status), traced ? 128 + SIGKILL : 128 + SIGTERM);
    assert_true(launcher_is_gone(rank));
    assert_true(launcher_is_gone(supervisor));
    launcher_end(&job);
    if (!traced) {
        print_message("no process may be traced here\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_strangers_do_not_hinder_a_restart),
        cmocka_unit_test(a_log_that_is_no_file_is_refused),
        cmocka_unit_test(another_users_log_is_refused),
        cmocka_unit_test(another_users_log_in_a_folder_of_his_is_refused),
        cmocka_unit_test(logs_are_for_nobody_else_to_read),
        cmocka_unit_test(the_token_is_in_no_log_and_on_no_screen),
        cmocka_unit_test(who_checks_the_configuration_does_not_outlive_the_launcher),
        cmocka_unit_test(a_stack_that_is_too_small_is_said_and_one_that_may_grow_does),
        cmocka_unit_test(a_process_too_many_is_said_with_its_limit),
        cmocka_unit_test(a_stopped_supervisor_hears_who_asks_it_to_end),
        cmocka_unit_test(who_insists_ends_even_a_supervisor_that_hangs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
