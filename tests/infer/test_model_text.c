/* test_model_text.c - models of tokens and generators: their numbers are the evaluation's, text is
 * what cddp-train --generate writes, and it arrives in whole characters. */
#include "support/failure.h"
#include "support/gan.h"

#include <cddp/model.h>

#include <pthread.h>

enum { CONTEXT = 15, VOCABULARY = 257, TESTED = 40 * CONTEXT + 1 };

static cddp_model *open_run(const char *run_dir)
{
    cddp_model *model = NULL;

    must(cddp_model_open(in_work("%s", run_dir), NULL, &model));
    return model;
}

static cddp_status forward_tokens(cddp_model *model, const int32_t *tokens, int count, int length,
                                  float *out)
{
    cddp_tensor in = {.type = CDDP_I32, .dims = 2, .shape = {count, length}, .data = tokens};
    cddp_param result = {
        .type = CDDP_F32, .dims = 3, .shape = {count, length, VOCABULARY}, .data = out};

    return cddp_model_forward(model, &in, 1, &result, 1);
}

/* The mean loss over the first TESTED bytes of words.txt, as the evaluation counts them. */
static double loss_of(cddp_model *model)
{
    enum { COUNT = TESTED / CONTEXT };
    char *text = get_file(in_work("words.txt"), NULL);
    int32_t tokens[COUNT * CONTEXT];
    float *logits = malloc(sizeof *logits * COUNT * CONTEXT * VOCABULARY);
    double loss = 0;

    for (int i = 0; i < COUNT * CONTEXT; i++) {
        tokens[i] = (unsigned char)text[i];
    }
    must(forward_tokens(model, tokens, COUNT, CONTEXT, logits));
    for (int i = 0; i < COUNT * CONTEXT; i++) {
        const float *row = logits + (size_t)i * VOCABULARY;
        double sum = 0;

        for (int c = 0; c < VOCABULARY; c++) {
            sum += exp(row[c]);
        }
        loss += (log(sum) - row[(unsigned char)text[i + 1]]) / (COUNT * CONTEXT);
    }
    free(logits);
    free(text);
    return loss;
}

static void tokens_give_the_evaluations_loss(void **state)
{
    char *text = get_file(in_work("words.txt"), NULL);
    const char *models[] = {"gpt2", "lstm_lm"};

    (void)state;
    support_write_file(in_work("tested.txt"), text, TESTED);
    free(text);
    for (size_t i = 0; i < 2; i++) {
        struct run_options options = {.ranks = 1,
                                      .conf = "text.conf",
                                      .arguments = {run_dir_argument(models[i]),
                                                    argument("data.test=%s", in_work("tested.txt")),
                                                    argument("model.type=%s", models[i]),
                                                    "model.dropout=0.1",
                                                    i == 1 ? "model.hidden=[24]" : NULL}};
        cddp_model *model;
        double expected;

        run_well(&options);
        expected = metric(models[i], 25, "eval_loss");
        model = open_run(models[i]);
        assert_true(expected > 0);
        assert_true(fabs(loss_of(model) - expected) < 1e-5 * expected);
        cddp_model_close(model);
    }
}

static void a_shorter_sequence_gives_the_beginning_of_a_longer_one(void **state)
{
    enum { SHORT = 6, COUNT = 9 };
    cddp_model *model = open_run("gpt2");
    int32_t longer[COUNT * CONTEXT], shorter[COUNT * SHORT];
    float *a = malloc(sizeof *a * COUNT * CONTEXT * VOCABULARY);
    float *b = malloc(sizeof *b * COUNT * SHORT * VOCABULARY);

    (void)state;
    for (int i = 0; i < COUNT * CONTEXT; i++) {
        longer[i] = 'a' + i * 7 % 16;
    }
    for (int i = 0; i < COUNT * SHORT; i++) {
        shorter[i] = longer[i / SHORT * CONTEXT + i % SHORT];
    }
    must(forward_tokens(model, longer, COUNT, CONTEXT, a));
    must(forward_tokens(model, shorter, COUNT, SHORT, b));
    for (int i = 0; i < COUNT * SHORT * VOCABULARY; i++) {
        int row = i / VOCABULARY;

        assert_float_equal(
            b[i], a[(row / SHORT * CONTEXT + row % SHORT) * VOCABULARY + i % VOCABULARY], 1e-4);
    }
    free(a);
    free(b);
    cddp_model_close(model);
}

/* What a text has become. */
struct text {
    char all[4096];
    size_t bytes;
    int pieces, most;  /* most: ends the text behind so many pieces; 0: never */
    const char *words; /* why it ends; NULL: no words */
};

static cddp_status add_piece(void *state, const char *piece, size_t bytes)
{
    struct text *text = state;

    assert_int_equal(strlen(piece), bytes);
    memcpy(text->all + text->bytes, piece, bytes + 1);
    text->bytes += bytes;
    text->pieces++;
    if (text->most == 0 || text->pieces < text->most) {
        return CDDP_OK;
    }
    return text->words != NULL ? cddp_fail(CDDP_ERR_IO, text->words) : CDDP_ERR_CLOSED;
}

/* What cddp-train --generate prints, without the prompt and the newline; release with free(). */
static char *printed(const char *run_dir, const char *prompt, const char *more)
{
    char *text;

    assert_int_equal(system(argument("%s/src/cddp-train --generate '%s' %s %s %s > %s",
                                     getenv("CDDP_TEST_BUILD"), prompt, in_work("text.conf"),
                                     run_dir_argument(run_dir), more, in_work("said"))),
                     0);
    text = get_file(in_work("said"), NULL);
    assert_memory_equal(text, prompt, strlen(prompt));
    memmove(text, text + strlen(prompt), strlen(text + strlen(prompt)) + 1);
    text[strlen(text) - 1] = '\0';
    return text;
}

static void text_is_what_cddp_train_generates(void **state)
{
    cddp_generate_options options = CDDP_GENERATE_OPTIONS_INIT;
    cddp_model *model = open_run("gpt2");
    struct text text = {.bytes = 0};
    char *expected = printed("gpt2", "abcd ", "train.generate_temperature=0");

    (void)state;
    must(cddp_model_generate(model, "abcd ", NULL, add_piece, &text));
    assert_string_equal(text.all, expected);
    assert_int_equal(text.bytes, 20); /* train.generate_tokens */
    free(expected);
    options.temperature = 1.5;
    options.top_k = 40;
    options.seed = 9;
    options.max_tokens = 60;
    expected = printed("gpt2", "efgh",
                       "train.generate_temperature=1.5 train.generate_top_k=40 train.seed=9 "
                       "train.generate_tokens=60");
    text = (struct text){.bytes = 0};
    must(cddp_model_generate(model, "efgh", &options, add_piece, &text));
    assert_string_equal(text.all, expected);
    free(expected);
    options.max_tokens = 3;
    text = (struct text){.bytes = 0};
    must(cddp_model_generate(model, "", &options, add_piece, &text));
    assert_int_equal(text.pieces, 3);
    cddp_model_close(model);
}

/* A model that has hardly learned writes bytes that are no UTF-8. */
static void characters_arrive_whole_and_other_bytes_as_a_mark(void **state)
{
    struct run_options run = {
        .ranks = 1,
        .conf = "text.conf",
        .arguments = {run_dir_argument("random"), "train.max_steps=1", "optimizer.lr=0.0"}};
    cddp_generate_options options = CDDP_GENERATE_OPTIONS_INIT;
    struct text text = {.bytes = 0};
    cddp_model *model;
    char *expected;

    (void)state;
    run_well(&run);
    model = open_run("random");
    options.temperature = 3;
    options.seed = 4;
    options.max_tokens = 400;
    must(cddp_model_generate(model, "x", &options, add_piece, &text));
    expected = printed("random", "x",
                       "train.generate_temperature=3 train.seed=4 train.generate_tokens=400");
    assert_non_null(strstr(expected, "\xEF\xBF\xBD"));
    assert_string_equal(text.all, expected);
    free(expected);
    cddp_model_close(model);
}

static void a_callback_ends_the_text_with_its_status(void **state)
{
    cddp_model *model = open_run("gpt2");
    struct text text = {.most = 2};
    cddp_failure failure = CDDP_FAILURE_INIT;

    (void)state;
    assert_int_equal(cddp_model_inputs(NULL), 0); /* an older failure, which is not the text's */
    assert_int_equal(cddp_model_generate(model, "abcd ", NULL, add_piece, &text), CDDP_ERR_CLOSED);
    assert_int_equal(text.pieces, 2);
    assert_int_equal(cddp_last_failure(&failure), CDDP_OK);
    assert_int_equal(failure.status, CDDP_ERR_CLOSED);
    assert_string_equal(failure.text, "model_generate: the function that receives the text: the "
                                      "object was closed or destroyed");
    text = (struct text){.most = 1, .words = "the reader has gone"};
    assert_int_equal(cddp_model_generate(model, "abcd ", NULL, add_piece, &text), CDDP_ERR_IO);
    assert_int_equal(text.pieces, 1);
    assert_true(last_error_has("the reader has gone"));
    text = (struct text){.most = 0};
    must(cddp_model_generate(model, "abcd ", NULL, add_piece, &text));
    assert_int_equal(text.pieces, 20);
    cddp_model_close(model);
}

static void *use_it(void *of_model)
{
    int32_t token = 'a';
    float logits[VOCABULARY];
    cddp_status *status = malloc(sizeof *status);

    *status = forward_tokens(of_model, &token, 1, 1, logits);
    return status;
}

/* Use the model from another thread, and from within its own call. */
static cddp_status use_it_twice(void *of_model, const char *piece, size_t bytes)
{
    pthread_t thread;
    void *other = NULL;
    cddp_status *own = use_it(of_model);
    const char *said = cddp_last_error();

    (void)piece;
    (void)bytes;
    assert_int_equal(*own, CDDP_ERR_STATE);
    assert_non_null(strstr(said, "called by a function that this model has called"));
    cddp_model_close(of_model); /* does nothing but warn */
    assert_int_equal(pthread_create(&thread, NULL, use_it, of_model), 0);
    assert_int_equal(pthread_join(thread, &other), 0);
    assert_int_equal(*(cddp_status *)other, CDDP_ERR_BUSY);
    free(own);
    free(other);
    return CDDP_OK;
}

static void one_call_at_a_time_uses_a_model(void **state)
{
    cddp_generate_options options = CDDP_GENERATE_OPTIONS_INIT;
    cddp_model *model = open_run("gpt2");

    (void)state;
    options.max_tokens = 1;
    must(cddp_model_generate(model, "abcd ", &options, use_it_twice, model));
    cddp_model_close(model);
    assert_int_equal(cddp_model_generate(model, "x", NULL, add_piece, NULL), CDDP_ERR_CLOSED);
    assert_int_equal(cddp_model_inputs(model), 0);
}

/* A thread's own model: what it says of the same text. */
static void *ask(void *of_run)
{
    double *loss = malloc(sizeof *loss);
    cddp_model *model = open_run(of_run);

    *loss = 0;
    for (int i = 0; i < 3; i++) {
        *loss += loss_of(model);
    }
    cddp_model_close(model);
    return loss;
}

static void models_of_several_threads_do_not_disturb_each_other(void **state)
{
    enum { THREADS = 4 };
    static char *runs[] = {"gpt2", "lstm_lm"};
    double *alone[] = {ask(runs[0]), ask(runs[1])};
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask, runs[i % 2]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *loss = NULL;

        assert_int_equal(pthread_join(threads[i], &loss), 0);
        assert_float_equal(*(double *)loss, *alone[i % 2], 0);
        free(loss);
    }
    free(alone[0]);
    free(alone[1]);
}

static void a_generator_makes_images_of_latent_vectors(void **state)
{
    enum { COUNT = 5 };
    struct run_options options = {.ranks = 1,
                                  .conf = "gan.conf",
                                  .arguments = {run_dir_argument("gan"), "train.max_steps=2"}};
    cddp_model_value in = CDDP_MODEL_VALUE_INIT;
    cddp_model_value out = CDDP_MODEL_VALUE_INIT;
    cddp_model_options other = CDDP_MODEL_OPTIONS_INIT;
    cddp_model *model;
    float *latent, *images;
    bool differ = false;

    (void)state;
    remove_work(state);
    assert_int_equal(make_gan_work(state), 0);
    options.arguments[0] = run_dir_argument("gan");
    options.arguments[1] = "train.max_steps=2";
    run_well(&options);
    model = open_run("gan");
    must(cddp_model_get_input(model, 0, &in));
    must(cddp_model_get_output(model, 0, &out));
    assert_string_equal(in.name, "latent");
    assert_string_equal(out.name, "images");
    assert_int_equal(out.shape[1], 1);
    assert_int_equal(out.shape[2], GAN_SIDE);
    assert_int_equal(out.shape[3], GAN_SIDE);
    latent = calloc((size_t)(COUNT * in.shape[1]), sizeof *latent);
    images = calloc(COUNT * GAN_SIDE * GAN_SIDE, sizeof *images);
    for (int i = 0; i < COUNT * in.shape[1]; i++) {
        latent[i] = (float)sin(i * 12.9898);
    }
    must(cddp_model_forward(
        model,
        &(cddp_tensor){.type = CDDP_F32, .dims = 2, .shape = {COUNT, in.shape[1]}, .data = latent},
        1,
        &(cddp_param){
            .type = CDDP_F32, .dims = 4, .shape = {COUNT, 1, GAN_SIDE, GAN_SIDE}, .data = images},
        1));
    for (int i = 0; i < COUNT * GAN_SIDE * GAN_SIDE; i++) {
        assert_true(images[i] > -1 && images[i] < 1 && images[i] != 0);
        differ = differ || images[i] != images[i % (GAN_SIDE * GAN_SIDE)];
    }
    assert_true(differ);
    free(latent);
    free(images);
    cddp_model_close(model);
    other.normalised = true;
    assert_true(
        failure_is(cddp_model_open(in_work("gan"), &other, &model), CDDP_ERR_ARGUMENT, -1, -1, ""));
    assert_true(last_error_has("latent vectors"));
    other.normalised = false;
    other.config_text = "model = { generator_units = 8; };";
    assert_true(
        failure_is(cddp_model_open(in_work("gan"), &other, &model), CDDP_ERR_FORMAT, -1, -1, ""));
    assert_true(last_error_has("model.safetensors: tensor \"generator."));
    assert_true(last_error_has("] is wanted"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_give_the_evaluations_loss),
        cmocka_unit_test(a_shorter_sequence_gives_the_beginning_of_a_longer_one),
        cmocka_unit_test(text_is_what_cddp_train_generates),
        cmocka_unit_test(characters_arrive_whole_and_other_bytes_as_a_mark),
        cmocka_unit_test(a_callback_ends_the_text_with_its_status),
        cmocka_unit_test(one_call_at_a_time_uses_a_model),
        cmocka_unit_test(models_of_several_threads_do_not_disturb_each_other),
        cmocka_unit_test(a_generator_makes_images_of_latent_vectors),
    };

    return cmocka_run_group_tests(tests, make_text_work, remove_work);
}
