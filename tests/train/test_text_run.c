/* test_text_run.c - language models from end to end with the real program: what their runs record,
 * the same for any number of ranks and micro-batches, and the texts that they generate. */
#include "nn/model.h"
#include "support/tokens.h"
#include "support/train.h"

static struct run run_text(int ranks, const char *run_dir, const char *a, const char *b,
                           const char *c)
{
    struct run_options options = {
        .ranks = ranks, .conf = "text.conf", .arguments = {run_dir_argument(run_dir), a, b, c}};

    return run_well(&options);
}

/* What cddp-train says, standard output and error, when it is run with @p words. */
static char *says(const char *words, int *out_status)
{
    int status = system(argument("%s/src/cddp-train %s > %s 2>&1", getenv("CDDP_TEST_BUILD"), words,
                                 in_work("said")));

    *out_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return get_file(in_work("said"), NULL);
}

static void assert_generate_says(const char *words, int status, const char *expected)
{
    int ended = -1;
    char *text = says(words, &ended);

    if (strstr(text, expected) == NULL || ended != status) {
        fail_msg("%s: status %d, and not '%s' but: %s", words, ended, expected, text);
    }
    free(text);
}

static void a_run_on_text_learns_and_records_tokens_and_perplexity(void **state)
{
    struct run run = run_text(2, "learns", "train.epochs=2", "train.eval_steps=20", NULL);
    double loss = metric("learns", 20, "eval_loss");
    double tokens = 0;

    (void)state;
    /* 12000 bytes and 256: a tenth of them is held back, in windows of 15 */
    assert_true(metric("learns", 1, "loss") > 5.0); /* log(257) = 5.55 */
    assert_true(metric("learns", 40, "loss") < 1.2);
    assert_float_equal(metric("learns", 20, "eval_perplexity"), exp(loss), 1e-6 * exp(loss));
    tokens = metric("learns", 20, "eval_tokens");
    assert_true(tokens > 1100 && tokens <= 1200);
    assert_float_equal(metric("learns", 20, "eval_samples") * 15, tokens, 0);
    assert_float_equal(metric("learns", 20, "tokens_per_s"),
                       15 * metric("learns", 20, "samples_per_s"),
                       0.01 * metric("learns", 20, "tokens_per_s"));
    assert_says(&run, "err", 0, "val loss ");
    assert_says(&run, "err", 0, "  perplexity ");
    assert_says(&run, "err", 0, " tokens/s");
    assert_says(&run, "out", 0, "validation loss ");
    assert_says(&run, "out", 0, ", perplexity ");
}

static void ranks_and_micro_batches_do_not_change_a_run_on_text(void **state)
{
    static const int cases[][2] = {{1, 1}, {1, 3}, {2, 1}, {2, 4}, {3, 1}, {3, 2}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *name = argument("t%d-%d", cases[i][0], cases[i][1]);

        run_text(cases[i][0], name, argument("train.accumulate=%d", cases[i][1]),
                 "model.dropout=0.1", "train.clip_norm=0.5");
        for (uint64_t step = 1; step <= 23; step++) { /* the last one has 15 samples, not 32 */
            double expected = metric("t1-1", step, "loss");

            assert_true(expected > 0);
            assert_true(fabs(metric(name, step, "loss") - expected) <= 2e-5 * expected);
        }
        assert_float_equal(metric(name, 23, "eval_loss"), metric("t1-1", 23, "eval_loss"), 1e-4);
    }
}

static void a_run_on_text_goes_on_bit_by_bit(void **state)
{
    (void)state;
    run_text(2, "whole", "model.dropout=0.1", "train.accumulate=2", NULL);
    run_text(2, "parts", "model.dropout=0.1", "train.accumulate=2", "train.max_steps=9");
    run_text(2, "parts", "model.dropout=0.1", "train.accumulate=2", "train.resume=auto");
    assert_same_checkpoint("whole", "parts", 23);
}

static void a_run_writes_the_same_texts_each_time(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct run run = run_text(2, argument("texts%d", i), "train.generate_steps=10",
                                  "train.generate_prompt=abcd ", NULL);

        assert_says(&run, "err", 0, "step 10: a text of 20 tokens\n  | abcd ");
        assert_says(&run, "err", 0, "step 23: a text of 20 tokens\n  | abcd ");
    }
    for (int step = 1; step <= 23; step++) {
        char *a = written("texts0", step);
        char *b = written("texts1", step);

        assert_int_equal(a != NULL, step == 10 || step == 20 || step == 23);
        assert_int_equal(b != NULL, a != NULL);
        if (a != NULL) {
            assert_string_equal(a, b);
        }
        free(a);
        free(b);
    }
}

static void writing_texts_does_not_change_the_run(void **state)
{
    (void)state;
    run_text(2, "silent", "model.dropout=0.1", NULL, NULL);
    run_text(2, "talks", "model.dropout=0.1", "train.generate_steps=1", NULL);
    assert_same_checkpoint("silent", "talks", 23);
    assert_null(written("silent", 23));
}

static void a_checkpoint_writes_what_its_run_wrote(void **state)
{
    char *text;
    char *last;
    int status = -1;

    (void)state;
    run_text(2, "spoken", "train.epochs=2", "train.generate_steps=1000",
             "train.generate_prompt=efgh ");
    last = written("spoken", 46);
    assert_non_null(last);
    text = says(
        argument("--generate 'efgh ' %s %s", in_work("text.conf"), run_dir_argument("spoken")),
        &status);
    if (status != 0) {
        fail_msg("status %d: %s", status, text);
    }
    assert_string_equal(text, argument("efgh %s\n", last));
    free(text);
    free(last);
    /* likely ones only: then the letters of a word follow each other */
    text = says(argument("--generate 'efgh i' %s %s train.generate_temperature=0"
                         " train.generate_tokens=3",
                         in_work("text.conf"), run_dir_argument("spoken")),
                &status);
    assert_string_equal(text, "efgh ijkl\n");
    free(text);
    text = says(argument("--generate 'mn' %s train.resume=%s train.generate_top_k=1"
                         " train.generate_tokens=2 train.seed=2",
                         in_work("text.conf"), in_work("spoken/checkpoints/step-00000046")),
                &status);
    assert_string_equal(text, "mnop\n");
    free(text);
}

/* Each piece of a text is written when it is there, so a full disk ends the text. */
static void a_text_that_cannot_be_printed_is_an_error(void **state)
{
    const char *said = in_work("full");
    char *text;
    int status = -1;

    (void)state;
    free(says(argument("--generate 'efgh i' %s %s > /dev/full 2> %s; exit $?; :",
                       in_work("text.conf"), run_dir_argument("spoken"), said),
              &status));
    assert_int_equal(status, 1);
    text = get_file(said, NULL);
    assert_non_null(strstr(text, "cddp-train: generate: the text: No space left on device\n"));
    free(text);
}

/* A checkpoint whose model is whole writes, and no other does. */
static void only_the_model_of_a_checkpoint_must_be_whole_to_write(void **state)
{
    const char *checkpoint = argument("%s", in_work("spoken/checkpoints/step-00000046"));
    const char *greedy = "train.generate_temperature=0 train.generate_tokens=3";
    const char *optimizer = argument("%s/optimizer.safetensors", checkpoint);
    const char *model = argument("%s/model.safetensors", checkpoint);
    char *text;
    int status = -1;

    (void)state;
    support_change_byte(optimizer, -1);
    for (int named = 0; named < 2; named++) {
        text = says(argument("--generate 'efgh i' %s %s %s %s", in_work("text.conf"),
                             run_dir_argument("spoken"), greedy,
                             named ? argument("train.resume=%s", in_work("spoken")) : ""),
                    &status);
        assert_string_equal(text, "efgh ijkl\n"); /* and nothing is passed over */
        free(text);
    }
    support_change_byte(optimizer, -1);
    support_change_byte(model, -1);
    assert_generate_says(
        argument("--generate x %s train.resume=%s", in_work("text.conf"), checkpoint), 1,
        argument("train.resume: %s: ", model));
    support_change_byte(model, -1);
}

/* The keys that a run was started with, in the folder of "spoken", which has learnt the same. */
static void however_a_run_is_divided_its_checkpoint_writes_the_same_text(void **state)
{
    static const char *const ways[] = {
        "parallel.pipeline=2",
        "parallel.type=model_parallel 'train.devices=[\"cpu:0\",\"cpu\"]'",
        "parallel.type=data_parallel 'parallel.devices=[\"cpu:0\",\"cpu\"]'",
    };

    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        assert_generate_says(argument("--generate 'efgh i' %s %s train.generate_temperature=0"
                                      " train.generate_tokens=3 %s",
                                      in_work("text.conf"), run_dir_argument("spoken"), ways[i]),
                             0, "efgh ijkl\n");
    }
}

static void without_a_vocabulary_texts_of_tokens_are_numbers(void **state)
{
    const char *data = argument("data.train=%s", in_work("tokens.bin"));
    const char *test = argument("data.test=%s", in_work("tokens.bin"));
    struct run_options options = {.ranks = 2,
                                  .conf = "text.conf",
                                  .arguments = {run_dir_argument("numbers"), "data.type=tokens",
                                                data, test, "train.generate_steps=1",
                                                "train.generate_prompt=7 8", "train.max_steps=2",
                                                "train.generate_tokens=3"}};
    struct run run;
    char *text;
    int numbers[3];

    (void)state;
    support_write_shard(in_work("tokens.bin"), 1, 2000, 2);
    run_well(&options);
    text = written("numbers", 2);
    assert_non_null(text);
    assert_int_equal(sscanf(text, "%d %d %d", &numbers[0], &numbers[1], &numbers[2]), 3);
    free(text);
    options.arguments[5] = "train.generate_prompt=seven";
    run = run_badly(&options);
    assert_int_equal(WEXITSTATUS(run.statuses[0]), 2);
    assert_says(&run, "err", 0, "argument train.generate_prompt=seven: train.generate_prompt: ");
}

static void matrices_decay_embeddings_too_and_nothing_else_does(void **state)
{
    const struct cddpi_model_spec specs[] = {
        {.preset = "gpt2",
         .blocks = 1,
         .heads = 2,
         .embed = 8,
         .context = 4,
         .vocab = 11,
         .classes = 11},
        {.preset = "resnet20", .channels = 1, .height = 8, .width = 8, .classes = 4},
        {.preset = "mlp", .channels = 1, .height = 8, .width = 8, .classes = 4},
    };

    (void)state;
    for (size_t m = 0; m < sizeof specs / sizeof specs[0]; m++) {
        struct cddpi_model *model = NULL;
        const cddp_param *params;
        size_t count = 0;
        int decaying = 0;

        assert_int_equal(cddpi_model_create(&specs[m], 1, NULL, &model), CDDP_OK);
        params = cddpi_model_params(model, &count);
        for (size_t i = 0; i < count; i++) {
            /* biases and what norms have: one dimension */
            assert_int_equal(cddpi_model_param_decays(model, i), params[i].dims >= 2);
            decaying += params[i].dims >= 2;
        }
        assert_true(decaying > 0 && decaying < (int)count);
        if (m == 0) {
            assert_string_equal(params[0].name, "wte.weight");
            assert_string_equal(params[1].name, "wpe.weight");
            assert_int_equal(decaying, 6); /* the two, and four of the block */
        }
        cddpi_model_destroy(model);
    }
}

static void what_cannot_be_generated_is_told(void **state)
{
    (void)state;
    assert_generate_says(
        argument("--generate x %s %s", in_work("text.conf"), run_dir_argument("nothing")), 1,
        "nothing/checkpoints has no checkpoint, and model.weights names no file: "
        "there is no model to use");
    assert_generate_says(argument("--generate x %s", in_work("small.conf")), 2,
                         "data.type (its default): only language models write text, but the data "
                         "are images");
    assert_generate_says(argument("--generate x %s %s train.generate_top_k=258",
                                  in_work("text.conf"), run_dir_argument("spoken")),
                         2, "train.generate_top_k: 258, but the vocabulary has only 257 tokens");
    assert_generate_says(argument("%s train.generate_steps=5", in_work("small.conf")), 2,
                         "argument train.generate_steps=5: train.generate_steps: ");
    assert_generate_says(argument("%s %s train.generate_steps=5 train.generate_top_k=1000",
                                  in_work("text.conf"), run_dir_argument("nothing")),
                         2, "train.generate_top_k: 1000, but the vocabulary has only 257 tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_on_text_learns_and_records_tokens_and_perplexity),
        cmocka_unit_test(ranks_and_micro_batches_do_not_change_a_run_on_text),
        cmocka_unit_test(a_run_on_text_goes_on_bit_by_bit),
        cmocka_unit_test(a_run_writes_the_same_texts_each_time),
        cmocka_unit_test(writing_texts_does_not_change_the_run),
        cmocka_unit_test(a_checkpoint_writes_what_its_run_wrote),
        cmocka_unit_test(a_text_that_cannot_be_printed_is_an_error),
        cmocka_unit_test(only_the_model_of_a_checkpoint_must_be_whole_to_write),
        cmocka_unit_test(however_a_run_is_divided_its_checkpoint_writes_the_same_text),
        cmocka_unit_test(without_a_vocabulary_texts_of_tokens_are_numbers),
        cmocka_unit_test(matrices_decay_embeddings_too_and_nothing_else_does),
        cmocka_unit_test(what_cannot_be_generated_is_told),
    };

    return cmocka_run_group_tests(tests, make_text_work, remove_work);
}
