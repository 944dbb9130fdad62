/* test_bench_hosts.c - collectives between hosts give the bits of the tree over ranks, as
 * cddp-bench checks them. The hosts are this machine under several names (CDDP_HOST_ID), so their
 * ranks share no memory. */
#include "support/bench_cli.h"

static const char *const types[] = {"f32", "bf16", "f64", "f16", "i32", "u8", "i64", "i8", "bool"};
static const char *const collectives[] = {"all_reduce",     "broadcast",  "reduce",
                                          "all_gather",     "gather",     "scatter",
                                          "reduce_scatter", "all_to_all", "send_recv"};

enum { TYPES = 9, COLLECTIVES = 9 };

/* By rank: its host. */
struct layout {
    const char *hosts;
    int ranks;
};

/* @p words are cddp-bench's; sizes are one element, some, and some pieces of what is sent at once.
 */
static void check_on(const struct layout *layout, const char *collective, const char *words)
{
    struct launched job = {0};
    char command[4800];
    char ranks[16];

    snprintf(ranks, sizeof ranks, "%d", layout->ranks);
    snprintf(
        command, sizeof command,
        "set -- %s; shift $CDDP_RANK; CDDP_HOST_ID=host$1 exec %s %s --check -n 1 -w 0 --min 1 "
        "--max 1500000 --factor 1217 %s",
        layout->hosts, bench_path(), collective, words);
    LAUNCH(&job, "--nproc", ranks, "--", "sh", "-c", command);
    bench_found_nothing_wrong(&job, command);
    launcher_end(&job);
}

static void check_layout(const struct layout *layout, int first_type)
{
    char words[64];

    for (int c = 0; c < COLLECTIVES; c++) {
        snprintf(words, sizeof words, "--type %s", types[(c + first_type) % TYPES]);
        check_on(layout, collectives[c], words);
    }
}

static void two_hosts_of_one_rank(void **state)
{
    (void)state;
    check_layout(&(struct layout){"0 1", 2}, 0);
}

static void two_hosts_of_two_ranks(void **state)
{
    (void)state;
    check_layout(&(struct layout){"0 0 1 1", 4}, 1);
}

static void three_hosts_of_different_sizes(void **state)
{
    (void)state;
    check_layout(&(struct layout){"0 0 0 1 2 2", 6}, 2);
    check_layout(&(struct layout){"0 1 1 2", 4}, 3);
}

static void four_hosts(void **state)
{
    (void)state;
    check_layout(&(struct layout){"0 0 1 1 2 2 3 3", 8}, 4);
    check_layout(&(struct layout){"0 1 1 1 2 2 3", 7}, 5);
}

static void hosts_whose_ranks_are_scattered(void **state)
{
    (void)state;
    check_layout(&(struct layout){"0 1 0 1 2", 5}, 6);
}

static void reductions_of_all_types_and_operations(void **state)
{
    static const char *const ops[] = {"sum", "mean", "min", "max", "prod"};
    static const char *const bits[] = {"and", "or", "xor"};
    char words[64];

    (void)state;
    for (int t = 0; t < TYPES; t++) {
        snprintf(words, sizeof words, "--type %s --op %s", types[t], ops[t % 5]);
        check_on(&(struct layout){"0 0 1 2 2", 5}, "all_reduce", words);
        snprintf(words, sizeof words, "--in-place --type %s --op %s", types[t], ops[(t + 2) % 5]);
        check_on(&(struct layout){"0 0 1 2 2", 5}, "reduce_scatter", words);
        check_on(&(struct layout){"0 1 1", 3}, "all_reduce", words);
        if (t >= 4) {
            snprintf(words, sizeof words, "--type %s --op %s", types[t], bits[t % 3]);
            check_on(&(struct layout){"0 1 1 2", 4}, "all_reduce", words);
        }
    }
}

static void memory_that_is_not_the_groups(void **state)
{
    (void)state;
    for (int c = 0; c < COLLECTIVES; c++) {
        check_on(&(struct layout){"0 0 1", 3}, collectives[c], "--alloc malloc");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_hosts_of_one_rank),
        cmocka_unit_test(two_hosts_of_two_ranks),
        cmocka_unit_test(three_hosts_of_different_sizes),
        cmocka_unit_test(four_hosts),
        cmocka_unit_test(hosts_whose_ranks_are_scattered),
        cmocka_unit_test(reductions_of_all_types_and_operations),
        cmocka_unit_test(memory_that_is_not_the_groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
