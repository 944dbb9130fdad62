/* test_gpt_reference.c - a tiny GPT-2, trained by the real program, follows PyTorch's losses from
 * the same weights on the same tokens, for any number of ranks and micro-batches and any format of
 * the weights; and what cddp-convert makes of its checkpoint. */
#include "nn/gpt_support.h"

/* PyTorch's losses, one a step. */
static void read_reference(double losses[GPT_STEPS])
{
    json_t *reference = json_load_file(
        argument("%s/tests/vectors/gpt_reference.json", getenv("CDDP_TEST_SOURCE")), 0, NULL);
    json_t *list = json_object_get(reference, "losses");

    assert_int_equal(json_array_size(list), GPT_STEPS);
    for (size_t i = 0; i < GPT_STEPS; i++) {
        losses[i] = json_real_value(json_array_get(list, i));
    }
    json_decref(reference);
}

static void assert_follows(const char *run, const double losses[GPT_STEPS])
{
    for (int i = 0; i < GPT_STEPS; i++) {
        double loss = metric(run, (uint64_t)i + 1, "loss");

        if (!(fabs(loss - losses[i]) <= 1e-4 * losses[i])) {
            fail_msg("%s, step %d: loss %.7f, PyTorch's is %.7f", run, i + 1, loss, losses[i]);
        }
    }
}

static void losses_follow_pytorch_at_any_number_of_ranks(void **state)
{
    double losses[GPT_STEPS];

    (void)state;
    read_reference(losses);
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct run_options options = {.ranks = ranks,
                                      .conf = "gpt.conf",
                                      .arguments = {run_dir_argument(argument("n%d", ranks))}};

        run_well(&options);
        assert_follows(argument("n%d", ranks), losses);
    }
}

static void micro_batches_follow_as_well(void **state)
{
    static const struct {
        int ranks, accumulate;
    } cases[] = {{1, 4}, {2, 3}, {3, 2}};
    double losses[GPT_STEPS];

    (void)state;
    read_reference(losses);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *name = argument("n%d-k%d", cases[i].ranks, cases[i].accumulate);
        struct run_options options = {
            .ranks = cases[i].ranks,
            .conf = "gpt.conf",
            .arguments = {run_dir_argument(name),
                          argument("train.accumulate=%d", cases[i].accumulate)}};

        run_well(&options);
        assert_follows(name, losses);
        for (uint64_t step = 1; step <= 5; step++) { /* before rounding has grown */
            double expected = metric("n1", step, "loss");

            assert_true(fabs(metric(name, step, "loss") - expected) <= 1e-6 * expected);
        }
    }
}

static void run_program(const char *words)
{
    const char *command = argument("cd '%s' && '%s/src/%s > said 2>&1", work,
                                   getenv("CDDP_TEST_BUILD"), words);

    if (system(command) != 0) {
        fail_msg("%s: %s", command, get_file(in_work("said"), NULL));
    }
}

static void weights_of_any_format_begin_the_same_run(void **state)
{
    static const char *const formats[] = {"hf", "llmc"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *file = argument("weights-%s", formats[i]);
        struct run_options options = {
            .ranks = 2,
            .conf = "gpt.conf",
            .arguments = {run_dir_argument(formats[i]), "train.max_steps=3",
                          argument("model.weights=%s", in_work("%s", file))}};

        run_program(argument("cddp-convert' --to %s %s/tests/vectors/gpt_init.safetensors %s",
                             formats[i], getenv("CDDP_TEST_SOURCE"), file));
        run_well(&options);
        for (uint64_t step = 1; step <= 3; step++) {
            assert_true(metric(formats[i], step, "loss") == metric("n2", step, "loss"));
        }
    }
}

static void a_checkpoint_knows_its_heads_and_goes_on_in_another_format(void **state)
{
    struct run_options options = {
        .ranks = 1,
        .conf = "gpt.conf",
        .arguments = {run_dir_argument("other"), "train.max_steps=1",
                      argument("model.weights=%s", in_work("trained.bin"))}};
    size_t bytes;
    char *text;

    (void)state;
    run_program("cddp-convert' --to llmc n1 trained.bin");
    text = get_file(in_work("said"), &bytes);
    assert_non_null(strstr(text, "trained.bin: llmc, f32, 30080 parameters: vocabulary 128, "
                                 "context 16, 2 blocks, embed 32, 2 heads\n"));
    free(text);
    run_well(&options);
    /* the first tokens again, after 100 steps */
    assert_true(metric("other", 1, "loss") < 3.0);
}

static void weights_of_another_model_are_refused(void **state)
{
    static const struct {
        const char *key, *text;
    } cases[] = {
        {"model.heads=4", "(model.weights) have 2: leave model.heads out"},
        {"model.blocks=3", "(model.weights) have 2: leave model.blocks out"},
        {"model.vocab=256", "(model.weights) have 128: leave model.vocab out"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct run_options options = {.ranks = 2,
                                      .conf = "gpt.conf",
                                      .arguments = {run_dir_argument("refused"), cases[i].key}};
        struct run run = run_badly(&options);

        assert_says(&run, "err", 0, cases[i].text);
    }
}

int main(void)
{
    /* in this order: some compare with runs of those before */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_follow_pytorch_at_any_number_of_ranks),
        cmocka_unit_test(micro_batches_follow_as_well),
        cmocka_unit_test(weights_of_any_format_begin_the_same_run),
        cmocka_unit_test(a_checkpoint_knows_its_heads_and_goes_on_in_another_format),
        cmocka_unit_test(weights_of_another_model_are_refused),
    };

    return cmocka_run_group_tests(tests, gpt_make_work, remove_work);
}
