/* test_ddp_plan.c - the bucket plan, a pure function: which parameters share a bucket, and their
 * offsets. */
#include "base/alloc.h"
#include "ddp/bucket_plan.h"
#include "support/failure.h"
#include "support/test.h"

enum { MIB = 1 << 20 };

static const struct cddpi_bucket_plan_rule defaults = {MIB, (size_t)25 * MIB, 0, 0, 0, false, NULL};

static struct cddpi_bucket_plan *make(const struct cddpi_bucket_plan_tensor *tensors, size_t count,
                                      struct cddpi_bucket_plan_rule rule)
{
    struct cddpi_bucket_plan *plan = NULL;

    assert_int_equal(cddpi_bucket_plan_make(tensors, count, &rule, &plan), CDDP_OK);
    return plan;
}

/* The sizes that PyTorch's rebuilt buckets have for 24 x Linear(1024): weight 4 MiB, bias 4 KiB,
 * in the order of arrival (the last layer's bias first). */
static void buckets_of_24_linear_layers_have_the_known_sizes(void **state)
{
    static const size_t expected[] = {4198400, 29388800, 29388800, 29388800, 8396800};
    struct cddpi_bucket_plan_tensor tensors[48];
    struct cddpi_bucket_plan *plan;

    (void)state;
    for (int i = 0; i < 24; i++) {
        tensors[2 * i] = (struct cddpi_bucket_plan_tensor){4 * MIB, CDDP_F32, false};
        tensors[2 * i + 1] = (struct cddpi_bucket_plan_tensor){4096, CDDP_F32, false};
    }
    plan = make(tensors, 48, defaults);
    assert_int_equal(plan->bucket_count, 5);
    for (size_t b = 0; b < 5; b++) {
        assert_int_equal(plan->buckets[b].payload, expected[b]);
    }
    cddpi_bucket_plan_destroy(plan);
}

static void a_bucket_closes_once_it_holds_its_cap_and_not_before(void **state)
{
    struct cddpi_bucket_plan_tensor tensors[] = {
        {60, CDDP_F32, false}, {40, CDDP_F32, false}, {99, CDDP_F32, false}, {1, CDDP_F32, false}};
    struct cddpi_bucket_plan_rule rule = {100, 100, 0, 0, 0, false, NULL};
    struct cddpi_bucket_plan *plan = make(tensors, 4, rule);

    (void)state;
    assert_int_equal(plan->bucket_count, 2);
    assert_int_equal(plan->members[0], 3);
    assert_int_equal(plan->members[1], 2);
    assert_int_equal(plan->members[2], 1);
    assert_int_equal(plan->members[3], 0);
    assert_int_equal(plan->buckets[0].payload, 100);
    assert_int_equal(plan->buckets[1].payload, 100);
    cddpi_bucket_plan_destroy(plan);
}

static void slices_are_aligned_and_do_not_overlap(void **state)
{
    struct cddpi_bucket_plan_tensor tensors[50];
    struct cddpi_bucket_plan_rule rule = {300, 1000, 0, 0, 0, false, NULL};
    struct cddpi_bucket_plan *plan;
    unsigned char *taken;

    (void)state;
    for (size_t t = 0; t < 50; t++) {
        tensors[t] = (struct cddpi_bucket_plan_tensor){4 * (t * 37 % 91), CDDP_F32, false};
    }
    plan = make(tensors, 50, rule);
    taken = calloc(1, plan->bytes);
    for (size_t t = 0; t < 50; t++) {
        const struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[plan->bucket_of[t]];

        assert_int_equal(plan->offsets[t] % CDDPI_ALIGNMENT, 0);
        assert_true(plan->offsets[t] >= bucket->offset);
        assert_true(plan->offsets[t] + tensors[t].bytes <= bucket->offset + bucket->bytes);
        for (size_t i = 0; i < tensors[t].bytes; i++) {
            assert_int_equal(taken[plan->offsets[t] + i]++, 0);
        }
    }
    free(taken);
    cddpi_bucket_plan_destroy(plan);
}

static void types_have_buckets_and_caps_of_their_own(void **state)
{
    struct cddpi_bucket_plan_tensor tensors[8];
    struct cddpi_bucket_plan_rule rule = {8, 16, 0, 0, 0, false, NULL};
    struct cddpi_bucket_plan *plan;

    (void)state;
    for (size_t t = 0; t < 8; t++) {
        tensors[t] = (struct cddpi_bucket_plan_tensor){8, t % 2 == 0 ? CDDP_F32 : CDDP_F64, false};
    }
    plan = make(tensors, 8, rule);
    /* each type: one of 8 bytes, one of 16, one of 8 that is left; f64 comes first */
    assert_int_equal(plan->bucket_count, 6);
    assert_int_equal(plan->buckets[0].type, CDDP_F64);
    assert_int_equal(plan->buckets[0].count, 1);
    assert_int_equal(plan->buckets[1].type, CDDP_F32);
    assert_int_equal(plan->buckets[2].type, CDDP_F64);
    assert_int_equal(plan->buckets[2].count, 2);
    for (size_t t = 0; t < 8; t++) {
        assert_int_equal(plan->buckets[plan->bucket_of[t]].type, tensors[t].type);
    }
    cddpi_bucket_plan_destroy(plan);
}

/* Those that are sent in another way than the rest. */
static void what_is_apart_shares_no_bucket_with_the_rest(void **state)
{
    struct cddpi_bucket_plan_tensor tensors[9];
    struct cddpi_bucket_plan_rule rule = {8, 16, 0, 0, 0, false, NULL};
    struct cddpi_bucket_plan *plan;

    (void)state;
    for (size_t t = 0; t < 9; t++) {
        tensors[t] = (struct cddpi_bucket_plan_tensor){8, CDDP_F32, t % 3 == 0};
    }
    plan = make(tensors, 9, rule);
    /* three apart: 8 bytes, 16; six others: 8, 16, 16, 8 */
    assert_int_equal(plan->bucket_count, 6);
    for (size_t t = 0; t < 9; t++) {
        assert_int_equal(plan->buckets[plan->bucket_of[t]].separate, t % 3 == 0);
    }
    cddpi_bucket_plan_destroy(plan);
}

/* A big bucket that was opened first but gets its last member last must not hold up the others. */
static void buckets_are_numbered_by_their_last_member(void **state)
{
    struct cddpi_bucket_plan_tensor tensors[] = {
        {4, CDDP_F16, false}, {400, CDDP_F32, false}, {4, CDDP_F16, false}};
    struct cddpi_bucket_plan_rule rule = {100, 100, 0, 0, 0, false, NULL};
    struct cddpi_bucket_plan *plan = make(tensors, 3, rule);

    (void)state;
    assert_int_equal(plan->bucket_count, 2);
    assert_int_equal(plan->buckets[0].type, CDDP_F32);
    assert_int_equal(plan->buckets[1].type, CDDP_F16);
    cddpi_bucket_plan_destroy(plan);
}

static void a_lent_block_is_cut_in_ranges_from_its_end(void **state)
{
    struct cddpi_bucket_plan_tensor tensors[] = {{12, CDDP_F32, false},
                                                 {20, CDDP_F32, false},
                                                 {4, CDDP_F32, false},
                                                 {40, CDDP_F32, false},
                                                 {8, CDDP_F32, false}};
    struct cddpi_bucket_plan_rule rule = {8, 40, 0, 0, 0, true, NULL};
    struct cddpi_bucket_plan *plan = make(tensors, 5, rule);
    static const size_t offsets[] = {0, 12, 32, 36, 76};

    (void)state;
    assert_int_equal(plan->bytes, 84);
    assert_int_equal(plan->bucket_count, 3);
    for (size_t t = 0; t < 5; t++) {
        assert_int_equal(plan->offsets[t], offsets[t]);
    }
    assert_int_equal(plan->buckets[0].offset, 76);
    assert_int_equal(plan->buckets[0].bytes, 8);
    assert_int_equal(plan->buckets[1].offset, 36);
    assert_int_equal(plan->buckets[1].bytes, 40);
    assert_int_equal(plan->buckets[2].offset, 0);
    assert_int_equal(plan->buckets[2].bytes, 36);
    cddpi_bucket_plan_destroy(plan);
}

enum { BLOCK = 6, MANY = 200 };

/* Tensors of 1 MiB in a lent block, which become ready in @p order; as many buckets come out. */
static struct cddpi_bucket_plan *plan_block(const uint32_t *order, size_t count, size_t buckets)
{
    struct cddpi_bucket_plan_tensor tensors[MANY];
    struct cddpi_bucket_plan_rule rule = defaults;
    struct cddpi_bucket_plan *plan;

    for (size_t t = 0; t < count; t++) {
        tensors[t] = (struct cddpi_bucket_plan_tensor){MIB, CDDP_F32, false};
    }
    rule.flat = true;
    rule.order = order;
    plan = make(tensors, count, rule);
    assert_int_equal(plan->bucket_count, buckets);
    for (size_t b = 0; b < buckets; b++) { /* a range, from its last member on */
        const struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[b];

        assert_int_equal(bucket->bytes, bucket->count * MIB);
        assert_int_equal(bucket->offset,
                         plan->members[bucket->first + bucket->count - 1] * (size_t)MIB);
    }
    return plan;
}

static void a_lent_block_is_cut_where_the_order_of_completion_jumps(void **state)
{
    static const uint32_t backward[BLOCK] = {5, 4, 3, 2, 1, 0};
    static const uint32_t forward[BLOCK] = {0, 1, 2, 3, 4, 5};
    static const uint32_t one_late[BLOCK] = {5, 4, 2, 1, 0, 3};
    static const uint32_t in_turns[BLOCK] = {5, 3, 1, 4, 2, 0};
    uint32_t many[MANY];
    struct cddpi_bucket_plan *plan;

    (void)state;
    cddpi_bucket_plan_destroy(plan_block(NULL, BLOCK, 2));
    cddpi_bucket_plan_destroy(plan_block(backward, BLOCK, 2));
    plan = plan_block(forward, BLOCK, 2);
    assert_int_equal(plan->buckets[0].count, 5); /* 0 to 4 go first */
    cddpi_bucket_plan_destroy(plan);
    plan = plan_block(one_late, BLOCK, 4); /* 5; 4; 2, 1 and 0 do not wait for 3 */
    assert_int_equal(plan->buckets[2].count, 3);
    assert_int_equal(plan->members[plan->buckets[3].first], 3);
    cddpi_bucket_plan_destroy(plan);
    plan = plan_block(in_turns, BLOCK, BLOCK);
    for (size_t b = 0; b < BLOCK; b++) {
        assert_int_equal(plan->members[b], in_turns[b]);
    }
    cddpi_bucket_plan_destroy(plan);
    for (uint32_t t = 0; t < MANY; t++) {
        many[t] = t < MANY / 2 ? MANY - 1 - 2 * t : 2 * (MANY - 1 - t);
    }
    cddpi_bucket_plan_destroy(plan_block(many, MANY, 1 + 64 + 6)); /* then ranges of 25 again */
}

/* The parts of @p tensor follow each other in buckets and memory, and are all of it. */
static void check_parts(const struct cddpi_bucket_plan *plan, uint32_t tensor, size_t parts,
                        size_t bytes)
{
    const struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[plan->bucket_of[tensor]];
    size_t offset = plan->offsets[tensor];

    assert_int_equal(plan->parts_of[tensor], parts);
    for (size_t p = 0; p < parts; p++, bucket++) {
        assert_true(bucket->is_part);
        assert_int_equal(bucket->count, 1);
        assert_int_equal(plan->members[bucket->first], tensor);
        assert_int_equal(bucket->offset, offset);
        assert_int_equal(bucket->offset % CDDPI_ALIGNMENT, plan->offsets[tensor] % CDDPI_ALIGNMENT);
        assert_true(bucket->bytes >= bucket->payload);
        offset += bucket->payload;
    }
    assert_int_equal(offset - plan->offsets[tensor], bytes);
}

static void a_large_gradient_is_cut_in_buckets_that_follow_each_other(void **state)
{
    struct cddpi_bucket_plan_tensor tensors[] = {
        {10000, CDDP_F32, false}, {40, CDDP_F32, false}, {60, CDDP_F32, false}};
    struct cddpi_bucket_plan_rule rule = {1000, 1000, 5000, 3000, 0, false, NULL};
    struct cddpi_bucket_plan *plan = make(tensors, 3, rule);

    (void)state;
    /* the two small ones do not wait for the large one */
    assert_int_equal(plan->bucket_count, 5);
    assert_int_equal(plan->bucket_of[2], 0);
    assert_int_equal(plan->bucket_of[1], 0);
    assert_int_equal(plan->bucket_of[0], 1);
    assert_false(plan->buckets[0].is_part);
    assert_int_equal(plan->parts_of[1], 1);
    check_parts(plan, 0, 4, 10000);
    assert_int_equal(plan->buckets[1].payload, 2560); /* a quarter, aligned */
    assert_true(plan->bytes >= 10000 + 100);
    cddpi_bucket_plan_destroy(plan);

    rule.part_bytes = 0; /* alone, but whole */
    plan = make(tensors, 3, rule);
    assert_int_equal(plan->bucket_count, 2);
    assert_int_equal(plan->buckets[1].payload, 10000);
    assert_false(plan->buckets[1].is_part);
    cddpi_bucket_plan_destroy(plan);
}

static void parts_lie_as_well_in_a_lent_block(void **state)
{
    static const uint32_t order[] = {1, 2, 0}; /* the large one first */
    struct cddpi_bucket_plan_tensor tensors[] = {
        {12, CDDP_F32, false}, {10000, CDDP_F32, false}, {20, CDDP_F32, false}};
    struct cddpi_bucket_plan_rule rule = {1000, 1000, 5000, 64, 0, true, order};
    struct cddpi_bucket_plan *plan = make(tensors, 3, rule);

    (void)state;
    assert_int_equal(plan->bytes, 10032);
    assert_int_equal(plan->offsets[1], 12);
    assert_int_equal(plan->bucket_of[1], 0);
    check_parts(plan, 1, 53, 10000); /* no more than 64 parts, each of whole 64 bytes */
    assert_int_equal(plan->bucket_count, 55);
    assert_int_equal(plan->buckets[plan->bucket_of[2]].offset, 10012);
    assert_int_equal(plan->buckets[plan->bucket_of[0]].offset, 0);
    cddpi_bucket_plan_destroy(plan);
}

static void what_is_sharded_is_not_cut(void **state)
{
    struct cddpi_bucket_plan_tensor tensors[] = {{10000, CDDP_F32, false}, {40, CDDP_F32, false}};
    struct cddpi_bucket_plan_rule rule = {1000, 1000, 5000, 3000, 128, false, NULL};
    struct cddpi_bucket_plan *plan = make(tensors, 2, rule);

    (void)state;
    assert_int_equal(plan->bucket_count, 2);
    assert_int_equal(plan->parts_of[0], 1);
    cddpi_bucket_plan_destroy(plan);
}

static void plans_that_are_cut_elsewhere_are_not_equal(void **state)
{
    struct cddpi_bucket_plan_tensor tensor = {10000, CDDP_F32, false};
    struct cddpi_bucket_plan_rule rule = {1000, 1000, 5000, 3000, 0, false, NULL};
    struct cddpi_bucket_plan *a = make(&tensor, 1, rule);
    struct cddpi_bucket_plan *b;

    (void)state;
    rule.part_bytes = 5000;
    b = make(&tensor, 1, rule);
    assert_true(cddpi_bucket_plan_equal(a, a));
    assert_false(cddpi_bucket_plan_equal(a, b));
    cddpi_bucket_plan_destroy(a);
    cddpi_bucket_plan_destroy(b);
}

static void an_order_that_is_no_permutation_is_refused(void **state)
{
    struct cddpi_bucket_plan_tensor tensors[] = {
        {4, CDDP_F32, false}, {4, CDDP_F32, false}, {4, CDDP_F32, false}};
    const uint32_t twice[] = {0, 1, 1};
    const uint32_t beyond[] = {0, 1, 3};
    struct cddpi_bucket_plan_rule rule = {4, 4, 0, 0, 0, false, twice};
    struct cddpi_bucket_plan *plan = NULL;

    (void)state;
    assert_true(failure_is(cddpi_bucket_plan_make(tensors, 3, &rule, &plan), CDDP_ERR_ARGUMENT, -1,
                           -1, ""));
    assert_true(last_error_has("entry 2 is 1 again"));
    rule.order = beyond;
    assert_int_equal(cddpi_bucket_plan_make(tensors, 3, &rule, &plan), CDDP_ERR_ARGUMENT);
    assert_null(plan);
}

static void equal_orders_make_equal_plans_and_others_do_not(void **state)
{
    struct cddpi_bucket_plan_tensor tensors[] = {
        {4, CDDP_F32, false}, {4, CDDP_F32, false}, {4, CDDP_F32, false}};
    const uint32_t reverse[] = {2, 1, 0};
    const uint32_t other[] = {1, 2, 0};
    struct cddpi_bucket_plan_rule rule = {8, 8, 0, 0, 0, false, NULL};
    struct cddpi_bucket_plan *a = make(tensors, 3, rule);
    struct cddpi_bucket_plan *b;
    struct cddpi_bucket_plan *c;

    (void)state;
    rule.order = reverse;
    b = make(tensors, 3, rule);
    rule.order = other;
    c = make(tensors, 3, rule);
    assert_true(cddpi_bucket_plan_equal(a, b));
    assert_false(cddpi_bucket_plan_equal(a, c));
    cddpi_bucket_plan_destroy(a);
    cddpi_bucket_plan_destroy(b);
    cddpi_bucket_plan_destroy(c);
}

static void short_memory_leaves_nothing_behind(void **state)
{
    struct cddpi_bucket_plan_tensor tensors[] = {{4, CDDP_F32, false}, {4, CDDP_F64, false}};
    struct cddpi_bucket_plan *plan = NULL;

    (void)state;
    for (unsigned nth = 1; nth <= 10; nth++) {
        cddpi_alloc_fail_nth(nth);
        assert_int_equal(cddpi_bucket_plan_make(tensors, 2, &defaults, &plan), CDDP_ERR_NO_MEMORY);
        assert_null(plan);
    }
    cddpi_alloc_fail_nth(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_of_24_linear_layers_have_the_known_sizes),
        cmocka_unit_test(a_bucket_closes_once_it_holds_its_cap_and_not_before),
        cmocka_unit_test(slices_are_aligned_and_do_not_overlap),
        cmocka_unit_test(types_have_buckets_and_caps_of_their_own),
        cmocka_unit_test(what_is_apart_shares_no_bucket_with_the_rest),
        cmocka_unit_test(buckets_are_numbered_by_their_last_member),
        cmocka_unit_test(a_lent_block_is_cut_in_ranges_from_its_end),
        cmocka_unit_test(a_lent_block_is_cut_where_the_order_of_completion_jumps),
        cmocka_unit_test(a_large_gradient_is_cut_in_buckets_that_follow_each_other),
        cmocka_unit_test(parts_lie_as_well_in_a_lent_block),
        cmocka_unit_test(what_is_sharded_is_not_cut),
        cmocka_unit_test(plans_that_are_cut_elsewhere_are_not_equal),
        cmocka_unit_test(an_order_that_is_no_permutation_is_refused),
        cmocka_unit_test(equal_orders_make_equal_plans_and_others_do_not),
        cmocka_unit_test(short_memory_leaves_nothing_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
