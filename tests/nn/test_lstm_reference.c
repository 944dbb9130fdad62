/* test_lstm_reference.c - the language model of PyTorch's examples with nn.LSTM, trained by the
 * real program, follows PyTorch's losses from the same weights on the same tokens, with and without
 * tied embeddings, for any number of ranks and micro-batches. See
 * scripts/make_lstm_reference.py. */
#include "nn/gpt_support.h"

enum { STEPS = 20 };

static const char configuration[] =
    "model = { type = \"lstm_lm\"; hidden = [16, 16]; context = %d; vocab = %d; };\n"
    "data = { type = \"tokens\"; train = \"%s\"; test = \"%s\"; order = \"sequential\"; };\n"
    "train = { epochs = 1; batch_size = %d; eval_batch_size = 4; log_steps = 1; clip_norm = 0.25;"
    " checkpoint_seconds = 0.0; };\n"
    "optimizer = { type = \"adamw\"; lr = 2e-2; };\n";

static int make_lstm_work(void **state)
{
    char text[20000];
    int used;

    (void)state;
    work = support_mkdtemp();
    if (work == NULL) {
        return 1;
    }
    gpt_write_tokens(in_work("train.bin"), STEPS * GPT_BATCH * GPT_CONTEXT + 1);
    gpt_write_tokens(in_work("test.bin"), 4 * GPT_CONTEXT + 1);
    used = snprintf(text, sizeof text, configuration, GPT_CONTEXT, GPT_VOCAB, in_work("train.bin"),
                    in_work("test.bin"), GPT_BATCH);
    support_write_file(in_work("lstm.conf"), text, (size_t)used);
    return 0;
}

static void assert_follows(const char *run, const char *key)
{
    json_t *reference = json_load_file(
        argument("%s/tests/vectors/lstm_reference.json", getenv("CDDP_TEST_SOURCE")), 0, NULL);
    json_t *list = json_object_get(reference, key);

    assert_int_equal(json_array_size(list), STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        double expected = json_real_value(json_array_get(list, i));
        double loss = metric(run, i + 1, "loss");

        if (!(fabs(loss - expected) <= 2e-6 * expected)) {
            fail_msg("%s, step %zu: loss %.7f, PyTorch's is %.7f", run, i + 1, loss, expected);
        }
    }
    json_decref(reference);
}

static void run_from(const char *name, const char *weights, const char *tied, int ranks,
                     int accumulate)
{
    struct run_options options = {.ranks = ranks,
                                  .conf = "lstm.conf",
                                  .arguments = {run_dir_argument(name), tied,
                                                argument("model.weights=%s/tests/vectors/%s",
                                                         getenv("CDDP_TEST_SOURCE"), weights),
                                                argument("train.accumulate=%d", accumulate)}};

    run_well(&options);
}

static void losses_follow_pytorch_at_any_number_of_ranks(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        const char *name = argument("n%d", ranks);

        run_from(name, "lstm_init.safetensors", "model.tied=false", ranks, 1);
        assert_follows(name, "losses");
    }
}

static void a_tied_model_in_micro_batches_follows_as_well(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        const char *name = argument("tied%d", ranks);

        run_from(name, "lstm_tied_init.safetensors", "model.tied=true", ranks, ranks);
        assert_follows(name, "tied_losses");
    }
}

static void a_pipeline_of_two_stages_follows_as_well(void **state)
{
    struct run_options options = {
        .ranks = 2,
        .conf = "lstm.conf",
        .arguments = {run_dir_argument("stages"), "parallel.pipeline=2", "train.accumulate=3",
                      "parallel.stages=rnn_l1",
                      argument("model.weights=%s/tests/vectors/lstm_init.safetensors",
                               getenv("CDDP_TEST_SOURCE"))}};

    (void)state;
    run_well(&options);
    assert_follows("stages", "losses");
}

static void what_cannot_be_built_names_the_key_or_layer(void **state)
{
    static const struct {
        const char *key, *text;
    } cases[] = {
        {"model.tied=true", "lstm_lm: a tied embedding has as many features as the last LSTM layer "
                            "has outputs, but embed is 8 and that layer's hidden is 16"},
        {"model.hidden=[]", "lstm_lm: 0 LSTM layers; 1 to 100 are possible"},
        {"model.heads=2", "argument model.heads=2: model.heads: is used only with model.type = "
                          "\"gpt2\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct run_options options = {
            .ranks = 1,
            .conf = "lstm.conf",
            .arguments = {run_dir_argument("refused"), "model.embed=8", cases[i].key}};
        struct run run = run_badly(&options);

        assert_says(&run, "err", 0, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_follow_pytorch_at_any_number_of_ranks),
        cmocka_unit_test(a_tied_model_in_micro_batches_follows_as_well),
        cmocka_unit_test(a_pipeline_of_two_stages_follows_as_well),
        cmocka_unit_test(what_cannot_be_built_names_the_key_or_layer),
    };

    return cmocka_run_group_tests(tests, make_lstm_work, remove_work);
}
