/* test_memory_left.c - what the kernel's files say about available memory, in all formats of
 * machines and containers. */
#include "base/machine.h"
#include "base/memory_left.h"
#include "support/folder.h"

#define GIB (UINT64_C(1) << 30)

static int make_machine(void **state)
{
    int result = make_folder(state);

    put_in_folder("/proc/meminfo", "MemTotal:       33554432 kB\nMemFree:  1000 kB\n"
                                   "MemAvailable:   16777216 kB\nSwapFree:              0 kB\n");
    put_in_folder("/proc/vmstat", "nr_free_pages 5\noom_kill 7\n");
    cddpi_kernel_files_set_root(folder);
    return result;
}

static int remove_machine(void **state)
{
    cddpi_kernel_files_set_root(NULL);
    return remove_folder(state);
}

static void left_is(uint64_t bytes, const char *limit)
{
    struct cddpi_memory_left left;

    cddpi_memory_left(&left);
    assert_int_equal(left.bytes, bytes);
    assert_string_equal(left.limit, limit);
}

static void without_control_groups_the_machine_decides(void **state)
{
    (void)state;
    left_is(16 * GIB, "what is free on this machine");
    put_in_folder("/proc/meminfo", "MemAvailable:   16777216 kB\nSwapFree:   1048576 kB\n");
    left_is(17 * GIB, "what is free on this machine");
}

static void what_cannot_be_read_limits_nothing(void **state)
{
    struct cddpi_memory_left left;

    (void)state;
    cddpi_kernel_files_set_root("nowhere at all");
    cddpi_memory_left(&left);
    assert_true(left.bytes == UINT64_MAX);
    assert_int_equal(cddpi_memory_need(UINT64_MAX, "all"), CDDP_OK);
}

static void version_two_with_a_limit_above_decides(void **state)
{
    (void)state;
    put_in_folder("/proc/self/cgroup", "0::/job.slice/rank\n");
    put_in_folder("/proc/self/mountinfo",
                  "24 1 0:22 / /proc rw - proc proc rw\n"
                  "30 24 0:26 / /cg rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
    put_in_folder("/cg/job.slice/rank/memory.max", "max\n");
    put_in_folder("/cg/job.slice/rank/memory.current", "4096\n");
    put_in_folder("/cg/job.slice/memory.max", "4294967296\n");
    put_in_folder("/cg/job.slice/memory.current", "3221225472\n");
    put_in_folder("/cg/job.slice/memory.stat",
                  "anon 1\ninactive_file 1073741824\nactive_file 4096\n");
    left_is(2 * GIB + 4096, "the limit of 4.0 GiB of control group /cg/job.slice");
    assert_int_equal(cddpi_memory_need(2 * GIB, "a: %d", 1), CDDP_OK);
    assert_int_equal(cddpi_memory_need(3 * GIB, "a: %d", 1), CDDP_ERR_NO_MEMORY);
    assert_string_equal(cddp_last_error(),
                        "a: 1: 3.0 GiB of memory are needed, but only 2.0 GiB can be had (the "
                        "limit of 4.0 GiB of control group /cg/job.slice)");
}

static void version_one_in_a_container_that_sees_only_its_own_part(void **state)
{
    (void)state;
    put_in_folder("/proc/self/cgroup", "5:cpu,cpuacct:/docker/17\n4:memory:/docker/17\n0::/\n");
    put_in_folder("/proc/self/mountinfo",
                  "30 24 0:26 /docker/17 /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                  "31 24 0:27 /docker/17 /cg/memory rw - cgroup cgroup rw,memory\n"
                  "32 24 0:28 / /cg/unified rw - cgroup2 cgroup2 rw\n");
    put_in_folder("/cg/memory/memory.limit_in_bytes", "2147483648\n");
    put_in_folder("/cg/memory/memory.usage_in_bytes", "2147000000\n");
    put_in_folder("/cg/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 589824000\n");
    left_is(2147483648 - 2147000000 + 589824000,
            "the limit of 2.0 GiB of control group /cg/memory");
    put_in_folder("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
    left_is(16 * GIB, "what is free on this machine");
}

static void swap_counts_as_far_as_the_control_group_may_use_it(void **state)
{
    (void)state;
    put_in_folder("/proc/meminfo", "MemAvailable: 16777216 kB\nSwapFree:  8388608 kB\n");
    put_in_folder("/proc/self/cgroup", "0::/\n");
    put_in_folder("/proc/self/mountinfo", "30 24 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    put_in_folder("/cg/memory.max", "2147483648\n");
    put_in_folder("/cg/memory.current", "1073741824\n");
    left_is(9 * GIB, "the limit of 2.0 GiB of control group /cg");
    put_in_folder("/cg/memory.swap.max", "0\n");
    put_in_folder("/cg/memory.swap.current", "0\n");
    left_is(1 * GIB, "the limit of 2.0 GiB of control group /cg");
}

static void kills_are_counted_by_the_own_control_group_if_it_can(void **state)
{
    struct cddpi_memory_kills kills;

    (void)state;
    cddpi_memory_kills(&kills);
    assert_int_equal(kills.count, 7);
    assert_false(kills.is_own);
    assert_string_equal(kills.counter, "/proc/vmstat");
    put_in_folder("/proc/self/cgroup", "0::/a\n");
    put_in_folder("/proc/self/mountinfo", "30 24 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    put_in_folder("/cg/a/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
    cddpi_memory_kills(&kills);
    assert_int_equal(kills.count, 2);
    assert_true(kills.is_own);
    assert_string_equal(kills.counter, "/cg/a/memory.events");
    put_in_folder("/proc/self/cgroup", "4:memory:/b\n0::/\n");
    put_in_folder("/proc/self/mountinfo", "30 24 0:26 / /cg1 rw - cgroup cgroup rw,memory\n");
    put_in_folder("/cg1/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
    cddpi_memory_kills(&kills);
    assert_int_equal(kills.count, 5);
    assert_string_equal(kills.counter, "/cg1/b/memory.oom_control");
}

static void sizes_are_told_in_units_that_fit(void **state)
{
    char text[CDDPI_SIZE_TEXT];

    (void)state;
    assert_string_equal(cddpi_print_size(7850, text), "7850 bytes");
    assert_string_equal(cddpi_print_size(1 << 20, text), "1.0 MiB");
    assert_string_equal(cddpi_print_size(784000000000, text), "730.2 GiB");
    assert_string_equal(cddpi_print_size(UINT64_MAX, text), "16.0 EiB");
}

#define ON_MACHINE(test) cmocka_unit_test_setup_teardown(test, make_machine, remove_machine)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_MACHINE(without_control_groups_the_machine_decides),
        ON_MACHINE(what_cannot_be_read_limits_nothing),
        ON_MACHINE(version_two_with_a_limit_above_decides),
        ON_MACHINE(version_one_in_a_container_that_sees_only_its_own_part),
        ON_MACHINE(swap_counts_as_far_as_the_control_group_may_use_it),
        ON_MACHINE(kills_are_counted_by_the_own_control_group_if_it_can),
        cmocka_unit_test(sizes_are_told_in_units_that_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
