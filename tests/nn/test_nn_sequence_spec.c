/* test_nn_sequence_spec.c - language models: descriptions and data that do not fit, sizes and
 * initial values of gpt2, lack of memory. */
#include "support/failure.h"
#include "support/sequence.h"

static void tokens_outside_the_vocabulary_are_named(void **state)
{
    struct fixture f;
    struct cddpi_loss_result result;

    (void)state;
    sequence_setup(&f, &tiny, 0, 3);
    f.tokens[2 * 8 + 5] = 37;
    assert_true(failure_is(cddpi_model_forward(f.model, &f.batch, true, &result), CDDP_ERR_ARGUMENT,
                           -1, -1, ""));
    assert_string_equal(cddp_last_error(),
                        "model: token 5 of sample 2 is 37, outside the vocabulary of 37");
    f.tokens[2 * 8 + 5] = 0;
    f.label[1] = -1;
    assert_true(failure_is(cddpi_model_forward(f.model, &f.batch, true, &result), CDDP_ERR_ARGUMENT,
                           -1, -1, ""));
    assert_string_equal(cddp_last_error(),
                        "model: label 1 of sample 0 is -1, outside the vocabulary of 37");
    f.label[1] = 0;
    f.batch.tokens = NULL;
    assert_true(failure_is(cddpi_model_forward(f.model, &f.batch, true, &result), CDDP_ERR_ARGUMENT,
                           -1, -1, ""));
    assert_string_equal(cddp_last_error(), "model: it takes tokens, which the batch does not have");
    fixture_fini(&f);
}

/* Descriptions. */

static void expect_refused(struct cddpi_model_spec spec, const char *text)
{
    struct cddpi_model *model = NULL;

    assert_true(
        failure_is(cddpi_model_create(&spec, 1, NULL, &model), CDDP_ERR_CONFIG, -1, -1, ""));
    if (!last_error_has(text)) {
        fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), text);
    }
}

#define EMBED(n)                                                                                   \
    {                                                                                              \
        .type = CDDPI_LAYER_EMBEDDING, .name = "e", .units = (n)                                   \
    }

static void layers_that_do_not_fit_sequences_are_refused(void **state)
{
    static const struct {
        struct cddpi_layer layers[3];
        const char *text;
    } wrongs[] = {
        {{{.type = CDDPI_LAYER_LINEAR, .units = 11}},
         "layer \"linear1\": linear cannot read the data, which are tokens: only embedding does"},
        {{EMBED(4), {.type = CDDPI_LAYER_FLATTEN}},
         "layer \"flatten2\": flatten takes images, but its input is a sequence of 5 x 4"},
        {{EMBED(4), {.type = CDDPI_LAYER_CONV2D, .units = 3, .kernel = 1}},
         "layer \"conv2d2\": conv2d takes images"},
        {{EMBED(4), {.type = CDDPI_LAYER_BATCH_NORM}},
         "layer \"batch_norm2\": batch_norm takes images"},
        {{EMBED(4), {.type = CDDPI_LAYER_MAX_POOL}}, "layer \"max_pool2\": max_pool takes images"},
        {{EMBED(4), {.type = CDDPI_LAYER_GLOBAL_AVG_POOL}},
         "layer \"global_avg_pool2\": global_avg_pool takes images"},
        {{EMBED(4), {.type = CDDPI_LAYER_EMBEDDING, .units = 11}},
         "layer \"embedding2\": embedding takes the data's tokens, not the output of a layer"},
        {{EMBED(4), {.type = CDDPI_LAYER_RELU}},
         "layer \"relu2\": the last layer's output has 4 features, but there are 11 tokens"},
        {{EMBED(4), {.type = CDDPI_LAYER_LINEAR, .units = 11, .tied = "f"}},
         "layer \"linear2\": no embedding before it is called \"f\", to which it is tied"},
        {{EMBED(4),
          {.type = CDDPI_LAYER_LINEAR, .units = 5},
          {.type = CDDPI_LAYER_LINEAR, .units = 11, .tied = "e"}},
         "layer \"linear3\": its weight would be 11 x 5, but the table of \"e\", to which it is "
         "tied, is 11 x 4"},
        {{{.type = CDDPI_LAYER_EMBEDDING, .name = "e", .units = 11, .positions = "e"}},
         "layer \"e\": two parameters would be called e.weight"},
        {{{.type = CDDPI_LAYER_EMBEDDING, .name = "e", .units = 11, .deviation = -1}},
         "layer \"e\": deviation is -1"},
        {{EMBED(11), {.type = CDDPI_LAYER_RELU, .tied = "e"}}, "relu takes no tied"},
        {{EMBED(11), {.type = CDDPI_LAYER_RELU, .positions = "e"}}, "relu takes no positions"},
        {{EMBED(11), {.type = CDDPI_LAYER_RELU, .deviation = 1}}, "relu takes no deviation"},
        {{EMBED(11), {.type = CDDPI_LAYER_RELU, .heads = 1}}, "relu takes no heads"},
        {{EMBED(11), {.type = CDDPI_LAYER_RELU, .exact = true}}, "relu takes no exact"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrongs); i++) {
        struct cddpi_model_spec spec = tokens_through(wrongs[i].layers, 1);

        while (spec.layer_count < 3 && (wrongs[i].layers[spec.layer_count].type != 0 ||
                                        wrongs[i].layers[spec.layer_count].units != 0)) {
            spec.layer_count++;
        }
        expect_refused(spec, wrongs[i].text);
    }
}

static void contexts_that_cannot_be_are_refused(void **state)
{
    static const struct cddpi_layer layers[] = {EMBED(11)};
    struct cddpi_model_spec spec = tokens_through(layers, 1);

    (void)state;
    spec.context = 0;
    expect_refused(spec, "model: a context of 0 tokens is not possible; 1 to 65536 are possible");
    spec.context = 65537;
    expect_refused(spec, "model: a context of 65537 tokens is not possible");
}

static void embeddings_of_images_are_refused(void **state)
{
    static const struct cddpi_layer layers[] = {EMBED(4)};

    (void)state;
    expect_refused((struct cddpi_model_spec){.layers = layers,
                                             .layer_count = 1,
                                             .channels = 1,
                                             .height = 4,
                                             .width = 4,
                                             .classes = 3},
                   "layer \"e\": embedding takes tokens, but the data are 1 x 4 x 4");
}

static void gpt2_that_cannot_be_is_refused(void **state)
{
    struct cddpi_model_spec spec = tiny;

    (void)state;
    spec.heads = 3;
    expect_refused(spec, "gpt2: embed is 16, which cannot be divided among 3 heads");
    spec = tiny;
    spec.blocks = 0;
    expect_refused(spec, "gpt2: blocks is 0; 1 to 256 are possible, or 0 together with a size");
    spec = tiny;
    spec.context = 0;
    expect_refused(spec, "gpt2: context is 0; 1 to 65536 are possible, or 0 together with a size");
    spec = tiny;
    spec.size = "12M";
    expect_refused(spec,
                   "gpt2: there is no size \"12M\"; the sizes are 124M, 350M, 774M and 1558M");
    spec = tiny;
    spec.classes = 36;
    expect_refused(spec, "model: a vocabulary of 37 tokens and 36 classes is not possible: both "
                         "must be the same number");
    spec = tiny;
    spec.loss = CDDPI_LOSS_MSE;
    expect_refused(spec, "model: tokens are predicted with the loss cross_entropy only");
    spec = tiny;
    spec.dropout = 1;
    expect_refused(spec, "gpt2: dropout is 1; it must lie in [0, 1)");
    expect_refused(
        (struct cddpi_model_spec){
            .preset = "gpt2", .channels = 1, .height = 4, .width = 4, .classes = 3},
        "gpt2 takes tokens, but the data are images");
    spec = tiny;
    spec.preset = "mlp";
    expect_refused(spec, "flatten ");
}

static void sizes_stand_for_the_numbers_of_gpt2(void **state)
{
    static const struct {
        const char *size;
        int blocks, heads, embed;
    } sizes[] = {{"124M", 12, 12, 768},
                 {"350M", 24, 16, 1024},
                 {"774M", 36, 20, 1280},
                 {"1558M", 48, 25, 1600}};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct cddpi_model_spec spec = {.preset = "gpt2", .size = sizes[i].size};

        assert_int_equal(cddpi_model_spec_complete(&spec), CDDP_OK);
        assert_int_equal(spec.blocks, sizes[i].blocks);
        assert_int_equal(spec.heads, sizes[i].heads);
        assert_int_equal(spec.embed, sizes[i].embed);
        assert_int_equal(spec.context, 1024);
        spec.blocks = 3; /* what is given stays */
        assert_int_equal(cddpi_model_spec_complete(&spec), CDDP_OK);
        assert_int_equal(spec.blocks, 3);
    }
}

static void first_values_are_those_of_gpt2(void **state)
{
    struct cddpi_model_spec spec = tiny;
    struct fixture f;

    (void)state;
    spec.embed = 64;
    sequence_setup(&f, &spec, 0, 1);
    for (size_t i = 0; i < f.param_count; i++) {
        const cddp_param *param = &f.params[i];
        size_t count = cddpi_tensor_elements(param);
        double expected = strstr(param->name, "c_proj.weight") != NULL ? 0.02 / 2 : 0.02;
        double squares = 0;

        for (size_t e = 0; e < count; e++) {
            squares += pow((double)((float *)param->data)[e], 2);
        }
        if (strstr(param->name, "bias") != NULL) {
            expected = 0;
        } else if (strstr(param->name, "ln_") != NULL) {
            expected = 1;
        }
        if (!(fabs(sqrt(squares / (double)count) - expected) <= 0.1 * expected)) {
            fail_msg("%s: %g, not %g", param->name, sqrt(squares / (double)count), expected);
        }
        assert_int_equal(cddpi_model_param_decays(f.model, i), param->dims == 2);
    }
    fixture_fini(&f);
}

static void the_table_of_layers_shows_sequences_and_counts_a_tied_table_once(void **state)
{
    struct fixture f;
    char *table;

    (void)state;
    sequence_setup(&f, &tiny, 0, 1);
    table = cddpi_model_describe(f.model);
    assert_non_null(strstr(table, "8 x 16"));
    assert_non_null(strstr(table, "linear (wte)"));
    /* 37 x 16 + 8 x 16, two blocks of 12 x 16 x 16 + 13 x 16, and 2 x 16 */
    assert_non_null(strstr(table, "gpt2: 7312 parameters in 28 tensors, data 8 tokens of 37"));
    cddp_free(table);
    fixture_fini(&f);
}

static void every_failing_allocation_is_an_error(void **state)
{
    struct cddpi_model_spec spec = tiny;

    (void)state;
    spec.dropout = 0.1;
    spec.recompute = true;
    assert_survives_want_of_memory(&spec, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_outside_the_vocabulary_are_named),
        cmocka_unit_test(layers_that_do_not_fit_sequences_are_refused),
        cmocka_unit_test(contexts_that_cannot_be_are_refused),
        cmocka_unit_test(embeddings_of_images_are_refused),
        cmocka_unit_test(gpt2_that_cannot_be_is_refused),
        cmocka_unit_test(sizes_stand_for_the_numbers_of_gpt2),
        cmocka_unit_test(first_values_are_those_of_gpt2),
        cmocka_unit_test(the_table_of_layers_shows_sequences_and_counts_a_tied_table_once),
        cmocka_unit_test(every_failing_allocation_is_an_error),
    };

    return cmocka_run_group_tests_name("nn_sequence_spec", tests, NULL, NULL);
}
