/* test_ddp_memory.c - one rank has no memory left: every rank is told, and the group survives. */
#include "base/alloc.h"
#include "support/ddp_ranks.h"
#include "support/failure.h"

static const size_t elements[] = {10, 20, 30, 40};
enum { COUNT = 4 };

/* The last rank runs out of memory while it registers its model. */
static int poor_rank(int rank, int world_size, void *argument)
{
    struct trainer t;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    for (unsigned nth = 1; nth <= 13; nth++) {
        cddpi_alloc_fail_nth(rank == world_size - 1 ? nth : 0);
        CHECK(cddp_ddp_create(t.group, t.model.params, COUNT, NULL, 0, &t.model.options, &t.ddp) ==
              CDDP_ERR_NO_MEMORY);
        cddpi_alloc_fail_nth(0);
        CHECK(same_text_everywhere(t.group, cddp_last_error()));
    }
    return train_again(&t, rank, world_size);
}

static void a_rank_without_memory_for_its_model_says_so_on_all(void **state)
{
    assert_int_equal(meet(*state, 1, poor_rank, NULL, NULL), 0);
    assert_int_equal(meet(*state, 3, poor_rank, NULL, NULL), 0);
}

/* Alone, every allocation of create may fail: nothing is lost, and no half a handle comes out. */
static int poor_alone(int rank, int world_size, void *argument)
{
    struct trainer t;
    cddp_status status = CDDP_ERR_NO_MEMORY;
    unsigned nth;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    for (nth = 1; status != CDDP_OK && nth < 100; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = cddp_ddp_create(t.group, t.model.params, COUNT, NULL, 0, &t.model.options, &t.ddp);
        cddpi_alloc_fail_nth(0);
        CHECK((status == CDDP_OK) == (t.ddp != NULL));
        if (status != CDDP_OK) { /* which may have broken the group on purpose */
            cddp_group_destroy(t.group);
            t.group = join_group(argument, rank, world_size);
            CHECK(t.group != NULL);
        }
    }
    CHECK(nth > 20 && t.ddp != NULL);
    return leave(&t);
}

static void every_allocation_of_create_may_fail(void **state)
{
    assert_int_equal(meet(*state, 1, poor_alone, NULL, NULL), 0);
}

/* Rank 0 has no memory to keep the gradient of an unused parameter. */
static int hiding_rank(int rank, int world_size, void *argument)
{
    struct trainer t;

    CHECK(enter(&t, argument, rank, world_size, OWNED, COUNT, elements, NULL) == 0);
    t.model.options.allow_unused = true;
    CHECK(watch(&t) == 0);
    CHECK(begin_mean(t.ddp, 0) == 0 && cddp_ddp_grad_ready(t.ddp, 0) == CDDP_OK);
    cddpi_alloc_fail_nth(rank == 0 ? 1 : 0);
    CHECK(cddp_ddp_wait(t.ddp) == CDDP_ERR_NO_MEMORY);
    cddpi_alloc_fail_nth(0);
    CHECK(last_error_has("rank 0: no memory for"));
    CHECK(same_text_everywhere(t.group, cddp_last_error()));
    return train_again(&t, rank, world_size);
}

static void a_rank_without_memory_in_a_step_says_so_on_all(void **state)
{
    assert_int_equal(meet(*state, 1, hiding_rank, NULL, NULL), 0);
    assert_int_equal(meet(*state, 4, hiding_rank, NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(a_rank_without_memory_for_its_model_says_so_on_all),
        RANKS_TEST(every_allocation_of_create_may_fail),
        RANKS_TEST(a_rank_without_memory_in_a_step_says_so_on_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
