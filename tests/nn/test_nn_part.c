/* test_nn_part.c - a model cut into parts, in one process: the same parameters and the same bits as
 * the whole, for any cut and any number of batches in progress. */
#include "support/failure.h"
#include "support/nn_model.h"
#include "support/sequence.h"

enum { PARTS = 3, EDGES = 8, SLOTS = 3 };

/* The parts of one model, one behind the other; what crosses a cut lies in memory of the test. */
struct chain {
    struct fixture parts[PARTS];
    int count;
    float *data[SLOTS][PARTS][EDGES], *grads[SLOTS][PARTS][EDGES]; /* at the end of each part */
    size_t edge_count[PARTS];
};

/* False where two layers are one op, so that nothing is left for a part. */
static bool chain_init(struct chain *c, const struct cddpi_model_spec *spec, const int *cuts,
                       int parts, int count)
{
    memset(c, 0, sizeof *c);
    for (int p = 0; p < parts; p++) {
        struct cddpi_model_spec part = *spec;
        struct fixture *f = &c->parts[p];
        const struct cddpi_edge *edges;

        part.part = (struct cddpi_layer_range){p == 0 ? 0 : cuts[p - 1], cuts[p]};
        if (!fixture_init(f, &part, 45, NULL, 0, count)) {
            assert_true(last_error_has("cannot be a part"));
            return false;
        }
        c->count++;
        edges = cddpi_model_edges(f->model, CDDPI_EDGE_OUT, &c->edge_count[p]);
        assert_true(c->edge_count[p] <= EDGES);
        for (size_t k = 0; k < c->edge_count[p]; k++) {
            for (int s = 0; s < SLOTS; s++) {
                c->data[s][p][k] = calloc(edges[k].elements * (size_t)count, sizeof(float));
                c->grads[s][p][k] = calloc(edges[k].elements * (size_t)count, sizeof(float));
            }
        }
    }
    return true;
}

static void chain_fini(struct chain *c)
{
    for (int p = 0; p < c->count; p++) {
        for (int s = 0; s < SLOTS; s++) {
            for (size_t k = 0; k < c->edge_count[p]; k++) {
                free(c->data[s][p][k]);
                free(c->grads[s][p][k]);
            }
        }
        fixture_fini(&c->parts[p]);
    }
}

static void bind_edges(struct chain *c, int slot, int p)
{
    struct cddpi_model *model = c->parts[p].model;
    size_t in = 0;

    assert_int_equal(cddpi_model_use_slot(model, slot), CDDP_OK);
    for (size_t k = 0; k < c->edge_count[p]; k++) {
        cddpi_model_bind_edge(model, CDDPI_EDGE_OUT, k, c->data[slot][p][k], c->grads[slot][p][k]);
    }
    cddpi_model_edges(model, CDDPI_EDGE_IN, &in);
    assert_int_equal(in, p == 0 ? 0 : c->edge_count[p - 1]);
    for (size_t k = 0; k < in; k++) {
        cddpi_model_bind_edge(model, CDDPI_EDGE_IN, k, c->data[slot][p - 1][k],
                              c->grads[slot][p - 1][k]);
    }
}

/* Labels and tokens stay where the fixture has them: each slot has samples of its own. */
static double chain_forward(struct chain *c, int slot, const struct cddpi_batch *batch,
                            bool training)
{
    struct cddpi_loss_result result = {0};

    for (int p = 0; p < c->count; p++) {
        bind_edges(c, slot, p);
        if (cddpi_model_forward(c->parts[p].model, batch, training, &result) != CDDP_OK) {
            fail_msg("%s", cddp_last_error());
        }
    }
    return result.loss_sum;
}

static void chain_backward(struct chain *c, int slot, double scale, bool accumulate)
{
    for (int p = c->count - 1; p >= 0; p--) {
        bind_edges(c, slot, p);
        if (cddpi_model_backward(c->parts[p].model, scale, accumulate, NULL, NULL) != CDDP_OK) {
            fail_msg("%s", cddp_last_error());
        }
    }
}

static size_t find_param(const struct fixture *f, const char *name)
{
    for (size_t i = 0; i < f->param_count; i++) {
        if (strcmp(f->params[i].name, name) == 0) {
            return i;
        }
    }
    return f->param_count;
}

static bool is_equal(const void *a, const void *b, const cddp_param *param)
{
    return memcmp(a, b, cddpi_tensor_elements(param) * sizeof(float)) == 0;
}

/* How many parts have parameter @p index of the whole: more than one only if it is tied. */
static int count_owners(const struct fixture *whole, const struct chain *c, size_t index,
                        bool *equal)
{
    const cddp_param *param = &whole->params[index];
    int owners = 0;

    *equal = true;
    for (int p = 0; p < c->count; p++) {
        const struct fixture *f = &c->parts[p];
        size_t k = find_param(f, param->name);

        if (k < f->param_count) {
            assert_true(is_equal(f->params[k].data, param->data, param));
            *equal = *equal && is_equal(f->grads[k], whole->grads[index], param);
            owners++;
        }
    }
    return owners;
}

static void expect_tied_grad(const struct fixture *whole, struct chain *c, size_t index)
{
    size_t elements = cddpi_tensor_elements(&whole->params[index]);
    float *sum = calloc(elements, sizeof *sum);

    for (int p = c->count - 1; p >= 0; p--) {
        size_t k = find_param(&c->parts[p], whole->params[index].name);

        for (size_t e = 0; k < c->parts[p].param_count && e < elements; e++) {
            sum[e] += ((const float *)c->parts[p].grads[k])[e];
        }
    }
    assert_true(relative_difference(whole->grads[index], sum, elements) < 1e-5);
    free(sum);
}

static int expect_same_grads(const struct fixture *whole, struct chain *c)
{
    int tied = 0;

    for (size_t i = 0; i < whole->param_count; i++) {
        bool equal;
        int owners = count_owners(whole, c, i, &equal);

        assert_true(owners >= 1);
        if (owners > 1) {
            expect_tied_grad(whole, c, i);
            tied++;
        } else if (!equal) {
            fail_msg("the gradient of %s has other bits", whole->params[i].name);
        }
    }
    return tied;
}

static void expect_same_at(const struct cddpi_model_spec *spec, struct fixture *whole,
                           const int *cuts, int parts, int *tied, int *compared)
{
    struct chain c;

    if (chain_init(&c, spec, cuts, parts, whole->batch.count)) {
        struct cddpi_loss_result result = {0};

        assert_int_equal(cddpi_model_forward(whole->model, &whole->batch, true, &result), CDDP_OK);
        assert_true(chain_forward(&c, 0, &whole->batch, true) == result.loss_sum);
        assert_int_equal(cddpi_model_backward(whole->model, 0.25, false, NULL, NULL), CDDP_OK);
        chain_backward(&c, 0, 0.25, false);
        *tied += expect_same_grads(whole, &c);
        *compared += 1;
    }
    chain_fini(&c);
}

static int layers_of(const struct fixture *f)
{
    return (int)f->model->list.count;
}

/* At every place; and every other time once more, a third of the model before it. */
static int expect_same_everywhere(const struct cddpi_model_spec *spec, int count, int *tied)
{
    struct fixture whole;
    int compared = 0;

    if (!fixture_init(&whole, spec, 45, NULL, 0, count)) {
        fail_msg("%s", cddp_last_error());
    }
    for (int cut = 1; cut < layers_of(&whole); cut++) {
        /* running statistics move with every training forward, so both begin anew */
        fixture_fini(&whole);
        assert_true(fixture_init(&whole, spec, 45, NULL, 0, count));
        if (cut % 2 == 0 && cut / 3 > 0) {
            expect_same_at(spec, &whole, (int[]){cut / 3, cut, layers_of(&whole)}, 3, tied,
                           &compared);
        } else {
            expect_same_at(spec, &whole, (int[]){cut, layers_of(&whole)}, 2, tied, &compared);
        }
    }
    fixture_fini(&whole);
    return compared;
}

static void parts_of_an_mlp_compute_the_bits_of_the_whole(void **state)
{
    struct cddpi_model_spec spec = mlp;
    int tied = 0;

    (void)state;
    spec.dropout = 0.25;
    assert_true(expect_same_everywhere(&spec, 6, &tied) >= 4);
    assert_int_equal(tied, 0);
}

static void parts_of_a_convolutional_network_compute_the_bits_of_the_whole(void **state)
{
    int tied = 0;

    (void)state;
    assert_true(expect_same_everywhere(&cnn, 5, &tied) >= 4);
    assert_int_equal(tied, 0);
}

static void a_residual_network_can_be_cut_inside_its_blocks(void **state)
{
    int tied = 0;

    (void)state;
    assert_true(expect_same_everywhere(&resnet20, 3, &tied) >= 30);
    assert_int_equal(tied, 0);
}

static void a_tied_table_is_a_parameter_of_both_ends_of_gpt2(void **state)
{
    int tied = 0;
    int compared;

    (void)state;
    compared = expect_same_everywhere(&tiny, 3, &tied);
    assert_true(compared >= 10);
    assert_int_equal(tied, compared);
}

static void a_part_can_be_recomputed(void **state)
{
    struct cddpi_model_spec spec = tiny;
    int tied = 0;

    (void)state;
    spec.recompute = true;
    assert_true(expect_same_everywhere(&spec, 3, &tied) >= 10);
}

/* Three batches of which the second is smaller: all forwards, then all backwards in order. */
static void several_batches_can_wait_for_their_backward(void **state)
{
    const int counts[SLOTS] = {4, 2, 4};
    struct fixture whole;
    struct fixture batches[SLOTS];
    struct chain c;
    size_t one = 0;

    (void)state;
    model_setup(&whole, &cnn, 4);
    assert_true(chain_init(&c, &cnn, (int[]){3, layers_of(&whole)}, 2, 4));
    for (int s = 0; s < SLOTS; s++) {
        assert_true(fixture_init(&batches[s], &cnn, 45, NULL, 10 * s, counts[s]));
        chain_forward(&c, s, &batches[s].batch, true);
        one = s == 0 ? cddpi_model_arena_bytes(c.parts[0].model) : one;
    }
    assert_true(one > 0);
    assert_true(cddpi_model_arena_bytes(c.parts[0].model) > 2 * one); /* all slots' */
    for (int s = 0; s < SLOTS; s++) {
        struct cddpi_loss_result result;

        assert_int_equal(cddpi_model_forward(whole.model, &batches[s].batch, true, &result),
                         CDDP_OK);
        assert_int_equal(cddpi_model_backward(whole.model, 0.1, s > 0, NULL, NULL), CDDP_OK);
        chain_backward(&c, s, 0.1, s > 0);
        fixture_fini(&batches[s]);
    }
    assert_int_equal(expect_same_grads(&whole, &c), 0);
    chain_fini(&c);
    fixture_fini(&whole);
}

static void a_part_without_bound_edges_says_which_layer(void **state)
{
    struct cddpi_model_spec spec = mlp;
    struct fixture f;
    struct cddpi_loss_result result;

    (void)state;
    spec.part = (struct cddpi_layer_range){0, 2};
    model_setup(&f, &spec, 2);
    assert_true(failure_is(cddpi_model_forward(f.model, &f.batch, true, &result), CDDP_ERR_STATE,
                           -1, -1, ""));
    assert_true(last_error_has("nothing is bound as the value at the end of a part"));
    fixture_fini(&f);
}

static void expect_refused(const struct cddpi_model_spec *spec, int first, int end,
                           const char *text)
{
    struct cddpi_model_spec part = *spec;
    struct fixture f;

    part.part = (struct cddpi_layer_range){first, end};
    assert_false(fixture_init(&f, &part, 45, NULL, 0, 2));
    if (!last_error_has(text)) {
        fail_msg("\"%s\" does not say \"%s\"", cddp_last_error(), text);
    }
}

static void parts_without_layers_are_refused(void **state)
{
    static const struct cddpi_layer two_tables[] = {
        {.type = CDDPI_LAYER_EMBEDDING, .name = "first", .units = 8},
        {.type = CDDPI_LAYER_EMBEDDING, .name = "second", .units = 8, .input = "input"},
        {.type = CDDPI_LAYER_ADD, .name = "both", .input = "first", .input2 = "second"},
        {.type = CDDPI_LAYER_LINEAR, .name = "head", .units = 37}};
    struct cddpi_model_spec tables = tokens_through(two_tables, COUNT_OF(two_tables));

    (void)state;
    expect_refused(&mlp, 2, 1, "cannot be a part");
    expect_refused(&mlp, -1, 2, "cannot be a part");
    expect_refused(&mlp, 1, 1000, "cannot be a part");
    expect_refused(&mlp, 2, 3, "the layer before does their work in its own pass");
    tables.vocab = tables.classes = 37;
    expect_refused(&tables, 1, 4, "cannot be handed from part to part");
}

static void a_part_survives_want_of_memory(void **state)
{
    struct cddpi_model_spec spec = cnn;

    (void)state;
    spec.part = (struct cddpi_layer_range){3, 6};
    assert_survives_want_of_memory(&spec, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_an_mlp_compute_the_bits_of_the_whole),
        cmocka_unit_test(parts_of_a_convolutional_network_compute_the_bits_of_the_whole),
        cmocka_unit_test(a_residual_network_can_be_cut_inside_its_blocks),
        cmocka_unit_test(a_tied_table_is_a_parameter_of_both_ends_of_gpt2),
        cmocka_unit_test(a_part_can_be_recomputed),
        cmocka_unit_test(several_batches_can_wait_for_their_backward),
        cmocka_unit_test(a_part_without_bound_edges_says_which_layer),
        cmocka_unit_test(parts_without_layers_are_refused),
        cmocka_unit_test(a_part_survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
