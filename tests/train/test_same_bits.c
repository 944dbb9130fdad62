/* test_same_bits.c - with train.micro_batch, all kinds of models leave the same bytes behind on any
 * number of ranks: checkpoints, metrics but for times, and generated text. */
#include "support/same_bits.h"

/* Train @p model on @p ranks ranks, with a few more keys. Returns the run's folder. */
static const char *train(const char *model, const char *name, int ranks, const char *a,
                         const char *b)
{
    const char *run_dir = argument("%s-%s-%d", model, name, ranks);
    struct run_options options = {.ranks = ranks,
                                  .conf = argument("%s.conf", model),
                                  .arguments = {run_dir_argument(run_dir), a, b, NULL}};

    run_well(&options);
    return run_dir;
}

/* The last step of an epoch has 8 samples, which are 3 micro-batches: fewer than most ranks. */
static void all_models_leave_the_same_behind_on_any_number_of_ranks(void **state)
{
    static const int ranks[] = {2, 3, 4, 5, 7, 8};

    (void)state;
    for (int m = 0; m < same_bits_model_count; m++) {
        const char *model = same_bits_models[m].name;
        const char *one = train(model, "plain", 1, NULL, NULL);

        assert_true(last_step(one) >= 6);
        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
            assert_same_files(one, train(model, "plain", ranks[i], NULL, NULL));
        }
    }
}

/* So that the other tests can find something. */
static void without_micro_batch_bits_differ(void **state)
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
    const char *one = train("mlp", "share", 1, "train.micro_batch=0", NULL);
    const char *three = train("mlp", "share", 3, "train.micro_batch=0", NULL);

    (void)state;
    for (int i = 0; i < 2; i++) {
        size_t bytes = 0;
        char *a = get_file(in_work("%s/checkpoints/step-%08d/%s", one, 6, names[i]), &bytes);
        char *b = get_file(in_work("%s/checkpoints/step-%08d/%s", three, 6, names[i]), NULL);

        assert_memory_not_equal(a, b, bytes);
        free(a);
        free(b);
    }
}

static void clipped_and_sharded_runs_do_too(void **state)
{
    static const char *const models[] = {"mlp", "gpt2", "lstm-tied", "cnn"};
    static const int ranks[] = {2, 3, 5, 8};
    static const char clip[] = "train.clip_norm=0.05";

    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const char *one = train(models[m], "clip", 1, clip, "ddp.shard_optimizer=false");

        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
            assert_same_files(
                one, train(models[m], "clip", ranks[i], clip, "ddp.shard_optimizer=false"));
            assert_same_files(
                one, train(models[m], "shards", ranks[i], clip, "ddp.shard_optimizer=true"));
        }
    }
}

static void evaluations_and_texts_on_the_way_are_the_same(void **state)
{
    static const int ranks[] = {3, 7};
    const char *evaluated = train("cnn", "way", 1, "train.eval_steps=2", "train.eval_batches=2");
    const char *told = train("gpt2", "way", 1, "train.generate_steps=2", "train.eval_steps=1");
    char *metrics = same_bits_metrics(told, false);

    (void)state;
    assert_non_null(strstr(metrics, "\"text\""));
    assert_non_null(strstr(metrics, "\"eval_loss\""));
    free(metrics);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        assert_same_files(
            evaluated, train("cnn", "way", ranks[i], "train.eval_steps=2", "train.eval_batches=2"));
        assert_same_files(
            told, train("gpt2", "way", ranks[i], "train.generate_steps=2", "train.eval_steps=1"));
    }
}

/* Means over several steps are of sums, too. */
static void metrics_of_many_steps_are_the_same(void **state)
{
    const char *one = train("augmented", "many", 1, "train.log_steps=5", NULL);

    (void)state;
    assert_same_files(one, train("augmented", "many", 2, "train.log_steps=5", NULL));
    assert_same_files(one, train("augmented", "many", 5, "train.log_steps=5", NULL));
}

/* Then a rank waits for others' evaluations, which wait for the parameters that it has updated. */
static void replicas_without_a_part_of_an_evaluation_have_their_updates_taken(void **state)
{
    static const char *const cut[] = {"train.micro_batch=3", "train.micro_batch=0"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *run_dir = argument("idle-%d", i);
        struct run_options options = {
            .ranks = 8,
            .conf = "lstm-tied.conf",
            .timeout_ms = 60000,
            .arguments = {run_dir_argument(run_dir), cut[i], "train.eval_batch_size=3",
                          "train.eval_steps=1", "train.max_steps=2", "parallel.pipeline=2",
                          "ddp.shard_optimizer=true", "ddp.bucket_bytes=1024"}};

        run_well(&options);
        assert_false(isnan(metric(run_dir, 1, "eval_loss")));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_micro_batch_bits_differ),
        cmocka_unit_test(clipped_and_sharded_runs_do_too),
        cmocka_unit_test(evaluations_and_texts_on_the_way_are_the_same),
        cmocka_unit_test(replicas_without_a_part_of_an_evaluation_have_their_updates_taken),
        cmocka_unit_test(metrics_of_many_steps_are_the_same),
        cmocka_unit_test(all_models_leave_the_same_behind_on_any_number_of_ranks),
    };

    return cmocka_run_group_tests(tests, make_same_bits_work, remove_work);
}
