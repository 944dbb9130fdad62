/* test_mfu.c - published peak rates by device name, and the fraction of them that a model uses. */
#include "support/test.h"
#include "train/telemetry/mfu.h"

static void a_device_is_known_by_its_name(void **state)
{
    static const struct {
        const char *title;
        double half; /* TFLOP/s; 0: unknown */
    } cases[] = {
        {"NVIDIA H200", 989.4},
        {"NVIDIA H200 NVL", 835.5},
        {"NVIDIA H20", 148},
        {"NVIDIA H100 80GB HBM3", 989.4},
        {"NVIDIA H100 PCIe", 756},
        {"NVIDIA A100-SXM4-80GB", 312},
        {"NVIDIA A10", 125},
        {"NVIDIA A10G", 70},
        {"NVIDIA L4", 121},
        {"NVIDIA L40S", 362.05},
        {"NVIDIA B200", 2250},
        {"NVIDIA GB200", 2500},
        {"NVIDIA RTX A6000", 154.8},
        {"NVIDIA RTX 6000 Ada Generation", 364.2},
        {"NVIDIA GeForce RTX 4080 SUPER", 104.4},
        {"NVIDIA GeForce RTX 4090", 165.2},
        {"NVIDIA GeForce RTX 5090", 209.5},
        {"NVIDIA GeForce RTX 4090 Laptop GPU", 0},
        {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0},
        {"NVIDIA X1000", 0},
        {"", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        print_message("%s\n", cases[i].title);
        assert_float_equal(cddpi_peak_flops(cases[i].title, CDDPI_PRECISION_BF16) / 1e12,
                           cases[i].half, 1e-9);
    }
    assert_float_equal(cddpi_peak_flops("NVIDIA H200", CDDPI_PRECISION_F32) / 1e12, 66.9, 1e-9);
}

/* llm.c: 468,000 tokens/s of GPT-2 124M on an H100 are 376 TFLOP/s, 38 % (its README):
 * 803.5 MFLOP a token, since it also counts biases and positions as if they were multiplied. */
static void gpt2_takes_what_llm_c_counts(void **state)
{
    struct cddpi_model_spec spec = {
        .preset = "gpt2", .size = "124M", .context = 1024, .vocab = 50304, .classes = 50304};
    struct cddpi_model *model;
    double flops; /* of a token */

    (void)state;
    assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_OK);
    flops = 6 * cddpi_model_work(model) / 1024;
    assert_in_range(flops / 1e6, 796, 803);
    assert_float_equal(cddpi_mfu(cddpi_model_work(model), 468000.0 / 1024, 1, 989.4e12), 0.38,
                       0.003);
    assert_float_equal(cddpi_mfu(cddpi_model_work(model), 8 * 468000.0 / 1024, 8, 989.4e12), 0.38,
                       0.003);
    cddpi_model_destroy(model);
}

static void convolutions_count(void **state)
{
    static const struct cddpi_layer layers[] = {
        {.type = CDDPI_LAYER_CONV2D, .units = 8, .kernel = 3, .padding = 1, .stride = 2},
        {.type = CDDPI_LAYER_FLATTEN},
        {.type = CDDPI_LAYER_LINEAR, .units = 10}};
    struct cddpi_model_spec spec = {.layers = layers,
                                    .layer_count = 3,
                                    .channels = 3,
                                    .height = 12,
                                    .width = 12,
                                    .classes = 10};
    struct cddpi_model *model;

    (void)state;
    assert_int_equal(cddpi_model_create(&spec, 1, NULL, &model), CDDP_OK);
    assert_float_equal(cddpi_model_work(model), 8 * 6 * 6 * 3 * 9 + 8 * 6 * 6 * 10, 0);
    cddpi_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_known_by_its_name),
        cmocka_unit_test(gpt2_takes_what_llm_c_counts),
        cmocka_unit_test(convolutions_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
