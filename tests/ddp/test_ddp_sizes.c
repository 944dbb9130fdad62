/* test_ddp_sizes.c - the choice of bucket sizes, a pure function: for numbers of real models and
 * links, it comes near the best possible schedule. */
#include "base/alloc.h"
#include "ddp/bucket_plan.h"
#include "support/test.h"

#include <math.h>

enum { MIB = 1 << 20, MOST = 600 };
static const struct cddpi_bucket_plan_rule usual = {.first_bytes = MIB,
                                                    .bucket_bytes = (size_t)25 * MIB};

struct model {
    size_t count;
    struct cddpi_bucket_plan_tensor tensors[MOST];
    double ready_s[MOST];
};

/* One that takes @p start_s, and then as long as the bytes. */
static struct cddpi_group_link make_link(double start_s, double bytes_per_s)
{
    struct cddpi_group_link link = {.hosts = 2,
                                    .is_measured = true,
                                    .latency_s = start_s / 2,
                                    .bytes_per_s = bytes_per_s,
                                    .reduce_bytes_per_s = 4e9};

    for (int i = 0; i < CDDPI_LINK_SIZES; i++) {
        link.all_reduce_s[i] = start_s + cddpi_link_size(i) / bytes_per_s;
    }
    return link;
}

/* A block of GPT-2 @p wide: the gradients of @p blocks, and last the tied embedding of @p words. */
static void make_gpt2(struct model *model, size_t blocks, size_t wide, size_t words,
                      double backward_s)
{
    static const size_t shares[] = {1, 1, 3, 3, 1, 1,
                                    1, 1, 4, 4, 4, 1}; /* of biases and matrices */

    model->count = 12 * blocks + 1;
    for (size_t i = 0; i < model->count; i++) { /* in reverse registration */
        size_t t = model->count - 1 - i;
        size_t share = shares[i % 12];

        model->tensors[t] = (struct cddpi_bucket_plan_tensor){
            4 * wide * (i % 2 == 1 ? wide * share : share), CDDP_F32, false};
        model->ready_s[t] = backward_s * (double)(i + 1) / (double)model->count;
    }
    model->tensors[0].bytes = 4 * wide * words;
    model->ready_s[0] = backward_s;
}

static struct cddpi_bucket_question ask(const struct model *model,
                                        const struct cddpi_group_link *link)
{
    return (struct cddpi_bucket_question){.tensors = model->tensors,
                                          .count = model->count,
                                          .rule = usual,
                                          .ready_s = model->ready_s,
                                          .link = link,
                                          .sent = 1,
                                          .may_split = true};
}

static struct cddpi_bucket_sizes choose(const struct cddpi_bucket_question *question)
{
    struct cddpi_bucket_sizes sizes;

    assert_int_equal(cddpi_bucket_sizes_choose(question, &sizes), CDDP_OK);
    return sizes;
}

/* The tail if each gradient went as soon as it is ready and the link free, at no cost of its own.
 */
static double best_tail(const struct model *model, const struct cddpi_group_link *link)
{
    double free = 0;

    for (size_t i = 0; i < model->count; i++) {
        size_t t = model->count - 1 - i;

        free = fmax(free, model->ready_s[t]) + (double)model->tensors[t].bytes / link->bytes_per_s;
    }
    return free - model->ready_s[0];
}

static void the_tail_is_what_the_numbers_say(void **state)
{
    struct model model = {2, {{1 << 20, CDDP_F32, false}, {1 << 18, CDDP_F32, false}}, {3, 1}};
    struct cddpi_group_link link = make_link(0.5, 1 << 20);
    struct cddpi_bucket_question question = ask(&model, &link);
    struct cddpi_bucket_plan_rule rule = {.first_bytes = 1, .bucket_bytes = 1};
    struct cddpi_bucket_plan *plan;

    (void)state;
    assert_int_equal(cddpi_bucket_plan_make(model.tensors, 2, &rule, &plan), CDDP_OK);
    /* the first is through at 1 + 0.5 + 0.25, the second begins at 3 */
    assert_float_equal(cddpi_bucket_plan_tail_s(&question, plan, model.ready_s), 1.5, 1e-3);
    question.worked_s = 1.0 / (1 << 20); /* before: a quarter and one; behind the second: one */
    assert_float_equal(cddpi_bucket_plan_tail_s(&question, plan, model.ready_s), 3.5, 1e-3);
    question.sent = 0.5;
    assert_float_equal(cddpi_bucket_plan_tail_s(&question, plan, model.ready_s), 3.0, 1e-3);
    model.ready_s[0] = 1; /* the second waits for the first */
    question.worked_s = 0;
    question.sent = 1;
    assert_float_equal(cddpi_bucket_plan_tail_s(&question, plan, model.ready_s), 2.25, 1e-3);
    cddpi_bucket_plan_destroy(plan);
}

static void chosen_sizes_come_near_the_best_schedule(void **state)
{
    static const double rates[] = {11.7e6, 117e6, 1.17e9};
    static struct model model;

    (void)state;
    for (size_t r = 0; r < 3; r++) {
        struct cddpi_group_link link = make_link(150e-6, rates[r]);
        struct cddpi_bucket_question question = ask(&model, &link);
        struct cddpi_bucket_sizes sizes;

        make_gpt2(&model, 4, 256, 4096, 0.3); /* a short backward, and a long one */
        question.count = model.count;
        sizes = choose(&question);
        assert_true(0.3 + sizes.tail_s < 1.03 * (0.3 + best_tail(&model, &link)));
        make_gpt2(&model, 12, 768, 50257, 4);
        question.count = model.count;
        sizes = choose(&question);
        assert_true(4 + sizes.tail_s < 1.03 * (4 + best_tail(&model, &link)));
        assert_true(sizes.tail_s <= sizes.usual_tail_s);
    }
}

static void small_gradients_do_not_wait_for_a_large_one(void **state)
{
    static struct model model;
    struct cddpi_group_link link = make_link(150e-6, 117e6);
    struct cddpi_bucket_question question = ask(&model, &link);
    struct cddpi_bucket_sizes sizes;

    (void)state;
    make_gpt2(&model, 4, 256, 4096, 0.3);
    question.count = model.count;
    sizes = choose(&question);
    assert_true(sizes.tail_s < 0.5 * sizes.usual_tail_s);
    assert_true(sizes.tail_s < 1.1 * best_tail(&model, &link)); /* the embedding's time */
}

static void a_large_last_gradient_is_split_where_it_is_worked_on(void **state)
{
    static struct model model;
    struct cddpi_group_link link = make_link(100e-6, 117e6);
    struct cddpi_bucket_question question = ask(&model, &link);
    struct cddpi_bucket_sizes whole, split;

    (void)state;
    make_gpt2(&model, 12, 768, 50257, 4);
    question.count = model.count;
    split = choose(&question); /* in place there is nothing to gain */
    assert_int_equal(split.part_bytes, 0);
    question.sent = 0.5; /* bf16: cast before and behind */
    question.worked_s = 1 / 4e9;
    split = choose(&question);
    question.may_split = false;
    whole = choose(&question);
    assert_int_equal(whole.part_bytes, 0);
    assert_true(split.part_bytes > 0 && split.large_bytes > 0);
    /* most of the cast back is hidden, which took 39 ms behind the last byte */
    assert_true(split.tail_s < whole.tail_s - 0.6 * 50257 * 768 * 4 / 4e9);
}

static void starts_that_cost_much_make_few_buckets(void **state)
{
    static struct model model;
    struct cddpi_group_link link = make_link(0.05, 1.17e9);
    struct cddpi_bucket_question question = ask(&model, &link);
    struct cddpi_bucket_plan_rule rule = usual;
    struct cddpi_bucket_plan *plan;
    struct cddpi_bucket_sizes sizes;

    (void)state;
    make_gpt2(&model, 12, 768, 50257, 0.01);
    question.count = model.count;
    sizes = choose(&question);
    rule.first_bytes = sizes.first_bytes;
    rule.bucket_bytes = sizes.bucket_bytes;
    rule.large_bytes = sizes.large_bytes;
    assert_int_equal(cddpi_bucket_plan_make(model.tensors, model.count, &rule, &plan), CDDP_OK);
    assert_true(plan->bucket_count < 12);
    cddpi_bucket_plan_destroy(plan);
    assert_true(sizes.tail_s < sizes.usual_tail_s);
}

static void the_usual_sizes_stay_where_others_are_no_better(void **state)
{
    struct model model = {1, {{400, CDDP_F32, false}}, {1}};
    struct cddpi_group_link link = make_link(150e-6, 117e6);
    struct cddpi_bucket_question question = ask(&model, &link);
    struct cddpi_bucket_sizes sizes = choose(&question);

    (void)state;
    assert_int_equal(sizes.first_bytes, usual.first_bytes);
    assert_int_equal(sizes.bucket_bytes, usual.bucket_bytes);
    assert_int_equal(sizes.large_bytes, 0);
    assert_int_equal(sizes.part_bytes, 0);
    assert_float_equal(sizes.tail_s, sizes.usual_tail_s, 0);
}

/* Whatever backward takes, the loss to sizes that were chosen for just that is small. */
static void without_arrivals_no_length_of_backward_is_bad(void **state)
{
    static const double lengths[] = {0.001, 0.05, 0.1, 0.2, 0.8};
    static struct model model;
    struct cddpi_group_link link = make_link(150e-6, 117e6);
    struct cddpi_bucket_question question = ask(&model, &link);
    struct cddpi_bucket_sizes blind;

    (void)state;
    make_gpt2(&model, 4, 256, 4096, 1);
    question.count = model.count;
    question.ready_s = NULL;
    blind = choose(&question);
    question.ready_s = model.ready_s;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct cddpi_bucket_plan_rule rule = {.first_bytes = blind.first_bytes,
                                              .bucket_bytes = blind.bucket_bytes,
                                              .large_bytes = blind.large_bytes,
                                              .part_bytes = blind.part_bytes};
        struct cddpi_bucket_plan *plan;

        make_gpt2(&model, 4, 256, 4096, lengths[i]);
        assert_int_equal(cddpi_bucket_plan_make(model.tensors, model.count, &rule, &plan), CDDP_OK);
        assert_true(lengths[i] + cddpi_bucket_plan_tail_s(&question, plan, model.ready_s) <
                    1.1 * (lengths[i] + choose(&question).tail_s));
        cddpi_bucket_plan_destroy(plan);
    }
}

static void an_order_that_is_no_permutation_is_refused(void **state)
{
    static const uint32_t twice[] = {1, 1};
    static const uint32_t beyond[] = {2, 0};
    struct model model = {2, {{4, CDDP_F32, false}, {4, CDDP_F32, false}}, {0, 0}};
    struct cddpi_group_link link = make_link(1, 1);
    struct cddpi_bucket_question question = ask(&model, &link);
    struct cddpi_bucket_sizes sizes;

    (void)state;
    question.rule.order = twice;
    question.ready_s = NULL;
    assert_int_equal(cddpi_bucket_sizes_choose(&question, &sizes), CDDP_ERR_ARGUMENT);
    question.rule.order = beyond;
    assert_int_equal(cddpi_bucket_sizes_choose(&question, &sizes), CDDP_ERR_ARGUMENT);
}

static void short_memory_leaves_nothing_behind(void **state)
{
    static struct model model;
    struct cddpi_group_link link = make_link(150e-6, 117e6);
    struct cddpi_bucket_question question = ask(&model, &link);
    struct cddpi_bucket_sizes sizes;

    (void)state;
    make_gpt2(&model, 1, 16, 100, 1);
    question.count = model.count;
    for (unsigned nth = 1; nth <= 40; nth++) {
        cddpi_alloc_fail_nth(nth);
        assert_int_equal(cddpi_bucket_sizes_choose(&question, &sizes), CDDP_ERR_NO_MEMORY);
    }
    cddpi_alloc_fail_nth(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tail_is_what_the_numbers_say),
        cmocka_unit_test(chosen_sizes_come_near_the_best_schedule),
        cmocka_unit_test(small_gradients_do_not_wait_for_a_large_one),
        cmocka_unit_test(a_large_last_gradient_is_split_where_it_is_worked_on),
        cmocka_unit_test(starts_that_cost_much_make_few_buckets),
        cmocka_unit_test(the_usual_sizes_stay_where_others_are_no_better),
        cmocka_unit_test(without_arrivals_no_length_of_backward_is_bad),
        cmocka_unit_test(an_order_that_is_no_permutation_is_refused),
        cmocka_unit_test(short_memory_leaves_nothing_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
