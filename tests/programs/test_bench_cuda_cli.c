/* test_bench_cuda_cli.c - cddp-bench on device memory. */
#include "support/bench_cli.h"

static void collectives_of_a_device_are_measured_and_right(void **state)
{
    static const char *const collectives[] = {"all_reduce", "broadcast",      "reduce",
                                              "all_gather", "reduce_scatter", "send_recv"};
    static const char *const memories[] = {"group", "malloc"};
    struct launched job = {0};

    (void)state;
    for (size_t c = 0; c < sizeof collectives / sizeof *collectives; c++) {
        BENCH(&job, 2, collectives[c], "--check", "--device", "cuda", "--backend", "staged",
              "--alloc", memories[c % 2], "--min", "1", "--max", "40001", "--factor", "40000", "-n",
              "11");
        bench_found_nothing_wrong(&job, collectives[c]);
        assert_out(&job, ", backend staged, device cuda, ");
        assert_out(&job, "       12\n"); /* blocks of two calls */
    }
    launcher_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_of_a_device_are_measured_and_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
