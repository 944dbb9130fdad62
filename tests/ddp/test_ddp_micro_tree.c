/* test_ddp_micro_tree.c - which sums of micro-batches a rank can make alone, compared with a tree
 * that is built level by level. */
#include "ddp/micro_tree.h"
#include "support/test.h"

#include <cddp/sampler.h>

enum { MOST = 70 };

/* Whether [first, first + count) is a node: built by joining neighbours, level by level. */
static bool is_node(struct cddpi_micro_node node, uint64_t all)
{
    struct cddpi_micro_node level[MOST];
    uint64_t n = all;

    for (uint64_t i = 0; i < n; i++) {
        level[i] = (struct cddpi_micro_node){i, 1};
    }
    for (;;) {
        for (uint64_t i = 0; i < n; i++) {
            if (level[i].first == node.first && level[i].count == node.count) {
                return true;
            }
        }
        if (n == 1) {
            return false;
        }
        for (uint64_t i = 0; i < n / 2; i++) {
            level[i] = (struct cddpi_micro_node){level[2 * i].first,
                                                 level[2 * i].count + level[2 * i + 1].count};
        }
        if (n % 2 == 1) {
            level[n / 2] = level[n - 1];
        }
        n = (n + 1) / 2;
    }
}

static void a_rank_has_the_largest_nodes_of_its_run(void **unused)
{
    (void)unused;
    for (uint64_t all = 1; all < MOST; all++) {
        for (int world_size = 1; world_size < 12; world_size++) {
            int most = 0;

            for (int rank = 0; rank < world_size; rank++) {
                cddp_share share = cddp_share_of(0, all, rank, world_size);
                uint64_t end = share.first + share.count;
                struct cddpi_micro_node nodes[CDDPI_MICRO_NODES];
                int count = cddpi_micro_nodes(all, rank, world_size, nodes);
                uint64_t at = share.first;

                for (int i = 0; i < count; i++) {
                    assert_true(nodes[i].first == at && is_node(nodes[i], all));
                    at += nodes[i].count;
                    for (uint64_t more = nodes[i].count + 1; nodes[i].first + more <= end; more++) {
                        assert_false(is_node((struct cddpi_micro_node){nodes[i].first, more}, all));
                    }
                }
                assert_int_equal(at, end);
                most = count > most ? count : most;
            }
            assert_int_equal(cddpi_micro_most_nodes(all, world_size), most);
        }
    }
}

static void micro_batches_pushed_one_by_one_leave_the_same_nodes(void **unused)
{
    (void)unused;
    for (uint64_t all = 1; all < MOST; all++) {
        for (int world_size = 1; world_size < 12; world_size++) {
            for (int rank = 0; rank < world_size; rank++) {
                cddp_share share = cddp_share_of(0, all, rank, world_size);
                struct cddpi_micro_node nodes[CDDPI_MICRO_NODES];
                struct cddpi_micro_node stack[CDDPI_MICRO_NODES];
                int depth = 0;

                for (uint64_t m = share.first; m < share.first + share.count; m++) {
                    int before = depth;
                    int merges = cddpi_micro_push(stack, &depth, (struct cddpi_micro_node){m, 1},
                                                  all);

                    assert_int_equal(depth, before - merges + 1);
                }
                assert_int_equal(cddpi_micro_nodes(all, rank, world_size, nodes), depth);
                assert_memory_equal(nodes, stack, (size_t)depth * sizeof *nodes);
            }
        }
    }
}

static void siblings_are_the_halves_of_a_node(void **unused)
{
    (void)unused;
    for (uint64_t all = 1; all < 20; all++) {
        for (uint64_t first = 0; first < all; first++) {
            for (uint64_t middle = first + 1; middle < all; middle++) {
                for (uint64_t end = middle + 1; end <= all; end++) {
                    struct cddpi_micro_node left = {first, middle - first};
                    struct cddpi_micro_node right = {middle, end - middle};
                    struct cddpi_micro_node both = {first, end - first};
                    bool expected = is_node(left, all) && is_node(right, all) && is_node(both, all);

                    assert_int_equal(cddpi_micro_siblings(left, right, all), expected);
                }
            }
        }
    }
}

/* By merging neighbours among ranks, level by level. */
static bool ranks_make_the_tree(uint64_t all, int world_size)
{
    struct cddpi_micro_node level[MOST];
    int n = world_size;

    for (int rank = 0; rank < n; rank++) {
        cddp_share share = cddp_share_of(0, all, rank, world_size);

        level[rank] = (struct cddpi_micro_node){share.first, share.count};
        if (share.count == 0 || !is_node(level[rank], all)) {
            return false;
        }
    }
    for (; n > 1; n = (n + 1) / 2) {
        for (int i = 0; i < n / 2; i++) {
            level[i] = (struct cddpi_micro_node){level[2 * i].first,
                                                 level[2 * i].count + level[2 * i + 1].count};
            if (!is_node(level[i], all)) {
                return false;
            }
        }
        level[n / 2] = level[n - 1];
    }
    return true;
}

static void the_tree_over_ranks_is_its_top_exactly_where_ranks_make_nodes(void **unused)
{
    int plain = 0;

    (void)unused;
    for (uint64_t all = 1; all < MOST; all++) {
        for (int world_size = 1; world_size < 20; world_size++) {
            bool is = cddpi_micro_is_tree_of_ranks(all, world_size);

            assert_int_equal(is, ranks_make_the_tree(all, world_size));
            assert_true(is || world_size > 1);
            assert_true(is || all != (uint64_t)world_size);
            assert_true(is || all != 4 * (uint64_t)world_size);
            plain += is;
        }
    }
    assert_true(plain > 100 && plain < 1000);
}

static void huge_numbers_of_micro_batches_take_no_time(void **unused)
{
    struct cddpi_micro_node nodes[CDDPI_MICRO_NODES];
    uint64_t sum = 0;

    (void)unused;
    for (int rank = 0; rank < 1000; rank++) {
        int count = cddpi_micro_nodes(UINT64_MAX, rank, 1000, nodes);

        assert_true(count >= 1 && count <= CDDPI_MICRO_NODES);
        for (int i = 0; i < count; i++) {
            assert_true(nodes[i].first == sum);
            sum += nodes[i].count;
        }
    }
    assert_true(sum == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_has_the_largest_nodes_of_its_run),
        cmocka_unit_test(micro_batches_pushed_one_by_one_leave_the_same_nodes),
        cmocka_unit_test(siblings_are_the_halves_of_a_node),
        cmocka_unit_test(the_tree_over_ranks_is_its_top_exactly_where_ranks_make_nodes),
        cmocka_unit_test(huge_numbers_of_micro_batches_take_no_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
