/* test_gan_positions.c - dcgan in steps that are cut by position: the same bytes of both networks,
 * the same metrics and images on any number of ranks. */
#include "support/gan.h"

/* Steps of 14 samples in 5 micro-batches, but the last of an epoch has 2 samples in one. */
enum { STEPS = 18 };

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static void run_gan(const char *name, int ranks, const char *const *more)
{
    struct run_options options = {.ranks = ranks,
                                  .conf = "gan.conf",
                                  .arguments = {run_dir_argument(name), "train.batch_size=14",
                                                "train.micro_batch=3", "train.eval_batch_size=5",
                                                NULL}};

    for (int i = 5; *more != NULL; i++) {
        options.arguments[i] = *more++;
        options.arguments[i + 1] = NULL;
    }
    run_well(&options);
}

static void expect_same_run(const char *a, const char *b)
{
    static const char *const names[] = {"loss",   "accuracy", "loss_d",   "loss_g",
                                        "d_real", "d_fake",   "grad_norm"};

    assert_same_checkpoint(a, b, STEPS);
    assert_same_file(in_work("%s/images/step-%08d.pgm", a, STEPS),
                     in_work("%s/images/step-%08d.pgm", b, STEPS));
    for (uint64_t step = 1; step <= STEPS; step++) {
        for (size_t i = 0; i < COUNT_OF(names); i++) {
            double is = metric(b, step, names[i]);

            if (!(is == metric(a, step, names[i]))) {
                fail_msg("%s, step %u: %s is %.17g, %s has %.17g", b, (unsigned)step, names[i], is,
                         a, metric(a, step, names[i]));
            }
        }
    }
    assert_true(metric(a, STEPS, "eval_loss") == metric(b, STEPS, "eval_loss"));
    assert_true(metric(a, STEPS, "eval_accuracy") == metric(b, STEPS, "eval_accuracy"));
}

static void files_metrics_and_images_are_those_of_any_number_of_ranks(void **state)
{
    static const char *const sharded[] = {"ddp.shard_optimizer=true", NULL};
    static const char *const whole[] = {"ddp.shard_optimizer=false", NULL};
    static const int sizes[] = {2, 3, 5};

    (void)state;
    run_gan("on-1", 1, whole);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const char *name = argument("on-%d", sizes[i]);

        run_gan(name, sizes[i], i % 2 == 0 ? sharded : whole);
        expect_same_run("on-1", name);
    }
}

static void so_they_are_after_going_on_with_other_ranks(void **state)
{
    static const char *const none[] = {NULL};
    static const char *const ends[][3] = {{"train.resume=auto", "train.max_steps=4", NULL},
                                          {"train.resume=auto", "train.max_steps=11", NULL},
                                          {"train.resume=auto", NULL}};
    static const int ranks[] = {2, 5, 3};

    (void)state;
    run_gan("at-once", 1, none);
    for (int i = 0; i < 3; i++) {
        run_gan("parts", ranks[i], ends[i]);
    }
    assert_same_checkpoint("at-once", "parts", STEPS);
}

/* One micro-batch on each of two ranks is what these ranks compute without train.micro_batch, in
 * PyTorch's example, too. */
static void one_micro_batch_on_each_rank_follows_pytorch(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .conf = "gan.conf",
        .arguments = {run_dir_argument("pytorch"), "train.micro_batch=6", NULL}};

    (void)state;
    run_well(&options);
    expect_pytorchs_steps("pytorch", 2, GAN_TOLERANCE);
    options.ranks = 1;
    options.arguments[0] = run_dir_argument("pytorch-1");
    run_well(&options);
    expect_pytorchs_steps("pytorch-1", 2, GAN_TOLERANCE);
}

static void read_buffer(const char *run_dir, const char *name, float out[4])
{
    cddp_safetensors *file = open_weights(run_dir, 1);
    const cddp_tensor *found = cddp_safetensors_find(file, name);

    assert_non_null(found);
    assert_true(found->shape[0] >= 4);
    memcpy(out, found->data, 4 * sizeof *out);
    cddp_safetensors_close(file);
}

/* A step's only micro-batch, once without train.micro_batch. Then the discriminator's statistics
 * also have an update by the images that are judged for the generator. */
static void running_statistics_have_no_update_by_the_pass_for_the_generator(void **state)
{
    static const char *const micro_batches[] = {"train.micro_batch=0", "train.micro_batch=12"};
    float generator[2][4];
    float discriminator[2][4];

    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *name = argument("statistics-%d", i);
        struct run_options options = {
            .ranks = 1,
            .conf = "gan.conf",
            .arguments = {run_dir_argument(name), "train.max_steps=1", micro_batches[i]}};

        run_well(&options);
        read_buffer(name, "generator.bn1.running_mean", generator[i]);
        read_buffer(name, "discriminator.bn2.running_var", discriminator[i]);
    }
    for (int c = 0; c < 4; c++) {
        assert_true(fabsf(generator[0][c]) > 0);
        assert_true(fabsf(generator[1][c] - generator[0][c]) <= 1e-6f * fabsf(generator[0][c]));
        /* all variances are far below 1, where it began */
        assert_true(discriminator[0][c] >= 0.729f && discriminator[0][c] < 0.8f);
        assert_true(discriminator[1][c] >= 0.81f && discriminator[1][c] < 0.9f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_metrics_and_images_are_those_of_any_number_of_ranks),
        cmocka_unit_test(so_they_are_after_going_on_with_other_ranks),
        cmocka_unit_test(one_micro_batch_on_each_rank_follows_pytorch),
        cmocka_unit_test(running_statistics_have_no_update_by_the_pass_for_the_generator),
    };

    return cmocka_run_group_tests(tests, make_gan_work, remove_work);
}
