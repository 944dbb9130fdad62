/* test_train_cuda_any_order.c - with train.micro_batch and ddp.deterministic = false, runs on CUDA
 * devices compute what they compute in one order, up to rounding, and steps are replayed. */
#include "support/cuda.h"
#include "support/train_graphs.h"

#define ANY_ORDER "ddp.deterministic=false"

/* 600 samples in batches of 64: an epoch's tenth batch has 24. So with micro-batches of 6, a step
 * has 11, unequally many on 2, 3 and 5 ranks; the last one has 4, of which a fifth rank has none.
 */
static void sums_in_any_order_agree_with_those_in_one(void **state)
{
    static const char *const ways[][3] = {
        {"ddp.shard_optimizer=false", "train.precision=f32", "ddp.wire=f32"},
        {"ddp.shard_optimizer=true", "train.precision=f32", "ddp.wire=f32"},
        {"ddp.shard_optimizer=false", "train.precision=fp16", "ddp.wire=bf16"}};

    (void)state;
    NEEDS_DEVICE();
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        static const int counts[] = {1, 2, 3, 5};
        const char *const one_order[] = {"train.max_steps=12", "train.micro_batch=6", ways[i][0],
                                         ways[i][1], NULL};
        const char *const any_order[] = {"train.max_steps=12",
                                         "train.micro_batch=6",
                                         ways[i][0],
                                         ways[i][1],
                                         ways[i][2],
                                         ANY_ORDER,
                                         NULL};
        char *first = argument("one-order-%zu", i);

        run_named("small.conf", 1, first, CUDA, one_order);
        for (size_t k = 0; k < COUNT_OF(counts) && counts[k] <= ranks_up_to(5); k++) {
            char *name = argument("any-order-%zu-%d", i, counts[k]);

            run_named("small.conf", counts[k], name, CUDA, any_order);
            assert_same_steps(first, name, 1, 12, i < 2 ? 1e-4 : 2e-2);
            assert_close(first, name, 12, "eval_loss", i < 2 ? 1e-4 : 2e-2);
        }
    }
}

/* Of two epochs, all but the last steps and the first are replayed, on each rank with its own
 * number of micro-batches. */
static void replayed_steps_give_the_same_files(void **state)
{
    const char *const arguments[] = {
        "train.max_steps=23",   "train.micro_batch=6", "model.dropout=0.2", "train.clip_norm=0.5",
        "optimizer.type=adamw", "optimizer.lr=0.01",   ANY_ORDER,           NULL};

    (void)state;
    NEEDS_EMULATED_MODULE();
    setenv("CDDP_PRODUCTS", "same", 1); /* else they are chosen by time, whatever bits */
    compare("small.conf", "replayed", 3, arguments, 23, 2);
    unsetenv("CDDP_PRODUCTS");
}

static void the_same_bits_are_not_promised(void **state)
{
    const char *const arguments[] = {"train.max_steps=1", "train.micro_batch=8", ANY_ORDER, NULL};
    struct run run;
    char *text;

    (void)state;
    NEEDS_DEVICE();
    run = run_named("small.conf", 1, "promise", CUDA, arguments);
    text = output(&run, "err", 0);
    assert_non_null(strstr(text, "in 8 micro-batches of at most 8"));
    assert_null(strstr(text, "the same bits"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_in_any_order_agree_with_those_in_one),
        cmocka_unit_test(replayed_steps_give_the_same_files),
        cmocka_unit_test(the_same_bits_are_not_promised),
    };

    return cmocka_run_group_tests(tests, make_devices, remove_work);
}
