/* test_nn_towers.c - alexnet's towers as separate layers compute the same as groups of channels,
 * with the same weights, if local response normalisation has no effect: with groups, it spans the
 * channels of both towers. */
#include "support/nn.h"

enum { UNITS = 6, WIDE = 16, COUNT = 3, SPATIAL = 1 /* behind the last pool */ };

static const struct cddpi_model_spec groups = {.preset = "alexnet",
                                               .stage_units = UNITS,
                                               .channels = 3,
                                               .height = 67,
                                               .width = 67,
                                               .classes = 5};

static size_t find(const struct fixture *f, const char *name)
{
    for (size_t i = 0; i < f->param_count; i++) {
        if (strcmp(f->params[i].name, name) == 0) {
            return i;
        }
    }
    fail_msg("there is no parameter %s", name);
    return 0;
}

static float *value_of(const struct fixture *f, size_t param, bool grad)
{
    return grad ? f->grads[param] : f->params[param].data;
}

/* Between columns [first, first + columns) and rows [top, top + rows) of a whole weight and a part;
 * @p difference: compare them instead of setting the part. */
static void match(const struct fixture *whole, const char *name, const struct fixture *towers,
                  const char *part_name, size_t top, size_t first, bool grad)
{
    size_t w = find(whole, name);
    size_t p = find(towers, part_name);
    size_t rows = (size_t)towers->params[p].shape[0];
    size_t columns = cddpi_tensor_elements(&towers->params[p]) / rows;
    size_t stride = cddpi_tensor_elements(&whole->params[w]) / (size_t)whole->params[w].shape[0];
    const float *from = value_of(whole, w, grad);
    float *to = value_of(towers, p, grad);

    assert_true(top + rows <= (size_t)whole->params[w].shape[0] && first + columns <= stride);
    for (size_t r = 0; r < rows; r++) {
        const float *row = from + (top + r) * stride + first;

        if (grad && difference_over(row, to + r * columns, columns, 1e-6) > 1e-3) {
            fail_msg("the gradient of %s is not that of %s, row %zu", part_name, name, r);
        }
        if (!grad) {
            memcpy(to + r * columns, row, columns * sizeof *to);
        }
    }
}

static void match_conv(const struct fixture *whole, const struct fixture *towers, int number,
                       const char *first_layers, size_t units, bool grad)
{
    for (int t = 0; t < 2; t++) {
        char name[64], part[64];

        snprintf(name, sizeof name, "conv%d.weight", number);
        snprintf(part, sizeof part, "%c%s.conv%d.weight", 'a' + t, first_layers, number);
        match(whole, name, towers, part, (size_t)t * units, 0, grad);
        snprintf(name, sizeof name, "conv%d.bias", number);
        snprintf(part, sizeof part, "%c%s.conv%d.bias", 'a' + t, first_layers, number);
        match(whole, name, towers, part, (size_t)t * units, 0, grad);
    }
}

/* A layer of @p units outputs a tower, whose weight has so many @p columns for each tower's. */
static void match_crossing(const struct fixture *whole, const struct fixture *towers,
                           const char *layer, const char *format, int ends, size_t units,
                           size_t columns, bool grad)
{
    for (int t = 0; t < ends; t++) {
        char prefix[32], name[64], part[64];

        snprintf(prefix, sizeof prefix, format, 'a' + t);
        snprintf(name, sizeof name, "%s.weight", layer);
        for (int from = 0; from < 2; from++) {
            snprintf(part, sizeof part, "%s%s.%c.weight", prefix, layer, 'a' + from);
            match(whole, name, towers, part, (size_t)t * units, (size_t)from * columns, grad);
        }
        snprintf(name, sizeof name, "%s.bias", layer);
        snprintf(part, sizeof part, "%s%s.a.bias", prefix, layer);
        match(whole, name, towers, part, (size_t)t * units, 0, grad);
    }
}

static void match_all(const struct fixture *whole, const struct fixture *towers, bool grad)
{
    match_conv(whole, towers, 1, "1", UNITS / 2, grad);
    match_conv(whole, towers, 2, "1", WIDE / 2, grad);
    match_crossing(whole, towers, "conv3", "%c3.", 2, 2 * UNITS, WIDE / 2 * 9, grad);
    match_conv(whole, towers, 4, "3", 2 * UNITS, grad);
    match_conv(whole, towers, 5, "3", WIDE / 2, grad);
    match_crossing(whole, towers, "fc6", "%c6.", 2, 8 * WIDE, WIDE / 2 * SPATIAL, grad);
    match_crossing(whole, towers, "fc7", "%c7.", 2, 8 * WIDE, 8 * WIDE, grad);
    match_crossing(whole, towers, "fc8", "", 1, 0, 8 * WIDE, grad);
}

/* Where inputs of the normalisations are so small that their squares are nothing beside 2. */
static void weaken(const struct fixture *f, const char *name, float factor)
{
    size_t param = find(f, name);
    float *data = f->params[param].data;

    for (size_t i = 0; i < cddpi_tensor_elements(&f->params[param]); i++) {
        data[i] *= factor;
    }
}

static void towers_of_their_own_compute_what_groups_do(void **state)
{
    struct cddpi_model_spec two = groups;
    struct fixture whole, towers;
    const float *a, *b;

    (void)state;
    two.towers = 2;
    assert_true(fixture_init(&whole, &groups, 7, NULL, 0, COUNT));
    assert_true(fixture_init(&towers, &two, 8, NULL, 0, COUNT));
    weaken(&whole, "conv1.weight", 1e-2F);
    weaken(&whole, "conv1.bias", 1e-2F);
    weaken(&whole, "conv2.bias", 1e-2F);
    weaken(&whole, "conv3.weight", 1e2F);
    match_all(&whole, &towers, false);
    assert_int_equal(fixture_step(&whole, 1, false), CDDP_OK);
    a = cddpi_model_outputs(whole.model);
    assert_int_equal(fixture_step(&towers, 1, false), CDDP_OK);
    b = cddpi_model_outputs(towers.model);
    assert_true(relative_difference(a, b, COUNT * 5) < 1e-5);
    match_all(&whole, &towers, true);
    fixture_fini(&whole);
    fixture_fini(&towers);
}

static void dropout_has_its_places_in_both_towers(void **state)
{
    struct cddpi_model_spec two = groups;
    struct fixture f;
    char *text;

    (void)state;
    two.towers = 2;
    two.dropout = 0.5;
    assert_true(fixture_init(&f, &two, 7, NULL, 0, COUNT));
    assert_int_equal(fixture_step(&f, 1, false), CDDP_OK);
    text = cddpi_model_describe(f.model);
    assert_non_null(strstr(text, "a6.dropout6"));
    assert_non_null(strstr(text, "b6.dropout6"));
    assert_non_null(strstr(text, "a7.dropout7"));
    assert_non_null(strstr(text, "b7.dropout7"));
    cddp_free(text);
    fixture_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(towers_of_their_own_compute_what_groups_do),
        cmocka_unit_test(dropout_has_its_places_in_both_towers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
