/* test_processors.c - how many processors a process may use: according to the kernel's files, in
 * all formats of machines and containers, and in real control groups where they can be created. */
#include "base/machine.h"
#include "support/control_group.h"
#include "support/folder.h"

#include <sched.h>
#include <sys/wait.h>

static int make_machine(void **state)
{
    int result = make_folder(state);

    cddpi_kernel_files_set_root(folder);
    return result;
}

static int remove_machine(void **state)
{
    cddpi_kernel_files_set_root(NULL);
    return remove_folder(state);
}

static struct cddpi_processors get(void)
{
    struct cddpi_processors processors;

    cddpi_processors(&processors);
    return processors;
}

static int count_allowed(void)
{
    cpu_set_t mask;

    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    return CPU_COUNT(&mask);
}

static void without_a_quota_the_mask_decides(void **state)
{
    struct cddpi_processors processors = get();

    (void)state;
    assert_int_equal(processors.allowed, count_allowed());
    assert_int_equal(processors.count, count_allowed());
    assert_true(processors.quota == 0);
    assert_string_equal(processors.limit, "");
}

/* Half a processor and more counts as one. */
static void fractions_are_rounded_to_what_is_of_use(void **state)
{
    static const struct {
        double quota;
        int count;
    } rows[] = {{0, 64},  {0.001, 1}, {0.5, 1}, {1, 1},   {1.4, 1},   {1.5, 2},
                {2.4, 2}, {2.6, 3},   {63, 63}, {64, 64}, {1000, 64}, {63.7, 64}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(cddpi_processors_within(64, rows[i].quota), rows[i].count);
    }
    assert_int_equal(cddpi_processors_within(0, 0), 1);
}

static void the_least_quota_of_version_two_counts(void **state)
{
    struct cddpi_processors processors;

    (void)state;
    put_in_folder("/proc/self/cgroup", "0::/job.slice/pod/rank\n");
    put_in_folder("/proc/self/mountinfo",
                  "24 1 0:22 / /proc rw - proc proc rw\n"
                  "30 24 0:26 / /cg rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
    put_in_folder("/cg/job.slice/pod/rank/cpu.max", "max 100000\n");
    put_in_folder("/cg/job.slice/pod/cpu.max", "90000 100000\n");
    put_in_folder("/cg/job.slice/cpu.max", "25000 50000\n");
    processors = get();
    assert_true(processors.quota == 0.5);
    assert_string_equal(processors.limit, "cpu.max 0.5 of /cg/job.slice");
    assert_int_equal(processors.count, 1);
    assert_int_equal(processors.allowed, count_allowed());
    put_in_folder("/cg/job.slice/cpu.max", "max 50000\n");
    assert_string_equal(get().limit, "cpu.max 0.9 of /cg/job.slice/pod");
}

/* cpu.max stands also where the hierarchy is mounted, in a container's own view. */
static void the_top_of_what_is_seen_counts(void **state)
{
    (void)state;
    put_in_folder("/proc/self/cgroup", "0::/\n");
    put_in_folder("/proc/self/mountinfo", "30 24 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    put_in_folder("/cg/cpu.max", "75000 100000\n");
    assert_true(get().quota == 0.75);
    put_in_folder("/proc/self/cgroup", "0::/../other\n"); /* moved out of its namespace's root */
    assert_true(get().quota == 0.75);
}

static void a_quota_of_version_one_counts_with_those_above(void **state)
{
    (void)state;
    put_in_folder("/proc/self/cgroup", "5:cpu,cpuacct:/docker/17\n4:memory:/docker/17\n0::/\n");
    put_in_folder("/proc/self/mountinfo",
                  "29 24 0:25 /docker/17 /cg/cpuset rw - cgroup cgroup rw,cpuset\n"
                  "30 24 0:26 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                  "32 24 0:28 / /cg/unified rw - cgroup2 cgroup2 rw\n");
    put_in_folder("/cg/cpu/docker/17/cpu.cfs_quota_us", "-1\n");
    put_in_folder("/cg/cpu/docker/17/cpu.cfs_period_us", "100000\n");
    assert_true(get().quota == 0);
    put_in_folder("/cg/cpu/docker/cpu.cfs_quota_us", "10000\n");
    put_in_folder("/cg/cpu/docker/cpu.cfs_period_us", "100000\n");
    assert_string_equal(get().limit, "cpu.cfs_quota_us 0.1 of /cg/cpu/docker");
    assert_int_equal(get().count, 1);
}

static void what_is_none_limits_nothing(void **state)
{
    static const char *const texts[] = {"",           "max\n",     "0 100000\n",    "-1 100000\n",
                                        "50000\n",    "50000 0\n", "word 100000\n", "\n",
                                        "9e99 1000\n"};

    (void)state;
    put_in_folder("/proc/self/cgroup", "0::/a\n");
    put_in_folder("/proc/self/mountinfo", "30 24 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        put_in_folder("/cg/a/cpu.max", texts[i]);
        assert_int_equal(get().count, count_allowed());
        assert_string_equal(get().limit, "");
    }
}

static void a_quota_above_what_is_allowed_is_not_told(void **state)
{
    (void)state;
    put_in_folder("/proc/self/cgroup", "0::/a\n");
    put_in_folder("/proc/self/mountinfo", "30 24 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    put_in_folder("/cg/a/cpu.max", "819200000 100000\n");
    assert_string_equal(get().limit, "");
    assert_int_equal(get().count, count_allowed());
}

static void a_real_quota_is_seen(void **state)
{
    const char *group;
    int status = 0;
    pid_t pid;

    (void)state;
    cddpi_kernel_files_set_root(NULL);
    group = support_control_group("cpu", "cpu.cfs_quota_us");
    if (group == NULL) {
        print_message("no control group for processors can be made here\n");
        skip();
    }
    support_set_quota(group, "50000");
    pid = fork();
    if (pid == 0) {
        struct cddpi_processors processors;

        if (!support_control(group, "cgroup.procs", "0\n")) {
            _exit(77);
        }
        cddpi_processors(&processors);
        _exit(processors.quota == 0.5 && processors.count == 1 &&
                      strstr(processors.limit, group) != NULL
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rmdir(group);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("no process can be put into a control group here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The kernel itself keeps the mask within the cpuset. */
static void a_real_cpuset_is_seen(void **state)
{
    const char *group;
    int status = 0;
    pid_t pid;

    (void)state;
    cddpi_kernel_files_set_root(NULL);
    group = support_control_group("cpuset", "cpuset.cpus");
    if (group == NULL || !support_control(group, "cpuset.cpus", "0\n") || count_allowed() < 2) {
        if (group != NULL) {
            rmdir(group);
        }
        print_message("no cpuset can be made here, or there is one processor only\n");
        skip();
    }
    (void)support_control(group, "cpuset.mems", "0\n");
    pid = fork();
    if (pid == 0) {
        struct cddpi_processors processors;

        if (!support_control(group, "cgroup.procs", "0\n")) {
            _exit(77);
        }
        cddpi_processors(&processors);
        _exit(processors.allowed == 1 && processors.count == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    rmdir(group);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("no process can be put into a cpuset here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define MADE(test) cmocka_unit_test_setup_teardown(test, make_machine, remove_machine)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MADE(without_a_quota_the_mask_decides),
        cmocka_unit_test(fractions_are_rounded_to_what_is_of_use),
        MADE(the_least_quota_of_version_two_counts),
        MADE(the_top_of_what_is_seen_counts),
        MADE(a_quota_of_version_one_counts_with_those_above),
        MADE(what_is_none_limits_nothing),
        MADE(a_quota_above_what_is_allowed_is_not_told),
        MADE(a_real_quota_is_seen),
        MADE(a_real_cpuset_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
