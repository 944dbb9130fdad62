/* test_launcher_limits.c - resources that a machine lacks are named in the message: system calls
 * that a filter refuses, limits of ulimit, /proc, the loopback interface. Cases that wait and cases
 * that compute run at once. */
#include "support/control_group.h"
#include "support/launcher.h"
#include "support/parallel.h"

#include <stdbool.h>

#ifdef __SANITIZE_ADDRESS__
enum { HAS_SHADOW = 1 }; /* of all addresses, so that these cannot be limited */
#elif defined __SANITIZE_THREAD__
enum { HAS_SHADOW = 1 };
#else
enum { HAS_SHADOW = 0 };
#endif

static const char conf[] = "model = {type = \"mlp\"; hidden = [16]; };\n"
                           "data = {type = \"synthetic\"; samples = 512; };\n"
                           "train = {epochs = 1; run_dir = \"run\"; };\n";

/* Run @p script in a shell: $0 is cddp-run, $1 launcher_rank, $2 cddp-train. */
static struct launched run(const char *script)
{
    struct launched job = {.dir = support_mkdtemp()};
    char launcher[4096], helper[4096], train[4096];

    snprintf(launcher, sizeof launcher, "%s", launcher_path("launcher/cddp-run"));
    snprintf(helper, sizeof helper, "%s", launcher_path("tests/launcher_rank"));
    snprintf(train, sizeof train, "%s", launcher_path("src/cddp-train"));
    launcher_write(job.dir, "train.conf", conf);
    launcher_start_program(&job, "sh",
                           (const char *const[]){"-c", script, launcher, helper, train, NULL});
    launcher_wait(&job);
    return job;
}

/* Run it, and expect @p exit_status and @p text. 77: what the test wants cannot be had here. */
static void assert_said(const char *script, int exit_status, const char *text)
{
    struct launched job = run(script);

    if (job.exit_status == 77) {
        print_message("it cannot be tried here: %s\n", job.err);
        launcher_end(&job);
        skip();
    }
    assert_err(&job, text);
    assert_int_equal(job.exit_status, exit_status);
    launcher_end(&job);
}

static void a_filter_that_refuses_prctl_is_named(void **state)
{
    static const char text[] = "cddp: prctl(PR_SET_PDEATHSIG): Operation not permitted: a process "
                               "that may outlive its parent is not started (does a seccomp filter "
                               "refuse prctl?)\n";

    (void)state;
    assert_said("exec $1 no-prctl $0 --nproc 1 -- true", 127, text);
    assert_said("exec $1 no-prctl $0 --nproc 1 train.conf", 127, text);
    assert_said("exec $1 no-prctl $0 --hosts localhost:1 -- true", 127, text);
}

static void a_filter_that_refuses_signalfd_is_named(void **state)
{
    static const char text[] = "(does a seccomp filter refuse it?): Operation not permitted\n";

    (void)state;
    assert_said("exec $1 no-signalfd $0 --nproc 1 -- true", 1, text);
    assert_said("exec $1 no-signalfd $0 --hosts localhost:1 -- true", 1, text);
}

static void more_ranks_than_can_share_a_machine_are_refused_before_the_start(void **state)
{
    struct launched job;

    (void)state;
    job = run("exec $0 --nproc 1000 train.conf");
    assert_int_equal(job.exit_status, 2);
    assert_string_equal(job.err, "cddp-run: --nproc 1000: with a train.conf 1 to 512 ranks can "
                                 "share a machine\n");
    launcher_end(&job);
}

static void a_loopback_that_is_down_is_named_at_once(void **state)
{
    (void)state;
    assert_said("unshare -n true || exit 77; exec unshare -n $0 --nproc 2 train.conf", 1,
                "the loopback interface lo is down here, so processes of this machine cannot "
                "reach each other (ip link set lo up)");
}

#define WITHOUT_PROC                                                                               \
    "unshare -m true || exit 77; exec unshare -m sh -c 'mount --make-rprivate / && umount -l "     \
    "/proc || exit 77; "

static void a_machine_without_proc_is_named(void **state)
{
    (void)state;
    if (HAS_SHADOW) {
        print_message("sanitizers need /proc themselves\n");
        skip();
    }
    assert_said(WITHOUT_PROC "exec $0 --nproc 2 train.conf' $0", 127, "(is /proc mounted?)");
    assert_said(WITHOUT_PROC "PATH=${1%/*}:$PATH; exec $0 --nproc 2 train.conf' $0 $2", 126,
                "/proc is not mounted here, through which the ranks of a machine open each "
                "other's memory (mount -t proc proc /proc)");
}

static void a_limit_of_file_sizes_is_named(void **state)
{
    (void)state;
    assert_said("ulimit -f 1; exec $0 --nproc 2 train.conf", 1,
                "bytes of shared memory: File too large (ulimit -f)");
    assert_said("exec $0 --nproc 1 -- sh -c 'ulimit -f 1; exec head -c 100000 /dev/zero >f'", 153,
                "was killed by signal 25 (SIGXFSZ)");
    assert_said("exec $0 --nproc 1 -- sh -c 'ulimit -f 1; exec head -c 100000 /dev/zero >f'", 153,
                ": a file was to grow beyond ulimit -f\n");
}

/* Ask cddp-run once more to end, and again until it has: what it cannot kill it then waits for no
 * longer than a second. */
static void hurry(const struct launched *job)
{
    siginfo_t ended = {.si_pid = 0};

    while (waitid(P_PID, (id_t)job->pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == 0) {
        kill(job->pid, SIGTERM);
        support_sleep_ms(1000);
    }
}

/* As one that waits for a file system that is gone: here, a frozen control group of version 1. */
static void a_rank_that_the_kernel_keeps_does_not_keep_the_launcher(void **state)
{
    const char *group = support_control_group("freezer", "freezer.state");
    struct launched job = {0};
    char number[32];

    (void)state;
    if (group == NULL) {
        print_message("no control group that freezes can be made here\n");
        skip();
    }
    launcher_start(&job, (const char *const[]){"--nproc", "1", "--grace", "0.1", "--", "sh", "-c",
                                               "echo $$ >pid; exec sleep 1000", NULL});
    snprintf(number, sizeof number, "%ld", launcher_number(&job, "pid"));
    assert_true(support_control(group, "cgroup.procs", number));
    assert_true(support_control(group, "freezer.state", "FROZEN"));
    kill(job.pid, SIGTERM);
    launcher_await_text(job.dir, "err", "some processes of the job cannot be killed");
    hurry(&job);
    launcher_wait(&job);
    assert_true(support_control(group, "freezer.state", "THAWED"));
    assert_true(launcher_is_gone((pid_t)atoi(number)));
    rmdir(group);
    assert_err(&job, ") was killed 30 s ago and has not ended: the kernel keeps it");
    assert_err(&job, "some processes of the job cannot be killed");
    assert_int_equal(job.exit_status, 128 + SIGKILL);
    launcher_end(&job);
}

/* Whatever the limit is: a library that generates code would end in SIGSEGV at some of them. */
static void no_limit_of_addresses_ends_in_a_crash(void **state)
{
    struct launched job;

    (void)state;
    if (HAS_SHADOW) {
        print_message("sanitizers need all addresses\n");
        skip();
    }
    job = run("for v in 40 56 64 72 80 84 88 92 96 100 104 108 112 116 120 128 136 144 160 176 192 "
              "208 224; do rm -rf run; (ulimit -v ${v}000; exec $2 train.conf) >o 2>e; s=$?; "
              "[ $s -lt 126 -o $s = 127 ] || { echo \"$v: $s\" >&2; exit 1; }; "
              "cat e >>said; done; exit 0");
    assert_string_equal(job.err, "");
    assert_int_equal(job.exit_status, 0);
    launcher_need_text(launcher_read(job.dir, "said"), "ulimit -v", "what was said");
    launcher_end(&job);
}

static void a_folder_for_temporary_files_that_is_missing_is_named(void **state)
{
    (void)state;
    assert_said(
        "export TMPDIR=nowhere/at/all SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 "
        "SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NNODES=1 SLURM_JOB_NUM_NODES=1 "
        "SLURM_STEP_NUM_NODES=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2; "
        "unset CDDP_RANK; exec $2 train.conf",
        1, "(below TMPDIR, which has to be there): No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_filter_that_refuses_prctl_is_named),
        cmocka_unit_test(a_filter_that_refuses_signalfd_is_named),
        cmocka_unit_test(more_ranks_than_can_share_a_machine_are_refused_before_the_start),
        cmocka_unit_test(a_loopback_that_is_down_is_named_at_once),
        cmocka_unit_test(a_machine_without_proc_is_named),
        cmocka_unit_test(a_limit_of_file_sizes_is_named),
        cmocka_unit_test(a_rank_that_the_kernel_keeps_does_not_keep_the_launcher),
        cmocka_unit_test(no_limit_of_addresses_ends_in_a_crash),
        cmocka_unit_test(a_folder_for_temporary_files_that_is_missing_is_named),
    };

    return run_in_parallel(tests);
}
