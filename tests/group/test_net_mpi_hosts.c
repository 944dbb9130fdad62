/* test_net_mpi_hosts.c - mpirun across hosts that are namespaces with their own addresses and
 * names, connected by a bridge, with no setting but the list of hosts. Skipped where namespaces are
 * not permitted. The namespaces belong to this program and to two processes that it holds, so that
 * nothing is left when they end. */
#include "support/embed.h"
#include "support/mpirun.h"

#include <sched.h>
#include <sys/prctl.h>

enum { HOSTS = 2 };

static pid_t holders[HOSTS];

/* mpirun's ssh: enter the namespaces of the host 10.88.0.N. */
static const char agent[] = "#!/bin/sh\n"
                            "while [ \"${1#-}\" != \"$1\" ]; do shift; done\n"
                            "export TMPDIR=\"${0%%/*}/$1\"\n"
                            "mkdir -p \"$TMPDIR\"\n"
                            "case $1 in 10.88.0.1) pid=%d ;; *) pid=%d ;; esac\n"
                            "shift\n"
                            "exec nsenter --net=/proc/$pid/ns/net --uts=/proc/$pid/ns/uts "
                            "sh -c \"$*\"\n";

__attribute__((format(printf, 1, 2))) static bool run(const char *format, ...)
{
    char command[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return system(command) == 0;
}

/* A process with namespaces of its own, which ends with this one. */
static bool hold(int host)
{
    int ready[2];
    char byte = 0;

    if (pipe(ready) != 0) {
        return false;
    }
    fflush(NULL);
    holders[host] = fork();
    if (holders[host] == 0) {
        char name[32];

        snprintf(name, sizeof name, "cddp-host-%d", host + 1);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET | CLONE_NEWUTS) == 0 && sethostname(name, strlen(name)) == 0) {
            (void)!write(ready[1], "x", 1);
        }
        close(ready[1]);
        for (;;) {
            pause();
        }
    }
    close(ready[1]);
    if (holders[host] < 0 || read(ready[0], &byte, 1) != 1) {
        byte = 0;
    }
    close(ready[0]);
    return byte == 'x';
}

static bool connect_host(int host)
{
    int pid = (int)holders[host];

    return run("ip link add v%d type veth peer name eth0 netns %d", host, pid) &&
           run("ip link set v%d master cddp0 && ip link set v%d up", host, host) &&
           run("nsenter --net=/proc/%d/ns/net sh -c 'ip link set lo up && ip link set eth0 up && "
               "ip addr add 10.88.0.%d/24 dev eth0'",
               pid, host + 1);
}

static bool make_hosts(void)
{
    if (unshare(CLONE_NEWNET) != 0 || !run("command -v nsenter >/dev/null") ||
        !run("ip link set lo up && ip link add cddp0 type bridge 2>/dev/null && "
             "ip addr add 10.88.0.100/24 dev cddp0 && ip link set cddp0 up")) {
        return false;
    }
    for (int host = 0; host < HOSTS; host++) {
        if (!hold(host) || !connect_host(host)) {
            return false;
        }
    }
    return true;
}

static bool are_there;

static int set_up(void **state)
{
    char text[1024];
    char path[4200];
    char *folder;

    (void)state;
    if (!mpirun_is_here() || !make_hosts()) {
        print_message("no MPI, or network namespaces are not permitted, here\n");
        return 0;
    }
    folder = support_mkdtemp();
    snprintf(text, sizeof text, agent, (int)holders[0], (int)holders[1]);
    launcher_write(folder, "agent", text);
    snprintf(path, sizeof path, "%s/agent", folder);
    free(folder);
    mpirun_use_agent(path);
    are_there = true;
    return 0;
}

static int tear_down_hosts(void **state)
{
    (void)state;
    for (int host = 0; host < HOSTS; host++) {
        if (holders[host] > 0) {
            kill(holders[host], SIGKILL);
            waitpid(holders[host], NULL, 0);
        }
    }
    return 0;
}

static void need_hosts(void)
{
    if (!are_there) {
        skip();
    }
}

static void run_trainer_on(const char *hosts, const char *program, struct run *out)
{
    struct launched job = {0};
    char path[4400];

    memset(out, 0, sizeof *out);
    MPIRUN(&job, 4, hosts, launcher_path(program), NULL);
    assert_mpirun_ended_well(&job);
    snprintf(path, sizeof path, "%s/out", job.dir);
    read_output(path, out);
    launcher_end(&job);
    assert_int_equal(out->count, 11);
}

/* cddp_group_create() finds all it needs in mpirun's environment, cddp_group_create_from_mpi() in
 * its communicator. */
static void mpirun_needs_no_setting_but_its_hosts(void **state)
{
    static const char *const programs[] = {"examples/embed_trainer", "examples/embed_mpi_trainer"};
    struct run one;
    struct run two;

    (void)state;
    need_hosts();
    for (int i = 0; i < 2; i++) {
        run_trainer_on(NULL, programs[i], &one);
        run_trainer_on("10.88.0.1:2,10.88.0.2:2", programs[i], &two);
        assert_true(two.weights[3] == one.weights[0]);
        assert_same_losses(&one, &two, 0);
    }
}

static void the_same_goes_by_tcp_where_a_host_lacks_the_module(void **state)
{
    struct run mpi;
    struct run tcp;

    (void)state;
    need_hosts();
    run_trainer_on("10.88.0.1:1,10.88.0.2:3", "examples/embed_mpi_trainer", &mpi);
    setenv("CDDP_MPI_MODULE", "nowhere/libcddp-mpi.so", 1);
    run_trainer_on("10.88.0.1:1,10.88.0.2:3", "examples/embed_mpi_trainer", &tcp);
    unsetenv("CDDP_MPI_MODULE");
    assert_true(tcp.weights[0] == mpi.weights[0]);
}

static void mpirun_ends_the_job_when_a_rank_is_killed_on_another_host(void **state)
{
    struct launched job = {0};

    (void)state;
    need_hosts();
    MPIRUN(&job, 2, "10.88.0.1:1,10.88.0.2:1", launcher_path("tests/net_mpi_rank"), "dies");
    assert_int_not_equal(job.exit_status, 0);
    launcher_end(&job);
}

/* MPI notices nothing of it. Both sides name the other, and say after how long a silence. */
static void a_pulled_cable_is_noticed_on_both_sides(void **state)
{
    struct launched job = {0};

    (void)state;
    need_hosts();
    setenv("CDDP_HEARTBEAT_MS", "1500", 1);
    mpirun_start(&job, 2, "10.88.0.1:1,10.88.0.2:1", launcher_path("tests/net_mpi_rank"),
                 (const char *const[]){"waits", NULL});
    unsetenv("CDDP_HEARTBEAT_MS");
    launcher_await_text(job.dir, "out", "rank 0 waits");
    launcher_await_text(job.dir, "out", "rank 1 waits");
    assert_true(run("ip link set v1 down"));
    launcher_await_text(job.dir, "ended-0", "ended");
    launcher_await_text(job.dir, "ended-1", "ended");
    assert_true(run("ip link set v1 up")); /* so that mpirun hears of rank 1's end */
    launcher_wait(&job);
    assert_out(&job, "rank 0 ends: rank 0: recv #1: rank 1 on host cddp-host-2 (");
    assert_out(&job, "rank 1 ends: rank 1: recv #1: rank 0 on host cddp-host-1 (");
    assert_int_equal(launcher_count(job.out, "s, and may be silent for 1.5 s (CDDP_HEARTBEAT_MS)"),
                     2);
    assert_no_err(&job, "not so");
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mpirun_needs_no_setting_but_its_hosts),
        cmocka_unit_test(the_same_goes_by_tcp_where_a_host_lacks_the_module),
        cmocka_unit_test(a_pulled_cable_is_noticed_on_both_sides),
        cmocka_unit_test(mpirun_ends_the_job_when_a_rank_is_killed_on_another_host),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down_hosts);
}
