/* test_generate.c - text that a model generates: which token is drawn, what the model sees, and how
 * tokens become text. Models of a few lines replace real ones, which have their own test below. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/utf8.h"
#include "support/failure.h"
#include "support/test.h"
#include "train/generate/generate.h"

#include <math.h>

enum { MANY = 20000 };

/* How often each of @p count tokens is drawn, of MANY. */
static void count_draws(const struct cddpi_token_sampling *choice, const float *logits, int count,
                        int *out_counts)
{
    struct cddpi_token_candidate scratch[16];

    memset(out_counts, 0, (size_t)count * sizeof *out_counts);
    for (uint32_t i = 0; i < MANY; i++) {
        int32_t token = cddpi_sample_token(choice, i, logits, count, scratch);

        assert_in_range(token, 0, count - 1);
        out_counts[token]++;
    }
}

static void tokens_are_drawn_as_often_as_their_softmax_says(void **state)
{
    const float logits[5] = {1.0f, -0.5f, 2.0f, 0.0f, -INFINITY};
    static const double temperatures[] = {0.5, 1.0, 2.0};
    int counts[5];

    (void)state;
    for (int t = 0; t < 3; t++) {
        struct cddpi_token_sampling choice = {temperatures[t], 0, 1, 7};
        double total = 0;

        count_draws(&choice, logits, 5, counts);
        for (int i = 0; i < 5; i++) {
            total += exp((double)logits[i] / temperatures[t]);
        }
        for (int i = 0; i < 5; i++) {
            double expected = exp((double)logits[i] / temperatures[t]) / total;
            double deviation = sqrt(expected * (1 - expected) / MANY);

            assert_true(fabs((double)counts[i] / MANY - expected) <= 4 * deviation);
        }
    }
}

static void only_the_likeliest_tokens_are_drawn_if_so_wanted(void **state)
{
    const float logits[6] = {1.0f, 3.0f, 2.0f, 3.0f, 2.0f, 0.0f};
    struct cddpi_token_sampling choice = {1.0, 3, 1, 7};
    int counts[6];

    (void)state;
    count_draws(&choice, logits, 6, counts);
    assert_true(counts[1] > MANY / 4 && counts[3] > MANY / 4 && counts[2] > MANY / 16);
    assert_int_equal(counts[1] + counts[2] + counts[3], MANY); /* of equals the first */
    choice.top_k = 1;
    count_draws(&choice, logits, 6, counts);
    assert_int_equal(counts[1], MANY);
    choice.top_k = 6;
    count_draws(&choice, logits, 6, counts);
    assert_true(counts[5] > 0);
}

static void without_a_temperature_the_likeliest_token_is_taken(void **state)
{
    const float logits[4] = {1.0f, 3.0f, 3.0f, 2.0f};
    const float odd[4] = {NAN, -INFINITY, 0.5f, NAN};
    const float worst[2] = {NAN, NAN};
    struct cddpi_token_candidate scratch[4];
    struct cddpi_token_sampling choice = {0.0, 0, 1, 7};

    (void)state;
    assert_int_equal(cddpi_sample_token(&choice, 0, logits, 4, scratch), 1);
    assert_int_equal(cddpi_sample_token(&choice, 0, odd, 4, scratch), 2);
    assert_int_equal(cddpi_sample_token(&choice, 0, worst, 2, scratch), 0);
    choice.temperature = 1e-300; /* nearly the same, and nothing overflows */
    assert_int_equal(cddpi_sample_token(&choice, 0, odd, 4, scratch), 2);
    choice.temperature = 1.0;
    choice.top_k = 2;
    assert_int_equal(cddpi_sample_token(&choice, 0, odd, 4, scratch), 2);
    assert_int_equal(cddpi_sample_token(&choice, 0, worst, 2, scratch), 0);
}

static void seed_step_and_position_decide_and_nothing_else(void **state)
{
    const float logits[16] = {0};
    struct cddpi_token_candidate scratch[16];
    struct cddpi_token_sampling choices[3] = {{1.0, 0, 1, 7}, {1.0, 0, 2, 7}, {1.0, 0, 1, 8}};
    int differences[3] = {0, 0, 0};

    (void)state;
    for (uint32_t position = 0; position < 100; position++) {
        int32_t token = cddpi_sample_token(&choices[0], position, logits, 16, scratch);

        assert_int_equal(cddpi_sample_token(&choices[0], position, logits, 16, scratch), token);
        for (int i = 1; i < 3; i++) {
            differences[i] += cddpi_sample_token(&choices[i], position, logits, 16, scratch) !=
                              token;
        }
        differences[0] += cddpi_sample_token(&choices[0], position + 1, logits, 16, scratch) !=
                          token;
    }
    for (int i = 0; i < 3; i++) {
        assert_true(differences[i] > 80);
    }
}

/* A model that is certain: after the token t comes t + 1, and it remembers what it saw. */
struct counting {
    int vocabulary;
    int32_t window[8];
    int last;
    int calls;
    int fails_at; /* the call; 0: never */
    float logits[300];
};

static cddp_status count_on(void *context, const int32_t *tokens, int last, const float **out)
{
    struct counting *model = context;

    memcpy(model->window, tokens, sizeof model->window);
    model->last = last;
    model->calls++;
    if (model->calls == model->fails_at) {
        return cddpi_fail(CDDP_ERR_STATE, "the model is out of order");
    }
    for (int i = 0; i < model->vocabulary; i++) {
        model->logits[i] = i == tokens[last] + 1 ? 30.0f : -30.0f;
    }
    *out = model->logits;
    return CDDP_OK;
}

static struct cddpi_generator generator_of(struct counting *model, int count)
{
    return (struct cddpi_generator){.logits = count_on,
                                    .model = model,
                                    .context = 8,
                                    .vocabulary = model->vocabulary,
                                    .sampling = {.temperature = 1.0, .seed = 3},
                                    .count = count};
}

static void without_a_tokenizer_texts_are_numbers(void **state)
{
    struct counting model = {.vocabulary = 100};
    struct cddpi_generator generator = generator_of(&model, 4);
    struct cddpi_generated generated = {0};

    (void)state;
    assert_int_equal(cddpi_generate(&generator, " 7 20,\t30\n", &generated), CDDP_OK);
    assert_string_equal(generated.text, "31 32 33 34");
    assert_string_equal(generated.prompt, " 7 20,\t30\n");
    assert_int_equal(generated.count, 4);
    assert_false(generated.late);
    assert_int_equal(model.last, 5);
    assert_int_equal(model.window[0], 7);
    cddpi_generated_fini(&generated);
    assert_int_equal(cddpi_generate(&generator, "", &generated), CDDP_OK);
    assert_string_equal(generated.text, "1 2 3 4");
    cddpi_generated_fini(&generated);
    assert_true(
        failure_is(cddpi_generate(&generator, "7 seven", &generated), CDDP_ERR_CONFIG, -1, -1, ""));
    assert_string_equal(cddp_last_error(),
                        "the prompt has \"seven\", which is not the number of a token; to write "
                        "words, say with data.vocabulary how they are encoded");
    assert_true(
        failure_is(cddpi_generate(&generator, "7 100", &generated), CDDP_ERR_CONFIG, -1, -1, ""));
    assert_string_equal(
        cddp_last_error(),
        "the prompt has the token 100, but the model's vocabulary has only 100 tokens");
}

static cddp_status add_bytes(void *state, const char *bytes, size_t count)
{
    char *text = state;

    strncat(text, bytes, count);
    return CDDP_OK;
}

static void who_gets_each_token_gets_no_second_text(void **state)
{
    struct counting model = {.vocabulary = 100};
    struct cddpi_generator generator = generator_of(&model, 4);
    struct cddpi_generated generated = {0};
    char text[64] = "";

    (void)state;
    generator.on_token = add_bytes;
    generator.state = text;
    assert_int_equal(cddpi_generate(&generator, "7", &generated), CDDP_OK);
    assert_string_equal(text, "8 9 10 11");
    assert_int_equal(generated.count, 4);
    assert_null(generated.text);
    assert_null(generated.prompt);
}

static void the_model_sees_the_last_tokens_of_a_long_text(void **state)
{
    struct counting model = {.vocabulary = 100};
    struct cddpi_generator generator = generator_of(&model, 3);
    struct cddpi_generated generated = {0};
    const int32_t expected[8] = {15, 16, 17, 18, 19, 20, 21, 22};

    (void)state;
    assert_int_equal(cddpi_generate(&generator, "11 12 13 14 15 16 17 18 19 20", &generated),
                     CDDP_OK);
    assert_string_equal(generated.text, "21 22 23");
    assert_int_equal(model.last, 7);
    assert_memory_equal(model.window, expected, sizeof expected);
    cddpi_generated_fini(&generated);
}

static void a_tokenizer_makes_words_of_tokens_and_its_end_ends_the_text(void **state)
{
    struct counting model = {.vocabulary = 257};
    struct cddpi_generator generator = generator_of(&model, 100);
    struct cddpi_tokenizer *tokenizer = NULL;
    struct cddpi_generated generated = {0};

    (void)state;
    assert_int_equal(cddpi_tokenizer_open("", &tokenizer), CDDP_OK);
    generator.tokenizer = tokenizer;
    generator.count = 5;
    assert_int_equal(cddpi_generate(&generator, "a", &generated), CDDP_OK);
    assert_string_equal(generated.text, "bcdef");
    cddpi_generated_fini(&generated);
    generator.count = 100;
    assert_int_equal(cddpi_generate(&generator, "\xFD", &generated), CDDP_OK);
    assert_string_equal(generated.prompt, "\xEF\xBF\xBD");
    assert_string_equal(generated.text, "\xEF\xBF\xBD\xEF\xBF\xBD"); /* FE, FF, end of text */
    assert_int_equal(generated.count, 2);
    cddpi_generated_fini(&generated);
    cddpi_tokenizer_close(tokenizer);
}

static void outputs_beyond_the_tokenizers_tokens_are_never_drawn(void **state)
{
    struct counting model = {.vocabulary = 300}; /* certain of 257 after the end of text */
    struct cddpi_generator generator = generator_of(&model, 20);
    struct cddpi_tokenizer *tokenizer = NULL;
    struct cddpi_generated generated = {0};

    (void)state;
    assert_int_equal(cddpi_tokenizer_open("", &tokenizer), CDDP_OK);
    generator.tokenizer = tokenizer;
    assert_int_equal(cddpi_generate(&generator, "", &generated), CDDP_OK);
    assert_true(generated.count > 0);
    cddpi_generated_fini(&generated);
    cddpi_tokenizer_close(tokenizer);
}

static void a_deadline_cuts_the_text(void **state)
{
    struct counting model = {.vocabulary = 100};
    struct cddpi_generator generator = generator_of(&model, 4);
    struct cddpi_generated generated = {0};

    (void)state;
    generator.deadline_ns = cddpi_now_ns();
    assert_int_equal(cddpi_generate(&generator, "1", &generated), CDDP_OK);
    assert_true(generated.late);
    assert_int_equal(generated.count, 0);
    assert_string_equal(generated.text, "");
    cddpi_generated_fini(&generated);
}

static void a_failure_of_the_model_or_of_memory_leaves_nothing(void **state)
{
    struct counting model = {.vocabulary = 100, .fails_at = 3};
    struct cddpi_generator generator = generator_of(&model, 4);
    struct cddpi_generated generated = {0};
    cddp_status status = CDDP_ERR_NO_MEMORY;
    unsigned nth;

    (void)state;
    assert_true(
        failure_is(cddpi_generate(&generator, "1", &generated), CDDP_ERR_STATE, -1, -1, ""));
    assert_true(last_error_has("the model is out of order")); /* the model's own words */
    assert_null(generated.text);
    for (nth = 1; status != CDDP_OK; nth++) {
        cddpi_alloc_fail_nth(nth);
        status = cddpi_generate(&generator, "1", &generated);
        cddpi_alloc_fail_nth(0);
        assert_true(status == CDDP_OK || status == CDDP_ERR_NO_MEMORY);
    }
    assert_int_equal(nth - 2, 7); /* 5 for the course, 2 for its texts */
    cddpi_generated_fini(&generated);
}

static void assert_cleaned(const char *text, const char *expected)
{
    char *clean = cddpi_utf8_clean(text, strlen(text));

    assert_non_null(clean);
    assert_string_equal(clean, expected);
    cddpi_free(clean);
}

static void text_is_made_fit_to_show(void **state)
{
    char *clean = cddpi_utf8_clean("a\0b", 3);

    (void)state;
    assert_string_equal(clean, "a\xEF\xBF\xBD"
                               "b");
    cddpi_free(clean);
    assert_cleaned("", "");
    assert_cleaned("plain\ttext\n", "plain\ttext\n");
    assert_cleaned("\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80",
                   "\xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80");
    assert_cleaned("\x1B[2J\x7F\r", "\xEF\xBF\xBD[2J\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_cleaned("\xC2\x9B", "\xEF\xBF\xBD");                             /* C1: CSI */
    assert_cleaned("\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD");                 /* overlong */
    assert_cleaned("\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"); /* a surrogate */
    assert_cleaned("\xF4\x90\x80\x80"
                   "z",
                   "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz");
    assert_cleaned("\xE2\x82", "\xEF\xBF\xBD\xEF\xBF\xBD"); /* cut */
    assert_cleaned("\xC3(", "\xEF\xBF\xBD(");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_drawn_as_often_as_their_softmax_says),
        cmocka_unit_test(only_the_likeliest_tokens_are_drawn_if_so_wanted),
        cmocka_unit_test(without_a_temperature_the_likeliest_token_is_taken),
        cmocka_unit_test(seed_step_and_position_decide_and_nothing_else),
        cmocka_unit_test(without_a_tokenizer_texts_are_numbers),
        cmocka_unit_test(who_gets_each_token_gets_no_second_text),
        cmocka_unit_test(the_model_sees_the_last_tokens_of_a_long_text),
        cmocka_unit_test(a_tokenizer_makes_words_of_tokens_and_its_end_ends_the_text),
        cmocka_unit_test(outputs_beyond_the_tokenizers_tokens_are_never_drawn),
        cmocka_unit_test(a_deadline_cuts_the_text),
        cmocka_unit_test(a_failure_of_the_model_or_of_memory_leaves_nothing),
        cmocka_unit_test(text_is_made_fit_to_show),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
