/* test_ddp_manifest.c - the text that must be equal on all ranks, and the description of how two
 * such texts differ. */
#include "base/alloc.h"
#include "ddp/ddp_create.h"
#include "support/test.h"

struct model {
    cddp_param params[3];
    cddp_param buffers[1];
    cddp_ddp_options options;
    struct cddpi_manifest manifest;
};

static void init_model(struct model *model)
{
    static const cddp_param params[3] = {{.name = "fc1.weight", .dims = 2, .shape = {512, 784}},
                                         {.name = "fc1.bias", .dims = 1, .shape = {512}},
                                         {.name = "fc2.weight", .dims = 2, .shape = {10, 512}}};
    static const cddp_param buffer = {.name = "mean", .type = CDDP_F64};

    memcpy(model->params, params, sizeof params);
    model->buffers[0] = buffer;
    model->options = (cddp_ddp_options)CDDP_DDP_OPTIONS_INIT;
    model->options.config = "lr 0.1\nseed 3";
    model->manifest.params = model->params;
    model->manifest.param_count = 3;
    model->manifest.buffers = model->buffers;
    model->manifest.buffer_count = 1;
    model->manifest.options = &model->options;
    model->manifest.hook_name = "identity";
    model->manifest.device = cddpi_device_cpu();
}

static void diff_of(const struct model *a, const struct model *b, char out[4096])
{
    char *x = cddpi_manifest_text(&a->manifest);
    char *y = cddpi_manifest_text(&b->manifest);

    assert_non_null(x);
    assert_non_null(y);
    cddpi_manifest_diff(x, 0, y, 1, 12, out, 4096);
    cddpi_free(x);
    cddpi_free(y);
}

static void equal_models_have_the_same_text_wherever_their_memory_is(void **state)
{
    struct model a;
    struct model b;
    char out[4096];
    float somewhere;
    char *x;
    char *y;

    (void)state;
    init_model(&a);
    init_model(&b);
    b.params[0].data = &somewhere;
    b.params[0].grad = &somewhere;
    x = cddpi_manifest_text(&a.manifest);
    y = cddpi_manifest_text(&b.manifest);
    assert_string_equal(x, y);
    cddpi_free(x);
    cddpi_free(y);
    diff_of(&a, &b, out);
    assert_string_equal(out, "");
}

static void another_shape_is_shown_with_both_ranks(void **state)
{
    struct model a;
    struct model b;
    char out[4096];

    (void)state;
    init_model(&a);
    init_model(&b);
    b.params[2].shape[1] = 256;
    diff_of(&a, &b, out);
    assert_string_equal(out, "\n  parameter 2: rank 0 has fc2.weight f32 [10, 512], rank 1 has "
                             "fc2.weight f32 [10, 256]");
}

static void order_type_frozen_option_and_config_are_compared(void **state)
{
    struct model a;
    struct model b;
    char out[4096];

    (void)state;
    init_model(&a);
    init_model(&b);
    b.params[0].type = CDDP_BF16;
    b.params[1].flags = CDDP_PARAM_FROZEN;
    b.options.bucket_bytes = 7;
    b.options.config = "lr 0.2\nseed 3";
    diff_of(&a, &b, out);
    assert_string_equal(out, "\n  bucket_bytes: rank 0 has 0, rank 1 has 7\n  "
                             "config line 1: rank 0 has lr 0.1, rank 1 has lr 0.2\n  "
                             "parameter 0: rank 0 has fc1.weight f32 [512, 784], rank 1 has "
                             "fc1.weight bf16 [512, 784]\n  "
                             "parameter 1: rank 0 has fc1.bias f32 [512], rank 1 has fc1.bias f32 "
                             "[512] frozen");
}

static void a_missing_parameter_or_line_is_said_to_be_missing(void **state)
{
    struct model a;
    struct model b;
    char out[4096];

    (void)state;
    init_model(&a);
    init_model(&b);
    b.manifest.param_count = 2;
    b.manifest.buffer_count = 0;
    a.options.config = "lr 0.1";
    diff_of(&a, &b, out);
    assert_string_equal(out, "\n  parameters: rank 0 has 3, rank 1 has 2\n  "
                             "buffers: rank 0 has 1, rank 1 has 0\n  "
                             "config line 2: rank 0 has none, rank 1 has seed 3\n  "
                             "parameter 2: rank 0 has fc2.weight f32 [10, 512], rank 1 has none\n  "
                             "buffer 0: rank 0 has mean f64 [], rank 1 has none");
}

static void a_long_difference_is_cut(void **state)
{
    struct model a;
    struct model b;
    char x[8192];
    char y[8192];
    char out[4096];

    (void)state;
    init_model(&a);
    init_model(&b);
    for (size_t i = 0; i < sizeof x - 1; i++) {
        x[i] = i % 2 == 0 ? 'x' : '\n';
        y[i] = i % 2 == 0 ? 'y' : '\n';
    }
    x[100] = '\0';
    y[100] = '\0';
    a.options.config = x;
    b.options.config = y;
    diff_of(&a, &b, out);
    assert_non_null(strstr(out, "config line 12: rank 0 has x, rank 1 has y\n  and 38 more"));
    assert_null(strstr(out, "config line 13"));
    memset(y, 'y', sizeof y - 1);
    y[sizeof y - 1] = '\0';
    diff_of(&a, &b, out);
    assert_non_null(strstr(out, "yyy..."));
}

static void a_name_cannot_break_a_line(void **state)
{
    struct model a;
    struct model b;
    char out[4096];

    (void)state;
    init_model(&a);
    init_model(&b);
    b.params[1].name = "fc1\n3 9 parameter 9\tghost";
    diff_of(&a, &b, out);
    assert_string_equal(out, "\n  parameter 1: rank 0 has fc1.bias f32 [512], rank 1 has "
                             "fc1\\x0a3 9 parameter 9\\x09ghost f32 [512]");
}

static void texts_that_are_no_manifests_do_no_harm(void **state)
{
    static const char *const odd[] = {"",    "\n",       "x",         "1",     "1 2",
                                      "1 2", "1 2 \t\n", "9 9 a\t\n", "1 2\t", "-1 -1 \t"};
    char out[64];

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        for (size_t j = 0; j < sizeof odd / sizeof *odd; j++) {
            cddpi_manifest_diff(odd[i], 0, odd[j], 1, 3, out, sizeof out);
            assert_true(strlen(out) < sizeof out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_models_have_the_same_text_wherever_their_memory_is),
        cmocka_unit_test(another_shape_is_shown_with_both_ranks),
        cmocka_unit_test(order_type_frozen_option_and_config_are_compared),
        cmocka_unit_test(a_missing_parameter_or_line_is_said_to_be_missing),
        cmocka_unit_test(a_long_difference_is_cut),
        cmocka_unit_test(a_name_cannot_break_a_line),
        cmocka_unit_test(texts_that_are_no_manifests_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
