/* test_cudnn_plans.c - cuDNN's operation graphs up to plans that could run on an H200, without one:
 * the library chooses engines, and compiles their kernels, for a GPU that is only described
 * (DEVICEPROP, since 9.8). A libcuda.so.1 that loads nothing replaces the driver. Tests skip
 * themselves if there is no cuDNN, or it does not accept the description. */
#include "base/error.h"
#include "kernels/cuda/cudnn/cudnn_graphs.h"
#include "kernels/cuda/own_kernels.h"
#include "support/failure.h"
#include "support/test.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

static struct cddpi_cudnn cudnn;
static struct cddpi_cudnn_target h200; /* properties NULL: there is none */

/* What cuDNN knows of a card, as its own DEVICEPROP descriptors write it down. */
struct card {
    const char *name;
    int version, multiprocessors, shared_bytes, mhz, memory_mhz, memory_bits;
    size_t cache_bytes, memory_bytes;
};

static const struct card cards[] = {
    {"NVIDIA H200", 900, 132, 232448, 1980, 3201, 6144, 62914560, 150754820096},
    {"NVIDIA A100-SXM4-80GB", 800, 108, 166912, 1410, 1593, 5120, 41943040, 85094105088},
    {"NVIDIA B200", 1000, 148, 232448, 1965, 3996, 8192, 132644864, 191514017792},
};

static void write_down(const struct card *card, char *out, size_t bytes)
{
    snprintf(out, bytes,
             "{\"deviceName\":\"%s\",\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,"
             "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
             "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"smClockRateKHz\":%d000,"
             "\"memClockRateKHz\":%d000,\"l2CacheSize\":%zu,\"warpSize\":32,"
             "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
             "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
             "\"pciDeviceId\":0,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
             "\"maxThreadsPerSM\":2048,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
             "\"totalGlobalMem\":%zu,\"memoryBusWidth\":%d}",
             card->name, card->version, card->multiprocessors, card->mhz, card->memory_mhz,
             card->cache_bytes, card->shared_bytes, card->memory_bytes, card->memory_bits);
}

/* What the sources ask of the module. */
cddp_status cuda_fail(const struct cddpi_device *device, cddp_status status, const char *format,
                      ...)
{
    char text[2048];
    va_list arguments;

    (void)device;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cddpi_fail(status, "%s", text);
}

int cddpi_cuda_conv_extent(int input, const struct cddpi_cuda_conv *shape)
{
    return (input + 2 * shape->padding - shape->kernel) / shape->stride + 1;
}

/* NULL: it is not taken. */
static cudnnBackendDescriptor_t describe(const struct card *card)
{
    cudnnBackendDescriptor_t made = NULL;
    char text[1024];

    write_down(card, text, sizeof text);
    if (cudnn.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made) != CUDNN_STATUS_SUCCESS) {
        return NULL;
    }
    if (cudnn.set(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                  (int64_t)strlen(text), text) != CUDNN_STATUS_SUCCESS ||
        cudnn.finalize(made) != CUDNN_STATUS_SUCCESS) {
        cudnn.unmake(made);
        return NULL;
    }
    return made;
}

static int open_library(void **state)
{
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL); /* not made to be closed */
    char why[256] = "";

    (void)state;
    if (library == NULL) {
        print_message("skipped: %s\n", dlerror());
    } else if (cddpi_cudnn_look_up(NULL, library, &cudnn) != CDDP_OK) {
        print_message("skipped: %s\n", cddp_last_error());
    } else if ((h200.properties = describe(&cards[0])) == NULL) {
        cudnn.last_error(why, sizeof why);
        print_message("skipped: cuDNN %d does not take our description of a device: %s\n",
                      cudnn.version, why);
    }
    return 0;
}

static int close_library(void **state)
{
    (void)state;
    if (h200.properties != NULL) {
        cudnn.unmake(h200.properties);
    }
    return 0;
}

#define NEEDS_CUDNN()                                                                              \
    do {                                                                                           \
        if (h200.properties == NULL) {                                                             \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

static void choose(struct cddpi_cudnn_plan *plan, const struct cddpi_cudnn_target *target,
                   const char *what)
{
    cddp_status status = plan->graph.status;

    if (status == CDDP_OK) {
        status = cddpi_cudnn_plan_choose(plan, target);
    }
    if (status != CDDP_OK) {
        fail_msg("%s: %s", what, cddp_last_error());
    }
}

static const struct cddpi_cuda_attention attentions[] = {
    {.type = CDDP_BF16, .batch = 16, .heads = 12, .length = 1024, .head = 64}, /* GPT-2 124M */
    {.type = CDDP_BF16, .batch = 4, .heads = 25, .length = 1024, .head = 64},  /* 1558M */
    {.type = CDDP_F16, .batch = 2, .heads = 3, .length = 128, .head = 128},
    {.type = CDDP_BF16, .batch = 3, .heads = 2, .length = 256, .head = 40},
    {.type = CDDP_BF16, .batch = 1, .heads = 5, .length = 127, .head = 64},
    {.type = CDDP_F16, .batch = 1, .heads = 1, .length = 2, .head = 8},
};

/* Old versions are not asked for some of them. */
static bool fits(const struct cddpi_cuda_attention *shape)
{
    bool any_version = shape->length % 128 == 0;
    cddp_status status = cddpi_cudnn_attention_fits(&cudnn, shape);

    assert_int_equal(status, any_version || cudnn.version > 91500 ? CDDP_OK : CDDP_ERR_UNAVAILABLE);
    return status == CDDP_OK;
}

static void attention_has_an_engine_with_the_same_bits_in_every_run(void **state)
{
    (void)state;
    NEEDS_CUDNN();
    for (size_t i = 0; i < sizeof attentions / sizeof attentions[0]; i++) {
        struct cddpi_cudnn_plan plan = {.plan = NULL};

        if (!fits(&attentions[i])) {
            continue;
        }
        cddpi_cudnn_graph_init(&plan.graph, &cudnn, "attention");
        cddpi_cudnn_attention_forward(&plan.graph, &attentions[i]);
        choose(&plan, &h200, "attention");
        assert_true(plan.reproducible);
        cddpi_cudnn_plan_fini(&plan);
    }
}

/* Its engine keeps the gradients of scores; that workspace shows which one was taken. */
static void the_gradient_of_attention_has_an_engine(void **state)
{
    (void)state;
    NEEDS_CUDNN();
    for (size_t i = 0; i < sizeof attentions / sizeof attentions[0]; i++) {
        const struct cddpi_cuda_attention *shape = &attentions[i];
        size_t scores = (size_t)shape->batch * (size_t)shape->heads * (size_t)shape->length *
                        (size_t)shape->length * 2;

        for (int any_order = 0; any_order < 2 && fits(shape); any_order++) {
            struct cddpi_cudnn_plan plan = {.plan = NULL};

            cddpi_cudnn_graph_init(&plan.graph, &cudnn, "gradient of attention");
            cddpi_cudnn_attention_backward(&plan.graph, shape, any_order);
            choose(&plan, &h200, "gradient of attention");
            if (any_order) {
                assert_true(plan.workspace_bytes < scores + 256);
            } else {
                assert_true(plan.reproducible);
                assert_true(plan.workspace_bytes >= scores);
            }
            cddpi_cudnn_plan_fini(&plan);
        }
    }
}

static void what_attention_does_not_take_is_said_before_cudnn_is_asked(void **state)
{
    const struct cddpi_cudnn old = {.version = 91500};
    struct cddpi_cuda_attention shape = attentions[0];

    (void)state;
    shape.type = CDDP_F32;
    assert_int_equal(cddpi_cudnn_attention_fits(&old, &shape), CDDP_ERR_UNAVAILABLE);
    assert_true(last_error_has("bf16 and f16, not f32"));
    shape = attentions[0];
    shape.head = 20;
    assert_int_equal(cddpi_cudnn_attention_fits(&old, &shape), CDDP_ERR_UNAVAILABLE);
    assert_true(last_error_has("multiple of 8 up to 128, not 20"));
    shape = attentions[0];
    shape.length = 1000;
    assert_int_equal(cddpi_cudnn_attention_fits(&old, &shape), CDDP_ERR_UNAVAILABLE);
    assert_true(last_error_has("not used for sequences of 1000"));
}

/* ResNet-50's, and some that no tile divides. */
static const struct cddpi_cuda_conv convs[] = {
    {0, 256, 3, 224, 224, 64, 7, 2, 3, false},  {0, 256, 64, 56, 56, 64, 3, 1, 1, false},
    {0, 256, 64, 56, 56, 256, 1, 1, 0, false},  {0, 256, 256, 56, 56, 512, 1, 2, 0, false},
    {0, 256, 128, 56, 56, 128, 3, 2, 1, false}, {0, 256, 512, 7, 7, 512, 3, 1, 1, false},
    {0, 128, 3, 32, 32, 16, 3, 1, 1, false},    {0, 8, 5, 9, 9, 7, 3, 1, 1, false},
    {0, 64, 1, 28, 28, 32, 5, 1, 2, false},     {0, 1, 1, 1, 1, 1, 1, 1, 0, false},
    {0, 2, 255, 7, 7, 257, 3, 1, 1, false},     {0, 3, 4, 20, 17, 12, 11, 4, 2, false},
    {0, 3, 8, 5, 5, 16, 3, 5, 0, false},
};

static void convolutions_have_engines_that_are_exact(void **state)
{
    const cddp_type types[] = {CDDP_F32, CDDP_BF16, CDDP_F16};

    (void)state;
    NEEDS_CUDNN();
    for (size_t i = 0; i < 3 * sizeof convs / sizeof convs[0]; i++) {
        struct cddpi_cuda_conv shape = convs[i / 3];

        shape.type = types[i % 3];
        for (int pass = CDDPI_CONV_FORWARD; pass <= CDDPI_CONV_WEIGHT; pass++) {
            struct cddpi_cudnn_plan plan = {.plan = NULL};

            cddpi_cudnn_graph_init(&plan.graph, &cudnn, "convolution");
            cddpi_cudnn_conv_build(&plan.graph, (enum cddpi_cudnn_conv_pass)pass, &shape);
            choose(&plan, &h200, "convolution");
            assert_true(plan.reproducible);
            assert_true(plan.exact);
            cddpi_cudnn_plan_fini(&plan);
        }
    }
}

/* Of the engine that @p plan took. */
static bool uses_tensor_cores(const struct cddpi_cudnn_plan *plan)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t config = NULL;
    cudnnBackendDescriptor_t engine = NULL;
    int64_t count = 0;
    bool found = false;

    assert_int_equal(cudnn.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config), 0);
    assert_int_equal(cudnn.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), 0);
    assert_int_equal(cudnn.get(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &config),
                     0);
    assert_int_equal(cudnn.get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                               1, &count, &engine),
                     0);
    assert_int_equal(cudnn.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
                     0);
    for (int64_t i = 0; i < count; i++) {
        found = found || notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    }
    cudnn.unmake(engine);
    cudnn.unmake(config);
    return found;
}

/* Channels that are no multiple of 8: cuDNN brings what such engines read into whole vectors
 * itself, in its workspace. Where it takes another engine first, it is one for few channels, and
 * who takes the fastest times it against those. */
static void convolutions_of_odd_channels_keep_tensor_cores(void **state)
{
    static const struct cddpi_cuda_conv odd[] = {
        {0, 64, 33, 28, 28, 20, 3, 1, 1, false}, {0, 64, 20, 28, 28, 33, 3, 1, 1, false},
        {0, 64, 12, 28, 28, 12, 3, 1, 1, false}, {0, 64, 6, 14, 14, 16, 5, 1, 0, false},
        {0, 64, 1, 28, 28, 6, 5, 1, 2, false},   {0, 64, 3, 224, 224, 64, 7, 2, 3, false},
        {0, 64, 33, 28, 28, 64, 1, 1, 0, false}, {0, 64, 65, 28, 28, 65, 3, 1, 1, false},
    };
    struct cddpi_cudnn_target any = h200;

    (void)state;
    NEEDS_CUDNN();
    any.alternatives = true;
    for (size_t i = 0; i < 3 * sizeof odd / sizeof odd[0]; i++) {
        struct cddpi_cuda_conv shape = odd[i / 3];
        struct cddpi_cudnn_plan plan = {.plan = NULL};
        bool found;

        shape.type = CDDP_BF16;
        cddpi_cudnn_graph_init(&plan.graph, &cudnn, "convolution");
        cddpi_cudnn_conv_build(&plan.graph, (enum cddpi_cudnn_conv_pass)(i % 3), &shape);
        choose(&plan, &any, "convolution");
        found = uses_tensor_cores(&plan);
        for (int r = 0; r < plan.alternative_count; r++) {
            struct cddpi_cudnn_plan alternative = {.plan = plan.alternatives[r].plan};

            found = found || uses_tensor_cores(&alternative);
        }
        if (!found) {
            fail_msg("%d to %d channels, pass %zu: no tensor cores", shape.channels, shape.outputs,
                     i % 3);
        }
        cddpi_cudnn_plan_fini(&plan);
    }
}

/* The filters' gradient of images: of copies with whole vectors of channels, the first engine
 * already uses tensor cores, has the same bits in every run, and rounds nothing. */
static void few_channels_get_tensor_cores_as_whole_vectors(void **state)
{
    static const struct cddpi_cuda_conv images[] = {
        {CDDP_BF16, 256, 3, 224, 224, 64, 7, 2, 3, false},
        {CDDP_BF16, 128, 3, 32, 32, 16, 3, 1, 1, false},
        {CDDP_BF16, 64, 1, 28, 28, 32, 5, 1, 2, false},
        {CDDP_F16, 256, 3, 224, 224, 64, 7, 2, 3, false},
        {CDDP_F16, 128, 3, 224, 224, 64, 11, 4, 2, false},
    };

    (void)state;
    NEEDS_CUDNN();
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++) {
        struct cddpi_cuda_conv whole = cddpi_cudnn_conv_whole(&images[i]);
        struct cddpi_cudnn_plan plan = {.plan = NULL};

        assert_true(cddpi_cudnn_conv_few(&images[i]));
        assert_false(cddpi_cudnn_conv_few(&whole));
        cddpi_cudnn_graph_init(&plan.graph, &cudnn, "convolution");
        cddpi_cudnn_conv_build(&plan.graph, CDDPI_CONV_WEIGHT, &whole);
        choose(&plan, &h200, "convolution");
        assert_true(plan.reproducible);
        assert_true(plan.exact);
        assert_true(uses_tensor_cores(&plan));
        cddpi_cudnn_plan_fini(&plan);
    }
}

/* To which tensor cores round factors of float32; cuDNN's list begins with engines that use them.
 */
static void convolutions_of_float32_are_rounded_to_tf32_only_if_that_is_asked_for(void **state)
{
    (void)state;
    NEEDS_CUDNN();
    for (int i = 0; i < 2 * 3 * 2; i++) {
        struct cddpi_cudnn_target target = h200;
        struct cddpi_cuda_conv shape = convs[1]; /* tensor cores are good at it */
        struct cddpi_cudnn_plan plan = {.plan = NULL};

        target.alternatives = i % 2 != 0;
        target.tf32 = i >= 6;
        shape.type = CDDP_F32;
        cddpi_cudnn_graph_init(&plan.graph, &cudnn, "convolution");
        cddpi_cudnn_conv_build(&plan.graph, (enum cddpi_cudnn_conv_pass)(i / 2 % 3), &shape);
        assert_int_equal(cddpi_cudnn_plan_choose(&plan, &target), CDDP_OK);
        assert_true(plan.exact);
        assert_int_equal(uses_tensor_cores(&plan), target.tf32);
        for (int r = 0; r < plan.alternative_count && !target.tf32; r++) {
            struct cddpi_cudnn_plan alternative = {.plan = plan.alternatives[r].plan};

            assert_false(uses_tensor_cores(&alternative));
        }
        cddpi_cudnn_plan_fini(&plan);
    }
}

static void convolutions_have_rivals_for_who_takes_the_fastest(void **state)
{
    struct cddpi_cudnn_target any = h200;

    (void)state;
    NEEDS_CUDNN();
    any.alternatives = true;
    for (size_t i = 0; i < 6; i++) {
        struct cddpi_cuda_conv shape = convs[i];

        shape.type = CDDP_BF16;
        for (int pass = CDDPI_CONV_FORWARD; pass <= CDDPI_CONV_WEIGHT; pass++) {
            struct cddpi_cudnn_plan plan = {.plan = NULL};

            cddpi_cudnn_graph_init(&plan.graph, &cudnn, "convolution");
            cddpi_cudnn_conv_build(&plan.graph, (enum cddpi_cudnn_conv_pass)pass, &shape);
            assert_int_equal(cddpi_cudnn_plan_choose(&plan, &any), CDDP_OK);
            assert_true(plan.alternative_count >= 2);
            for (int r = 0; r < plan.alternative_count; r++) {
                assert_non_null(plan.alternatives[r].plan);
                assert_ptr_not_equal(plan.alternatives[r].plan, plan.plan);
            }
            cddpi_cudnn_plan_fini(&plan);
        }
    }
}

/* As numbers to a file and back: the same engine with the same knobs, and so the same workspace. */
static void an_engine_is_found_again_by_its_numbers(void **state)
{
    struct cddpi_cudnn_target any = h200;
    int with_knobs = 0;

    (void)state;
    NEEDS_CUDNN();
    any.alternatives = true;
    for (size_t i = 0; i < 3; i++) {
        struct cddpi_cuda_conv shape = convs[i];

        shape.type = CDDP_BF16;
        for (int pass = CDDPI_CONV_FORWARD; pass <= CDDPI_CONV_WEIGHT; pass++) {
            struct cddpi_cudnn_plan plan = {.plan = NULL};
            struct cddpi_cudnn_plan again = {.plan = NULL};
            struct cddpi_cudnn_config config;
            struct cddpi_cudnn_config second;

            cddpi_cudnn_graph_init(&plan.graph, &cudnn, "convolution");
            cddpi_cudnn_conv_build(&plan.graph, (enum cddpi_cudnn_conv_pass)pass, &shape);
            assert_int_equal(cddpi_cudnn_plan_choose(&plan, &h200), CDDP_OK);
            assert_true(cddpi_cudnn_config_read(&cudnn, plan.config, plan.engine, &config));
            assert_true(cddpi_cudnn_config_is_whole(&config, cddpi_cudnn_config_bytes(&config)));
            with_knobs += config.knob_count > 0;
            cddpi_cudnn_graph_init(&again.graph, &cudnn, "convolution");
            cddpi_cudnn_conv_build(&again.graph, (enum cddpi_cudnn_conv_pass)pass, &shape);
            if (cddpi_cudnn_plan_restore(&again, &any, &config) != CDDP_OK) {
                fail_msg("%s", cddp_last_error());
            }
            assert_int_equal(again.engine, plan.engine);
            assert_int_equal(again.workspace_bytes, plan.workspace_bytes);
            assert_int_equal(again.reproducible, plan.reproducible);
            assert_int_equal(again.exact, plan.exact);
            assert_true(cddpi_cudnn_config_read(&cudnn, again.config, again.engine, &second));
            assert_memory_equal(&second, &config, sizeof config);
            cddpi_cudnn_plan_fini(&again);
            cddpi_cudnn_plan_fini(&plan);
        }
    }
    assert_true(with_knobs > 0);
}

/* A file that was made by another version, say: what can be chosen afterwards is chosen. */
static void an_engine_that_does_not_exist_is_refused_and_another_chosen(void **state)
{
    const struct cddpi_cudnn_config config = {.engine = 123456, .knob_count = 1};
    struct cddpi_cudnn_plan plan = {.plan = NULL};
    struct cddpi_cuda_conv shape = convs[0];

    (void)state;
    NEEDS_CUDNN();
    shape.type = CDDP_BF16;
    cddpi_cudnn_graph_init(&plan.graph, &cudnn, "convolution");
    cddpi_cudnn_conv_build(&plan.graph, CDDPI_CONV_FORWARD, &shape);
    assert_int_equal(cddpi_cudnn_plan_restore(&plan, &h200, &config), CDDP_ERR_UNAVAILABLE);
    choose(&plan, &h200, "a convolution");
    cddpi_cudnn_plan_fini(&plan);
}

static void other_cards_have_engines_too(void **state)
{
    (void)state;
    NEEDS_CUDNN();
    if (cudnn.version < 91100) {
        print_message("skipped: cuDNN %d crashes over a B200 that is only described\n",
                      cudnn.version);
        skip();
    }
    for (size_t i = 1; i < sizeof cards / sizeof cards[0]; i++) {
        struct cddpi_cudnn_target card = {.properties = describe(&cards[i])};

        assert_non_null(card.properties);
        for (int part = 0; part < 3; part++) { /* of attention; passes of a convolution */
            struct cddpi_cuda_conv shape = convs[2];
            struct cddpi_cudnn_plan plan = {.plan = NULL};
            struct cddpi_cudnn_plan conv = {.plan = NULL};

            cddpi_cudnn_graph_init(&plan.graph, &cudnn, "attention");
            if (part == 0) {
                cddpi_cudnn_attention_forward(&plan.graph, &attentions[0]);
            } else {
                cddpi_cudnn_attention_backward(&plan.graph, &attentions[0], part == 2);
            }
            choose(&plan, &card, cards[i].name);
            cddpi_cudnn_plan_fini(&plan);
            shape.type = CDDP_BF16;
            cddpi_cudnn_graph_init(&conv.graph, &cudnn, "convolution");
            cddpi_cudnn_conv_build(&conv.graph, (enum cddpi_cudnn_conv_pass)part, &shape);
            choose(&conv, &card, cards[i].name);
            assert_true(conv.reproducible);
            cddpi_cudnn_plan_fini(&conv);
        }
        cudnn.unmake(card.properties);
    }
}

/* What cuDNN refuses is told with its version, the node and its reason. */
static void a_graph_that_makes_no_sense_is_an_error_that_names_it(void **state)
{
    struct cddpi_cudnn_layout wide = cddpi_cudnn_packed(1, 1, 4, 8);
    struct cddpi_cudnn_layout other = cddpi_cudnn_packed(1, 1, 5, 7);
    struct cddpi_cudnn_graph graph;

    (void)state;
    NEEDS_CUDNN();
    cddpi_cudnn_graph_init(&graph, &cudnn, "nonsense");
    cddpi_cudnn_matmul(&graph, cddpi_cudnn_memory(&graph, 1, CUDNN_DATA_HALF, &wide),
                       cddpi_cudnn_memory(&graph, 2, CUDNN_DATA_HALF, &other),
                       cddpi_cudnn_memory(&graph, 3, CUDNN_DATA_HALF, &wide));
    assert_int_not_equal(graph.status, CDDP_OK);
    assert_true(last_error_has("cuDNN 9."));
    assert_true(last_error_has("nonsense: product"));
    assert_int_equal(graph.operation_count, 0);
    cddpi_cudnn_graph_fini(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_has_an_engine_with_the_same_bits_in_every_run),
        cmocka_unit_test(the_gradient_of_attention_has_an_engine),
        cmocka_unit_test(what_attention_does_not_take_is_said_before_cudnn_is_asked),
        cmocka_unit_test(convolutions_have_engines_that_are_exact),
        cmocka_unit_test(convolutions_of_float32_are_rounded_to_tf32_only_if_that_is_asked_for),
        cmocka_unit_test(convolutions_of_odd_channels_keep_tensor_cores),
        cmocka_unit_test(few_channels_get_tensor_cores_as_whole_vectors),
        cmocka_unit_test(convolutions_have_rivals_for_who_takes_the_fastest),
        cmocka_unit_test(an_engine_is_found_again_by_its_numbers),
        cmocka_unit_test(an_engine_that_does_not_exist_is_refused_and_another_chosen),
        cmocka_unit_test(other_cards_have_engines_too),
        cmocka_unit_test(a_graph_that_makes_no_sense_is_an_error_that_names_it),
    };

    return cmocka_run_group_tests(tests, open_library, close_library);
}
