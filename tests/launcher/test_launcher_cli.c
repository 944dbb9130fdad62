/* test_launcher_cli.c - cddp-run's command line, and what it gives to ranks. */
#include "support/control_group.h"
#include "support/launcher.h"

#include <sched.h>

static void ranks_get_the_environment(void **state)
{
    static const char *const same[] = {"CDDP_WORLD_SIZE=3",
                                       "CDDP_LOCAL_WORLD_SIZE=3",
                                       "WORLD_SIZE=3",
                                       "LOCAL_WORLD_SIZE=3",
                                       "GROUP_RANK=0",
                                       "GROUP_WORLD_SIZE=1",
                                       "ROLE_NAME=default",
                                       "ROLE_WORLD_SIZE=3",
                                       "MASTER_ADDR=127.0.0.1",
                                       "MASTER_PORT=",
                                       "TORCHELASTIC_RESTART_COUNT=0",
                                       "TORCHELASTIC_MAX_RESTARTS=0",
                                       "TORCHELASTIC_RUN_ID=",
                                       "CDDP_STORE=tcp://127.0.0.1:",
                                       "CDDP_TOKEN=",
                                       "CDDP_JOB=",
                                       "CDDP_GENERATION=0",
                                       "CDDP_RUN_DIR=here",
                                       "CDDP_TIMEOUT_MS=2500",
                                       "OMP_NUM_THREADS=",
                                       "OPENBLAS_NUM_THREADS="};
    static const char *const ranked[] = {"\nCDDP_RANK=2\n", "\nCDDP_LOCAL_RANK=2\n", "\nRANK=2\n",
                                         "\nLOCAL_RANK=2\n", "\nROLE_RANK=2\n"};
    struct launched job = {0};

    (void)state;
    setenv("RANK", "77", 1);
    LAUNCH(&job, "--nproc", "3", "--run-dir", "here", "--timeout=2.5", "--", "sh", "-c",
           "env >env$RANK");
    unsetenv("RANK");
    assert_int_equal(job.exit_status, 0);
    for (int rank = 0; rank < 3; rank++) {
        char name[16];

        snprintf(name, sizeof name, "env%d", rank);
        free(job.out);
        job.out = launcher_read(job.dir, name);
        for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
            assert_out(&job, same[i]);
        }
    }
    for (size_t i = 0; i < sizeof ranked / sizeof ranked[0]; i++) {
        assert_out(&job, ranked[i]);
    }
    assert_int_equal(launcher_count(job.out, "\nRANK="), 1);
    launcher_end(&job);
}

static void threads_that_the_user_set_are_kept(void **state)
{
    struct launched job = {0};

    (void)state;
    launcher_start_program(
        &job, "env",
        (const char *const[]){"OMP_NUM_THREADS=5", launcher_path("launcher/cddp-run"), "-n1", "--",
                              "sh", "-c", "echo $OMP_NUM_THREADS ${OPENBLAS_NUM_THREADS-no}",
                              NULL});
    launcher_wait(&job);
    assert_string_equal(job.out, "5 no\n");
    launcher_end(&job);
}

/* Compared with what a shell has without cddp-run, since we may have inherited some, too. */
static void ranks_read_nothing_and_share_no_descriptor_but_the_pipe_for_reports(void **state)
{
    /* not every sh takes a descriptor of two digits */
    static const char script[] =
        "[ -z \"$CDDP_REPORT_FD\" ] || eval \"exec $CDDP_REPORT_FD>&-\"; cat; "
        "ls /proc/self/fd >fds${RANK-}";
    struct launched job = {0};
    char *plain;

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--", "bash", "-c", script);
    assert_int_equal(job.exit_status, 0);
    assert_string_equal(job.out, "");
    free(job.out);
    free(job.err);
    launcher_start_program(&job, "bash", (const char *const[]){"-c", script, NULL});
    launcher_wait(&job);
    plain = launcher_read(job.dir, "fds");
    for (int rank = 0; rank < 2; rank++) {
        char name[16];

        snprintf(name, sizeof name, "fds%d", rank);
        free(job.out);
        job.out = launcher_read(job.dir, name);
        assert_string_equal(job.out, plain);
    }
    free(plain);
    launcher_end(&job);
}

static void ranks_may_outnumber_cores(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "7", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "rank 0 of 7\n");
    for (int rank = 1; rank < 7; rank++) {
        char line[64];

        snprintf(line, sizeof line, "[%d] rank %d of 7\n", rank, rank);
        assert_out(&job, line);
    }
    launcher_end(&job);
}

/* One processor's time of two or more. */
static void a_quota_of_the_control_group_counts_for_ranks_threads_and_check(void **state)
{
    static const char script[] =
        "echo 0 >$1/cgroup.procs; $0 -- sh -c 'echo $WORLD_SIZE $OMP_NUM_THREADS' >ranks; "
        "$0 --nproc 1 --dry-run -- true >dry; $0 --check >check; "
        "env -u CDDP_AVAILABLE_CORES $2 --print-nproc $CDDP_TEST_SOURCE/examples/lenet.conf >nproc";
    static const char *const files[] = {"ranks", "dry", "check", "nproc"};
    const char *group = NULL;
    struct launched job = {0};
    char train[4096];
    char *texts[4];
    cpu_set_t mask;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    if (CPU_COUNT(&mask) > 1) {
        group = support_control_group("cpu", "cpu.cfs_quota_us");
    }
    if (group == NULL) {
        print_message("one processor only, or no control group can be made here\n");
        skip();
    }
    support_set_quota(group, "100000");
    snprintf(train, sizeof train, "%s", launcher_path("src/cddp-train"));
    job.dir = support_mkdtemp();
    launcher_start_program(&job, "sh",
                           (const char *const[]){"-c", script, launcher_path("launcher/cddp-run"),
                                                 group, train, NULL});
    launcher_wait(&job);
    rmdir(group);
    for (int i = 0; i < 4; i++) {
        texts[i] = launcher_read(job.dir, files[i]);
    }
    assert_string_equal(texts[0], "1 1\n");
    launcher_need_text(texts[1], "this machine gives 1 of ", "--dry-run");
    launcher_need_text(texts[1], " 1.0 of ", "--dry-run");
    launcher_need_text(texts[2], "this process may use 1 of ", "--check");
    launcher_need_text(texts[2], group, "--check");
    assert_string_equal(texts[3], "1\n");
    for (int i = 0; i < 4; i++) {
        free(texts[i]);
    }
    launcher_end(&job);
}

static void ranks_are_bound_to_cores_of_their_own(void **state)
{
    struct launched job = {0};
    cpu_set_t mask;
    char *first;
    char *second;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    if (CPU_COUNT(&mask) < 2) {
        skip();
    }
    LAUNCH(&job, "--nproc", "2", "--bind", "core", "--", "sh", "-c",
           "grep Cpus_allowed_list /proc/self/status >cpus$RANK");
    assert_int_equal(job.exit_status, 0);
    first = launcher_read(job.dir, "cpus0");
    second = launcher_read(job.dir, "cpus1");
    assert_string_not_equal(first, second);
    free(first);
    free(second);
    launcher_end(&job);
    LAUNCH(&job, "--nproc", "2", "--bind", "none", "--", "sh", "-c",
           "grep Cpus_allowed_list /proc/self/status >cpus$RANK");
    first = launcher_read(job.dir, "cpus0");
    second = launcher_read(job.dir, "cpus1");
    assert_string_equal(first, second);
    free(first);
    free(second);
    launcher_end(&job);
}

static void a_program_that_is_missing_is_named_once(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "4", "--", "no-such-program");
    assert_int_equal(job.exit_status, 127);
    assert_string_equal(job.err, "cddp-run: no-such-program: no such program in $PATH\n");
    launcher_end(&job);
    LAUNCH(&job, "--nproc", "4", "--", "./missing");
    assert_int_equal(job.exit_status, 127);
    assert_string_equal(job.err, "cddp-run: ./missing: No such file or directory\n");
    launcher_end(&job);
    LAUNCH(&job, "--nproc", "4", "--", "/etc/passwd");
    assert_int_equal(job.exit_status, 126);
    assert_string_equal(job.err, "cddp-run: /etc/passwd: Permission denied\n");
    launcher_end(&job);
}

static void a_script_without_interpreter_is_named_once(void **state)
{
    struct launched job = {0};

    (void)state;
    job.dir = support_mkdtemp();
    launcher_write(job.dir, "script", "#!/no/such/interpreter\n");
    LAUNCH(&job, "--nproc", "4", "--max-restarts", "3", "--", "./script");
    assert_int_equal(job.exit_status, 127);
    assert_string_equal(job.err, "cddp-run: ./script cannot be executed: No such file or directory "
                                 "(is its interpreter there?)\n");
    launcher_end(&job);
}

static void a_wrong_command_line_gives_two_and_says_why(void **state)
{
    static const struct {
        const char *arguments[6];
        const char *text;
    } cases[] = {
        {{"--nprok", "2", "--", "true"}, "--nprok"},
        {{"--nproc-per-node=2"}, "--nproc-per-node=2"},
        {{"--max-restart", "2"}, "--max-restarts"},
        {{"--qqqqqqqq"}, "--qqqqqqqq: see cddp-run --help"},
        {{"-x"}, "-x"},
        {{"--nproc", "0", "--", "true"}, "--nproc 0"},
        {{"--nproc", "two", "--", "true"}, "--nproc two"},
        {{"--nproc"}, "N|auto"},
        {{"--help=yes"}, "--help"},
        {{"--grace", "-1", "--", "true"}, "--grace -1: not a number of seconds from 0 to 86400"},
        {{"--timeout", "nan", "--", "true"}, "--timeout nan: not a number of seconds from"},
        {{"--bind", "socket", "--", "true"}, "--bind socket: it is auto, core or none"},
        {{"--tag-output", "--no-tag", "--", "true"}, "--no-tag"},
        {{"--nproc", "2"}, "nothing to run: name a train.conf, or -- PROGRAM"},
        {{"--nproc", "2", "--"}, "there is no program after --"},
        {{"a.conf", "--", "true"}, "a.conf stands before --"},
        {{"python3", "x.py"},
         "x.py is not key=value; to start a program write cddp-run ... -- "
         "python3 x.py"},
        {{"missing.conf"}, "missing.conf: No such file or directory"},
        {{"/dev/stdin"}, "/dev/stdin: a pipe, or a descriptor that the ranks do not have"},
        {{"/bin/true"}, "to start it write cddp-run ... -- /bin/true"},
        {{"--run-dir", "", "a.conf"}, "--run-dir: the folder's name is empty"},
        {{"--log-dir=", "--", "true"}, "--log-dir: the folder's name is empty"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct launched job = {0};

        launcher_start(&job, cases[i].arguments);
        launcher_wait(&job);
        assert_err(&job, cases[i].text);
        assert_int_equal(job.exit_status, 2);
        assert_string_equal(job.out, "");
        launcher_end(&job);
    }
}

static void the_informing_options_say_what_they_must(void **state)
{
    static const struct {
        const char *option;
        const char *texts[8];
    } cases[] = {
        {"--help", {"usage: cddp-run", "--nproc N|auto|gpu", "--grace SECONDS", "--bind", "127"}},
        {"--version", {"cddp-run 0."}},
        {"--keys", {"optimizer.lr\n    real"}},
        {"--env",
         {"\nTime limits\n\nCDDP_TIMEOUT_MS = 300000 (default)\n    deadline for",
          "\nSpeed\n\nCDDP_THREADS (not set)\n", "CDDP_LOG = "}},
        {"--check",
         {"cddp 0.", "SIMD:", "/dev/shm", "memlock", "somaxconn", "/proc/PID/fd",
          "control always, data not"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct launched job = {0};

        LAUNCH(&job, cases[i].option);
        assert_int_equal(job.exit_status, 0);
        for (int j = 0; j < 8 && cases[i].texts[j] != NULL; j++) {
            assert_out(&job, cases[i].texts[j]);
        }
        launcher_end(&job);
    }
}

static void check_says_once_that_a_module_is_missing(void **state)
{
    static const char *const files[][2] = {{"libcddp-cuda.so", "\nCUDA\n  no: there is no "},
                                           {"libcddp-mpi.so", "no: there is no "}};
    struct launched job = {0};
    const char *module = getenv("CDDP_CUDA_MODULE");
    char *kept = module != NULL ? strdup(module) : NULL;
    int missing = 0;

    (void)state;
    unsetenv("CDDP_CUDA_MODULE");
    LAUNCH(&job, "--check");
    if (kept != NULL) {
        setenv("CDDP_CUDA_MODULE", kept, 1);
    }
    free(kept);
    for (int i = 0; i < 2; i++) {
        char said[128];
        const char *line;

        snprintf(said, sizeof said, "%s%s", files[i][1], files[i][0]);
        line = strstr(job.out, said);
        if (line != NULL) {
            missing++;
            line += strlen(said);
            assert_null(strstr(line, files[i][0]));
            assert_non_null(strstr(line, "build cddp with -D"));
        }
    }
    launcher_end(&job);
    if (missing == 0) {
        skip(); /* both are there */
    }
}

static void encryption_that_is_neither_0_nor_1_starts_nothing(void **state)
{
    struct launched job = {0};

    (void)state;
    setenv("CDDP_ENCRYPT", "true", 1);
    LAUNCH(&job, "--nproc", "1", "--", "touch", "touched");
    assert_int_not_equal(job.exit_status, 0);
    assert_err(&job, "CDDP_ENCRYPT=true: it must be 1 (data between hosts are encrypted) or 0");
    free(job.out);
    job.out = launcher_read(job.dir, "touched");
    assert_null(job.out);
    launcher_end(&job);
    LAUNCH(&job, "--check");
    assert_out(&job, "no: CDDP_ENCRYPT=true");
    launcher_end(&job);
    unsetenv("CDDP_ENCRYPT");
}

static void a_dry_run_starts_nothing(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--nproc", "2", "--dry-run", "--log-dir", "l", "--", "touch", "touched");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "/touch touched\n");
    assert_out(&job, "rank 0: local rank 0, ");
    assert_out(&job, "\nrank 1: local rank 1, ");
    assert_out(&job, "log l/rank-1.log");
    assert_out(&job, " LOCAL_RANK=1 ");
    free(job.out);
    job.out = launcher_read(job.dir, "touched");
    assert_null(job.out);
    launcher_end(&job);
}

static void a_dry_run_says_between_which_numbers_a_job_goes_on(void **state)
{
    struct launched job = {0};

    (void)state;
    LAUNCH(&job, "--elastic", "1:3", "--dry-run", "--", "true");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "elastic: the job goes on with 1 to 3 ranks; after failures it restarts "
                     "without limit, as long as it makes progress\n");
    assert_out(&job, "\nrank 2: local rank 2, ");
    launcher_end(&job);
    LAUNCH(&job, "--elastic", "1:3", "--nproc", "2", "--max-restarts", "4", "--dry-run", "--",
           "true");
    assert_out(&job, "after failures it restarts at most 4 times\n");
    launcher_need_absence(job.out, "\nrank 2", "stdout");
    launcher_end(&job);
    LAUNCH(&job, "--nnodes", "2:4", "--rdzv", "file:///tmp", "--nproc", "1", "--dry-run", "--",
           "true");
    assert_out(&job, "node (by order of arrival) of 2:4, which meet at file:///tmp: ");
    assert_out(&job, "elastic: the job goes on with 2 to 4 nodes; ");
    launcher_end(&job);
}

/* A folder with a copy of cddp-run, so that the cddp-train beside it is ours. */
static void with_fake_train(struct launched *job, const char *script)
{
    char command[9000];

    job->dir = support_mkdtemp();
    snprintf(command, sizeof command, "cp '%s' '%s/cddp-run'", launcher_path("launcher/cddp-run"),
             job->dir);
    assert_int_equal(system(command), 0);
    launcher_write(job->dir, "cddp-train", script);
    launcher_write(job->dir, "train.conf", "");
}

static void a_train_conf_starts_cddp_train(void **state)
{
    struct launched job = {0};

    (void)state;
    with_fake_train(&job, "#!/bin/sh\necho $RANK: \"$@\", $CDDP_RUN_DIR\n");
    launcher_start_program(&job, "./cddp-run",
                           (const char *const[]){"--nproc", "2", "train.conf", "a.b=1",
                                                 "--run-dir=runs/x", "c=2 3", NULL});
    launcher_wait(&job);
    assert_string_equal(job.err, "");
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "0: train.conf a.b=1 c=2 3, runs/x\n");
    assert_out(&job, "[1] 1: train.conf a.b=1 c=2 3, runs/x\n");
    free(job.out);
    job.out = launcher_read(job.dir, "runs/x/logs/rank-1.log");
    assert_non_null(job.out);
    assert_string_equal(job.out, "1: train.conf a.b=1 c=2 3, runs/x\n");
    launcher_end(&job);
}

static void the_number_of_ranks_is_asked_of_cddp_train(void **state)
{
    struct launched job = {0};

    (void)state;
    with_fake_train(&job, "#!/bin/sh\nif [ $1 = --print-nproc ]; then [ -n "
                          "\"$CDDP_AVAILABLE_CORES\" ] && [ \"$2 $3\" = 'train.conf a=1' ] && echo "
                          "3; else echo $WORLD_SIZE; fi\n");
    launcher_start_program(&job, "./cddp-run",
                           (const char *const[]){"--no-tag", "train.conf", "a=1", NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_string_equal(job.out, "3\n3\n3\n");
    launcher_end(&job);
}

static void a_dry_run_of_a_train_conf_shows_the_configuration(void **state)
{
    struct launched job = {0};

    (void)state;
    with_fake_train(&job, "#!/bin/sh\necho \"$@\"; [ $2 = train.conf ]\n");
    launcher_start_program(
        &job, "./cddp-run",
        (const char *const[]){"--nproc", "2", "--dry-run", "train.conf", "a=1", NULL});
    launcher_wait(&job);
    assert_int_equal(job.exit_status, 0);
    assert_out(&job, "--dry-run train.conf a=1\nrank 0: local rank 0, ");
    assert_out(&job, "\nrank 1: local rank 1, ");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_get_the_environment),
        cmocka_unit_test(threads_that_the_user_set_are_kept),
        cmocka_unit_test(ranks_read_nothing_and_share_no_descriptor_but_the_pipe_for_reports),
        cmocka_unit_test(ranks_may_outnumber_cores),
        cmocka_unit_test(a_quota_of_the_control_group_counts_for_ranks_threads_and_check),
        cmocka_unit_test(ranks_are_bound_to_cores_of_their_own),
        cmocka_unit_test(a_program_that_is_missing_is_named_once),
        cmocka_unit_test(a_script_without_interpreter_is_named_once),
        cmocka_unit_test(a_wrong_command_line_gives_two_and_says_why),
        cmocka_unit_test(the_informing_options_say_what_they_must),
        cmocka_unit_test(check_says_once_that_a_module_is_missing),
        cmocka_unit_test(encryption_that_is_neither_0_nor_1_starts_nothing),
        cmocka_unit_test(a_dry_run_starts_nothing),
        cmocka_unit_test(a_dry_run_says_between_which_numbers_a_job_goes_on),
        cmocka_unit_test(a_train_conf_starts_cddp_train),
        cmocka_unit_test(the_number_of_ranks_is_asked_of_cddp_train),
        cmocka_unit_test(a_dry_run_of_a_train_conf_shows_the_configuration),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
