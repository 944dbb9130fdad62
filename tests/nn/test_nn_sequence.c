/* test_nn_sequence.c - language models: PyTorch's results, gradients against finite differences,
 * tied embeddings, dropout, recomputation, ranks without samples. */
#include "kernels/cpu/transformer.h"
#include "support/sequence.h"

/* The vectors: see scripts/make_nn_gpt_vectors.py. */

static void expect_near(const char *what, double is, double should, double scale)
{
    if (!(fabs(is - should) <= 1e-4 * scale)) {
        fail_msg("%s is %.9g, PyTorch says %.9g", what, is, should);
    }
}

static void expect_outputs(const struct fixture *f, char *text)
{
    const float *outputs = cddpi_model_outputs(f->model);

    for (int i = 0; i < f->batch.count * tiny.context * tiny.vocab; i++) {
        expect_near("an output", (double)outputs[i], strtod(text, &text), 1);
    }
}

static void expect_grad(const struct fixture *f, size_t index, const char *line)
{
    const float *grad = f->grads[index];
    char name[200];
    double norm, product;
    double dot = 0;
    double squares = 0;

    assert_true(index < f->param_count);
    assert_int_equal(sscanf(line, "grad %199s %lf %lf", name, &norm, &product), 3);
    assert_string_equal(name, f->params[index].name);
    for (size_t i = 0; i < cddpi_tensor_elements(&f->params[index]); i++) {
        dot += (double)grad[i] * (double)test_number(100 + (uint32_t)index, i);
        squares += (double)grad[i] * (double)grad[i];
    }
    expect_near(name, sqrt(squares), norm, norm + 1e-3);
    expect_near(name, dot, product, norm + 1e-3);
}

static void compare_with_pytorch(const struct cddpi_model_spec *spec)
{
    char path[4096];
    static char line[65536];
    struct fixture f;
    struct cddpi_loss_result result;
    size_t grads = 0;
    FILE *file;

    sequence_setup(&f, spec, 0, 3);
    spread_params(&f);
    snprintf(path, sizeof path, "%s/tests/vectors/nn_gpt_vectors.txt", getenv("CDDP_TEST_SOURCE"));
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        double loss;
        int correct;

        if (sscanf(line, "loss %lf %d", &loss, &correct) == 2) {
            assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &result), CDDP_OK);
            expect_near("loss", result.loss_sum, loss, loss);
            assert_int_equal(result.correct, correct);
            assert_int_equal(result.count, 3 * tiny.context);
        } else if (strncmp(line, "outputs ", 8) == 0) {
            expect_outputs(&f, line + 8);
            assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
            assert_null(cddpi_model_outputs(f.model));
        } else if (strncmp(line, "grad ", 5) == 0) {
            expect_grad(&f, grads++, line);
        }
    }
    assert_int_equal(grads, f.param_count);
    fclose(file);
    fixture_fini(&f);
}

static void gpt2_computes_what_pytorch_does(void **state)
{
    (void)state;
    compare_with_pytorch(&tiny);
}

/* Gradients against differences. */

static double loss_at(struct fixture *f, float *element, float value)
{
    float kept = *element;
    double loss;

    *element = value;
    loss = fixture_loss(f);
    *element = kept;
    return loss;
}

/* As vectors, by length; of large parameters every so many elements. */
static void check_param(struct fixture *f, size_t index)
{
    const float step = 3e-3f;
    const cddp_param *param = &f->params[index];
    const float *grad = f->grads[index];
    size_t count = cddpi_tensor_elements(param);
    double length = 0;
    double error = 0;

    for (size_t i = 0; i < count; i += 1 + count / 100) {
        float *element = (float *)param->data + i;
        float high = *element + step;
        float low = *element - step;
        double slope = (loss_at(f, element, high) - loss_at(f, element, low)) /
                       ((double)high - (double)low);

        length += (double)grad[i] * (double)grad[i];
        error += (slope - (double)grad[i]) * (slope - (double)grad[i]);
    }
    if (!(sqrt(error) <= 1e-2 * sqrt(length) + 1e-3)) {
        fail_msg("%s: backward and differences are %g apart, of a gradient %g long", param->name,
                 sqrt(error), sqrt(length));
    }
}

static void check_gradients(const struct cddpi_model_spec *spec)
{
    struct fixture f;

    sequence_setup(&f, spec, 0, 2);
    spread_params(&f);
    assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
    assert_true(nn_arena_is_valid(&f.model->last.pending->arena));
    for (size_t i = 0; i < f.param_count; i++) {
        check_param(&f, i);
    }
    fixture_fini(&f);
}

static void embedding_alone_has_the_gradient_of_differences(void **state)
{
    static const struct cddpi_layer layers[] = {{.type = CDDPI_LAYER_EMBEDDING, .units = 11}};
    struct cddpi_model_spec spec = tokens_through(layers, COUNT_OF(layers));

    (void)state;
    check_gradients(&spec);
}

static void layers_on_sequences_have_the_gradient_of_differences(void **state)
{
    static const struct cddpi_layer layers[] = {
        {.type = CDDPI_LAYER_EMBEDDING, .name = "e", .units = 6, .positions = "p"},
        {.type = CDDPI_LAYER_DROPOUT, .probability = 0.3},
        {.type = CDDPI_LAYER_LINEAR, .name = "a", .units = 6},
        {.type = CDDPI_LAYER_RELU},
        {.type = CDDPI_LAYER_LINEAR, .name = "b", .units = 6, .no_bias = true},
        {.type = CDDPI_LAYER_ADD, .name = "sum", .input2 = "a"},
        {.type = CDDPI_LAYER_LINEAR, .units = 11}};
    struct cddpi_model_spec spec = tokens_through(layers, COUNT_OF(layers));

    (void)state;
    check_gradients(&spec);
}

static void a_table_used_thrice_has_the_gradient_of_differences(void **state)
{
    static const struct cddpi_layer layers[] = {
        {.type = CDDPI_LAYER_EMBEDDING, .name = "e", .units = 11},
        {.type = CDDPI_LAYER_LINEAR, .units = 11, .tied = "e"},
        {.type = CDDPI_LAYER_LAYER_NORM},
        {.type = CDDPI_LAYER_LINEAR, .units = 11, .tied = "e"}};
    struct cddpi_model_spec spec = tokens_through(layers, COUNT_OF(layers));

    (void)state;
    check_gradients(&spec);
}

static void outputs_that_backward_reads_are_left_to_it(void **state)
{
    static const struct cddpi_layer layers[] = {{.type = CDDPI_LAYER_EMBEDDING, .units = 33},
                                                {.type = CDDPI_LAYER_ATTENTION, .heads = 1}};
    struct cddpi_model_spec spec = tokens_through(layers, COUNT_OF(layers));

    (void)state;
    check_gradients(&spec);
}

static void gpt2_has_the_gradient_of_differences(void **state)
{
    struct cddpi_model_spec spec = tiny;

    (void)state;
    spec.dropout = 0.2;
    check_gradients(&spec);
}

/* The parameter of several ops. */

struct arrivals {
    size_t order[64];
    size_t count;
};

static cddp_status arrive(void *context, size_t index)
{
    struct arrivals *arrivals = context;

    arrivals->order[arrivals->count++] = index;
    return CDDP_OK;
}

static void expect_order(struct fixture *f, int count)
{
    struct arrivals arrivals = {.count = 0};
    struct cddpi_loss_result result;

    fixture_sequences(f, 0, count);
    assert_int_equal(cddpi_model_forward(f->model, &f->batch, true, &result), CDDP_OK);
    assert_int_equal(cddpi_model_backward(f->model, 1, false, arrive, &arrivals), CDDP_OK);
    assert_int_equal(arrivals.count, f->param_count);
    for (size_t i = 0; i < f->param_count; i++) {
        assert_int_equal(arrivals.order[i], cddpi_model_ready_order(f->model)[i]);
    }
}

static void a_tied_table_is_ready_once_and_last(void **state)
{
    struct cddpi_model_spec spec = tiny;

    (void)state;
    for (int recompute = 0; recompute < 2; recompute++) {
        struct fixture f;
        const size_t *order;

        spec.recompute = recompute;
        sequence_setup(&f, &spec, 0, 2);
        order = cddpi_model_ready_order(f.model);
        assert_string_equal(f.params[order[0]].name, "ln_f.bias");
        assert_string_equal(f.params[order[f.param_count - 2]].name, "wpe.weight");
        assert_string_equal(f.params[order[f.param_count - 1]].name, "wte.weight");
        expect_order(&f, 2);
        expect_order(&f, 0); /* a rank without samples, too */
        fixture_fini(&f);
    }
}

static void a_rank_without_samples_has_no_gradient_or_leaves_it(void **state)
{
    struct fixture f;
    float *grad;

    (void)state;
    sequence_setup(&f, &tiny, 0, 2);
    grad = f.grads[0];
    assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
    grad[3] = 7;
    fixture_sequences(&f, 0, 0);
    assert_int_equal(fixture_step(&f, 1, true), CDDP_OK);
    assert_true(grad[3] == 7);
    assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
    for (size_t i = 0; i < f.param_count; i++) {
        for (size_t e = 0; e < cddpi_tensor_elements(&f.params[i]); e++) {
            assert_true(((float *)f.grads[i])[e] == 0);
        }
    }
    fixture_fini(&f);
}

static void halves_that_accumulate_make_the_whole(void **state)
{
    struct cddpi_model_spec spec = tiny;
    struct fixture whole, halves;

    (void)state;
    spec.dropout = 0.2; /* whose numbers are the samples', whatever batch they are in */
    sequence_setup(&whole, &spec, 0, 4);
    sequence_setup(&halves, &spec, 0, 2);
    spread_params(&whole);
    spread_params(&halves);
    assert_int_equal(fixture_step(&whole, 0.25, false), CDDP_OK);
    assert_int_equal(fixture_step(&halves, 0.25, false), CDDP_OK);
    fixture_sequences(&halves, 2, 2);
    assert_int_equal(fixture_step(&halves, 0.25, true), CDDP_OK);
    for (size_t i = 0; i < whole.param_count; i++) {
        assert_true(relative_difference(whole.grads[i], halves.grads[i],
                                        cddpi_tensor_elements(&whole.params[i])) < 1e-5);
    }
    fixture_fini(&whole);
    fixture_fini(&halves);
}

/* Plain gradient descent on one batch learns it by heart. */
static void training_comes_to_predict_its_tokens(void **state)
{
    struct fixture f;
    struct cddpi_loss_result first, last;

    (void)state;
    sequence_setup(&f, &tiny, 0, 2);
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &first), CDDP_OK);
    assert_true(fabs(first.loss_sum / first.count - log(37)) < 0.05);
    for (int step = 0; step < 300; step++) {
        assert_int_equal(fixture_step(&f, 0.05, false), CDDP_OK);
        for (size_t i = 0; i < f.param_count; i++) {
            float *data = f.params[i].data;

            for (size_t e = 0; e < cddpi_tensor_elements(&f.params[i]); e++) {
                data[e] -= ((float *)f.grads[i])[e];
            }
        }
    }
    assert_int_equal(cddpi_model_forward(f.model, &f.batch, false, &last), CDDP_OK);
    assert_true(last.loss_sum < 0.1 * first.loss_sum);
    assert_int_equal(last.correct, 2 * tiny.context);
    fixture_fini(&f);
}

static void compare_dropout(const struct cddpi_dropout_kernels *kernels, size_t count)
{
    struct cddpi_philox stream = cddpi_philox_stream(0x923456789abcdefu, 3, 9);
    const uint32_t threshold = 0x90000000u;
    uint8_t kept[1000 / 8 + 1];
    float x[1000];

    memset(kept, 0xa5, sizeof kept);
    for (size_t e = 0; e < count; e++) {
        x[e] = (float)e + 1;
    }
    kernels->draw((uint32_t[]){stream.key[0], stream.key[1], 3, 9}, threshold, kept, count);
    kernels->apply(x, kept, 2, x, count);
    for (size_t e = 0; e < count; e++) {
        uint32_t words[4];

        cddpi_philox4(&stream, e / 4, words);
        assert_int_equal(kept[e / 8] >> e % 8 & 1, words[e % 4] >= threshold);
        assert_true(x[e] == (words[e % 4] >= threshold ? 2 * ((float)e + 1) : 0));
    }
    assert_int_equal(kept[(count + 7) / 8], 0xa5);
}

static void dropout_goes_by_the_words_of_philox(void **state)
{
    static const size_t counts[] = {1, 7, 8, 64, 100, 1000};
    const struct cddpi_transformer_kernels *builds[3];
    size_t build_count = cddpi_transformer_kernels_all(builds);

    (void)state;
    for (size_t k = 0; k < build_count; k++) {
        for (size_t c = 0; c < COUNT_OF(counts); c++) {
            compare_dropout(builds[k]->dropout, counts[c]);
        }
    }
}

/* Recomputing. */

static void expect_same_grads(const struct fixture *a, const struct fixture *b)
{
    assert_int_equal(a->param_count, b->param_count);
    for (size_t i = 0; i < a->param_count; i++) {
        assert_memory_equal(a->grads[i], b->grads[i],
                            cddpi_tensor_elements(&a->params[i]) * sizeof(float));
    }
}

static void recomputing_changes_no_bit(void **state)
{
    static const double dropouts[] = {0, 0.2};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(dropouts); i++) {
        struct cddpi_model_spec spec = tiny;
        struct fixture kept, again;

        spec.dropout = dropouts[i];
        sequence_setup(&kept, &spec, 0, 3);
        spec.recompute = true;
        sequence_setup(&again, &spec, 0, 3);
        spread_params(&kept);
        spread_params(&again);
        for (int step = 0; step < 2; step++) {
            assert_int_equal(fixture_step(&kept, 0.5, step > 0), CDDP_OK);
            assert_int_equal(fixture_step(&again, 0.5, step > 0), CDDP_OK);
            expect_same_grads(&kept, &again);
        }
        assert_true(nn_arena_is_valid(&again.model->last.pending->arena));
        fixture_fini(&kept);
        fixture_fini(&again);
    }
}

static void recomputing_takes_less_memory_and_says_how_much_work(void **state)
{
    struct cddpi_model_spec spec = tiny;
    struct fixture kept, again;
    const double attention = 8 * 8 * 16;
    const double product = 8 * 16 * 16;
    struct cddpi_model_estimate keeping, recomputing;
    double once;

    (void)state;
    spec.blocks = 8;
    sequence_setup(&kept, &spec, 0, 4);
    spec.recompute = true;
    sequence_setup(&again, &spec, 0, 4);
    assert_int_equal(cddpi_model_estimate(again.model, 4, false, &keeping), CDDP_OK);
    assert_int_equal(cddpi_model_estimate(kept.model, 4, true, &recomputing), CDDP_OK);
    assert_true(keeping.extra_work == 0);
    /* c_attn, attention, c_proj and c_fc, but not the perceptron's second product, nor the head */
    once = 8 * (attention + 12 * product) + 8 * 16 * 37;
    assert_true(fabs(recomputing.extra_work - 8 * (attention + 8 * product) / once) < 1e-12);
    assert_int_equal(cddpi_model_prepare(kept.model, 4, true), CDDP_OK);
    assert_int_equal(cddpi_model_prepare(again.model, 4, true), CDDP_OK);
    assert_int_equal(cddpi_model_arena_bytes(kept.model), keeping.activation_bytes);
    assert_int_equal(cddpi_model_arena_bytes(again.model), recomputing.activation_bytes);
    assert_true(recomputing.activation_bytes * 2 < keeping.activation_bytes);
    fixture_fini(&kept);
    fixture_fini(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_computes_what_pytorch_does),
        cmocka_unit_test(embedding_alone_has_the_gradient_of_differences),
        cmocka_unit_test(layers_on_sequences_have_the_gradient_of_differences),
        cmocka_unit_test(a_table_used_thrice_has_the_gradient_of_differences),
        cmocka_unit_test(outputs_that_backward_reads_are_left_to_it),
        cmocka_unit_test(gpt2_has_the_gradient_of_differences),
        cmocka_unit_test(a_tied_table_is_ready_once_and_last),
        cmocka_unit_test(a_rank_without_samples_has_no_gradient_or_leaves_it),
        cmocka_unit_test(halves_that_accumulate_make_the_whole),
        cmocka_unit_test(training_comes_to_predict_its_tokens),
        cmocka_unit_test(dropout_goes_by_the_words_of_philox),
        cmocka_unit_test(recomputing_changes_no_bit),
        cmocka_unit_test(recomputing_takes_less_memory_and_says_how_much_work),
    };

    return cmocka_run_group_tests_name("nn_sequence", tests, NULL, NULL);
}
