/* test_cuda_matmul_choice.c - how the algorithms of products on a CUDA device are chosen: by the
 * library, by their bits, by time. Each case has its own device. */
#include "support/cuda_matmul.h"
#include "support/failure.h"

#include <dlfcn.h>

/* Of the emulated module; NULL: this is another. */
static uint64_t (*started)(enum fake_cublaslt_algorithm algorithm);

static void reopen(const char *choice, const char *faults)
{
    const char *module = getenv("CDDP_CUDA_MODULE");
    void *library = module != NULL ? dlopen(module, RTLD_NOW | RTLD_NOLOAD) : NULL;

    if (library != NULL) {
        *(void **)&started = dlsym(library, "fake_cublaslt_started");
        dlclose(library); /* libcddp holds it */
    }
    cddpi_device_close(cuda);
    cuda = NULL;
    if (choice != NULL) {
        setenv("CDDP_PRODUCTS", choice, 1);
    }
    setenv("CDDP_FAKE_CUBLASLT", faults, 1);
    cuda_ok(cddpi_device_open("cuda", -1, 1, 0, 1, true, &cuda));
}

static int as_it_was(void **state)
{
    (void)state;
    unsetenv("CDDP_PRODUCTS");
    unsetenv("CDDP_FAKE_CUBLASLT");
    unsetenv("CDDP_TF32");
    if (cuda != NULL) {
        cddpi_device_close(cuda);
        cuda = NULL;
        cuda_ok(cddpi_device_open("cuda", -1, 1, 0, 1, true, &cuda));
    }
    return 0;
}

#define NEEDS_FAKE()                                                                               \
    do {                                                                                           \
        NEEDS_CUDA();                                                                              \
        reopen("same", "");                                                                        \
        if (started == NULL) {                                                                     \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* A product whose algorithms all fit, and differ in bits. */
static const size_t usual[] = {24, 64, 32};

/* The algorithm of the second call. */
static enum fake_cublaslt_algorithm chosen(struct layer *l, size_t calls)
{
    uint64_t before[FAKE_CUBLASLT_ALGORITHMS];
    int found = -1;

    for (size_t i = 0; i < calls; i++) {
        for (int a = 0; a < FAKE_CUBLASLT_ALGORITHMS; a++) {
            before[a] = started((enum fake_cublaslt_algorithm)a);
        }
        cuda_ok(cuda->kernels->linear(cuda, &l->shape, l->x.device, l->weight.device,
                                      l->bias.device, l->y.device, NULL));
        cuda_ok(cuda->ops->finish(cuda, 60000));
    }
    for (int a = 0; a < FAKE_CUBLASLT_ALGORITHMS; a++) {
        uint64_t runs = started((enum fake_cublaslt_algorithm)a) - before[a];

        if (runs > 0) {
            assert_int_equal(runs, 1);
            assert_int_equal(found, -1);
            found = a;
        }
    }
    return (enum fake_cublaslt_algorithm)found;
}

static uint64_t started_in_all(void)
{
    uint64_t sum = 0;

    for (int a = 0; a < FAKE_CUBLASLT_ALGORITHMS; a++) {
        sum += started((enum fake_cublaslt_algorithm)a);
    }
    return sum;
}

/* Buckets are planned anew after the first step, and gradients with them. */
static void a_gradient_that_has_moved_needs_no_new_choice(void **state)
{
    const size_t step = 64 / sizeof(float);
    struct layer l;
    struct numbers dweight;
    uint64_t before;

    (void)state;
    NEEDS_FAKE();
    layer_make(&l, CDDP_BF16, usual);
    dweight = no_numbers(CDDP_F32, l.dweight.count + 4 * step);
    cuda_ok(cuda->kernels->linear_weight(cuda, &l.shape, l.dy.device, l.x.device, false,
                                         dweight.device, NULL));
    cuda_ok(cuda->ops->finish(cuda, 60000));
    for (size_t i = 1; i <= 4; i++) {
        before = started_in_all();
        cuda_ok(cuda->kernels->linear_weight(cuda, &l.shape, l.dy.device, l.x.device, false,
                                             (float *)dweight.device + i * step, NULL));
        assert_int_equal(started_in_all() - before, 1);
    }
    cuda_ok(cuda->ops->finish(cuda, 60000));
    numbers_free(&dweight);
    layer_free(&l);
}

static void the_librarys_choice_is_taken_if_that_is_asked_for(void **state)
{
    struct layer l;

    (void)state;
    NEEDS_FAKE();
    reopen("first", "slow");
    layer_make(&l, CDDP_BF16, usual);
    assert_int_equal(chosen(&l, 1), FAKE_CUBLASLT_WIDE);
    assert_int_equal(chosen(&l, 1), FAKE_CUBLASLT_WIDE);
    layer_free(&l);
}

/* The split one may be the fastest: its bits are others. */
static void the_fastest_that_gives_the_same_bits_is_chosen(void **state)
{
    float *first;
    struct layer l;

    (void)state;
    NEEDS_FAKE();
    reopen("first", "slow");
    layer_make(&l, CDDP_F32, usual);
    assert_int_equal(chosen(&l, 1), FAKE_CUBLASLT_WIDE);
    first = cuda_download(l.y.device, bytes_of(&l.y));
    layer_free(&l);
    reopen("same", "slow");
    layer_make(&l, CDDP_F32, usual);
    assert_int_equal(chosen(&l, 2), FAKE_CUBLASLT_ANYTHING);
    numbers_fetch(&l.y);
    assert_memory_equal(l.y.host, first, bytes_of(&l.y));
    layer_free(&l);
    free(first);
}

/* Split sums, rounded to bf16, may well look the same in so few elements. */
static void a_few_elements_of_16_bits_do_not_decide(void **state)
{
    struct layer l;
    enum fake_cublaslt_algorithm algorithm;

    (void)state;
    NEEDS_FAKE();
    reopen("same", "slow");
    layer_make(&l, CDDP_BF16, usual);
    algorithm = chosen(&l, 2);
    assert_true(algorithm == FAKE_CUBLASLT_WIDE || algorithm == FAKE_CUBLASLT_NARROW);
    layer_free(&l);
}

static void the_fastest_of_all_is_chosen_if_that_is_asked_for(void **state)
{
    struct layer l;
    enum fake_cublaslt_algorithm algorithm;

    (void)state;
    NEEDS_FAKE();
    reopen("fast", "slow");
    layer_make(&l, CDDP_BF16, usual);
    algorithm = chosen(&l, 2);
    assert_true(algorithm == FAKE_CUBLASLT_SPLIT || algorithm == FAKE_CUBLASLT_ANYTHING);
    layer_free(&l);
}

static void the_fastest_of_all_is_chosen_for_who_takes_any_order(void **state)
{
    struct layer l;
    enum fake_cublaslt_algorithm algorithm;

    (void)state;
    NEEDS_FAKE();
    unsetenv("CDDP_PRODUCTS");
    reopen(NULL, "slow");
    layer_make(&l, CDDP_BF16, usual);
    algorithm = chosen(&l, 2);
    assert_true(algorithm == FAKE_CUBLASLT_WIDE || algorithm == FAKE_CUBLASLT_NARROW);
    l.shape.any_order = true;
    algorithm = chosen(&l, 2);
    assert_true(algorithm == FAKE_CUBLASLT_SPLIT || algorithm == FAKE_CUBLASLT_ANYTHING);
    layer_free(&l);
}

/* So that a model's estimate of what fits counts it. */
static void the_workspace_of_fast_products_is_announced(void **state)
{
    size_t (*left)(struct cddpi_device * where, bool any_order);
    struct layer l;
    size_t more;

    (void)state;
    NEEDS_FAKE();
    left = cuda->kernels->first_use_bytes;
    assert_int_equal(left(cuda, true), left(cuda, false)); /* $CDDP_PRODUCTS decides */
    unsetenv("CDDP_PRODUCTS");
    more = left(cuda, true) - left(cuda, false);
    assert_true(more > 32 << 20);
    setenv("CDDP_PRODUCTS", "fast", 1);
    assert_int_equal(left(cuda, false), left(cuda, true));
    unsetenv("CDDP_PRODUCTS");
    reopen(NULL, "");
    left = cuda->kernels->first_use_bytes;
    layer_make(&l, CDDP_BF16, usual);
    (void)chosen(&l, 2);
    assert_int_equal(left(cuda, true) - left(cuda, false), more);
    l.shape.any_order = true;
    (void)chosen(&l, 2);
    assert_int_equal(left(cuda, true), left(cuda, false));
    layer_free(&l);
}

static void an_algorithm_that_gives_other_bits_each_time_is_not_chosen(void **state)
{
    struct layer l;

    (void)state;
    NEEDS_FAKE();
    reopen("same", "unstable");
    layer_make(&l, CDDP_BF16, usual);
    assert_int_not_equal(chosen(&l, 2), FAKE_CUBLASLT_WIDE);
    check_forward(&l, CDDPI_EPILOGUE_RELU, true, false);
    layer_free(&l);
}

static void sums_are_not_split_in_the_outputs_type(void **state)
{
    (void)state;
    NEEDS_FAKE();
    check_all_forward();
    assert_int_equal(started(FAKE_CUBLASLT_OUTPUT), 0);
}

/* The fast ones are behind sixteen slow ones. */
static void the_fastest_of_many_is_found(void **state)
{
    struct layer l;
    enum fake_cublaslt_algorithm algorithm;

    (void)state;
    NEEDS_FAKE();
    reopen("fast", "slow,many");
    layer_make(&l, CDDP_BF16, usual);
    algorithm = chosen(&l, 2);
    assert_true(algorithm == FAKE_CUBLASLT_SPLIT || algorithm == FAKE_CUBLASLT_ANYTHING);
    layer_free(&l);
}

/* With float32 results that loses nothing: gradients of weights. */
static void
in_any_order_split_sums_may_be_added_in_the_outputs_type_if_that_is_float32(void **state)
{
    struct layer l;
    uint64_t before;

    (void)state;
    NEEDS_FAKE();
    reopen("fast", "slow");
    before = started(FAKE_CUBLASLT_OUTPUT);
    layer_make(&l, CDDP_BF16, usual);
    cuda_ok(cuda->kernels->linear(cuda, &l.shape, l.x.device, l.weight.device, l.bias.device,
                                  l.y.device, NULL));
    assert_int_equal(started(FAKE_CUBLASLT_OUTPUT), before);
    cuda_ok(cuda->kernels->linear_weight(cuda, &l.shape, l.dy.device, l.x.device, false,
                                         l.dweight.device, NULL));
    assert_true(started(FAKE_CUBLASLT_OUTPUT) > before);
    cuda_ok(cuda->ops->finish(cuda, 60000));
    layer_free(&l);
    check_all_weights(true);
    check_all_weights(false);
}

/* A layer of zeros, say: all algorithms give the same. */
static void data_that_tells_nothing_decides_nothing(void **state)
{
    struct layer l;
    struct layer zero;
    float *nothing;

    (void)state;
    NEEDS_FAKE();
    reopen("same", "slow");
    nothing = calloc(usual[0] * usual[1], sizeof *nothing);
    layer_make(&l, CDDP_F32, usual);
    zero = l;
    zero.x = numbers_from(CDDP_F32, nothing, usual[0] * usual[1]);
    zero.bias = numbers_from(CDDP_F32, nothing, usual[2]);
    cuda_ok(cuda->kernels->linear(cuda, &zero.shape, zero.x.device, zero.weight.device,
                                  zero.bias.device, zero.y.device, NULL));
    assert_int_equal(chosen(&l, 2), FAKE_CUBLASLT_ANYTHING);
    numbers_free(&zero.x);
    numbers_free(&zero.bias);
    layer_free(&l);
    free(nothing);
}

/* Measured by a call that adds: what was there must still be there. */
static void measuring_keeps_what_is_added_to(void **state)
{
    (void)state;
    NEEDS_CUDA();
    reopen("same", "");
    check_all_weights(false);
}

static void without_epilogues_there_are_kernels_of_our_own(void **state)
{
    (void)state;
    NEEDS_FAKE();
    reopen("same", "plain");
    check_all_forward();
    check_all_inputs();
    check_all_weights(true);
}

static void a_library_that_does_not_start_is_an_error(void **state)
{
    struct cddpi_cuda_linear shape = {CDDP_F32, 1, 1, 1, CDDPI_EPILOGUE_NONE, false};
    void *memory;

    (void)state;
    NEEDS_FAKE();
    reopen("same", "broken");
    memory = cuda_alloc(256);
    assert_int_equal(cuda->kernels->linear(cuda, &shape, memory, memory, NULL, memory, NULL),
                     CDDP_ERR_DEVICE);
    assert_true(last_error_has("cublasLtCreate: the library was not initialized"));
    cuda_release(memory);
}

static void without_the_library_a_product_says_so(void **state)
{
    struct cddpi_cuda_linear shape = {CDDP_F32, 1, 1, 1, CDDPI_EPILOGUE_NONE, false};

    (void)state;
    NEEDS_FAKE();
    setenv("CDDP_FAKE_CUDA_WITHOUT", "cublasLt", 1);
    for (int i = 0; i < 2; i++) { /* nothing is left behind */
        assert_int_equal(cuda->kernels->linear(cuda, &shape, NULL, NULL, NULL, NULL, NULL),
                         CDDP_ERR_UNAVAILABLE);
        assert_true(last_error_has("cublasLt"));
    }
    unsetenv("CDDP_FAKE_CUDA_WITHOUT");
}

static void a_choice_that_is_none_is_an_error(void **state)
{
    struct cddpi_cuda_linear shape = {CDDP_F32, 1, 1, 1, CDDPI_EPILOGUE_NONE, false};

    (void)state;
    NEEDS_CUDA();
    reopen("quick", "");
    assert_int_equal(cuda->kernels->linear(cuda, &shape, NULL, NULL, NULL, NULL, NULL),
                     CDDP_ERR_ARGUMENT);
    assert_true(last_error_has("CDDP_PRODUCTS=quick is not one of first, same and fast"));
}

/* 1 + 2^-12 is 1 in TF32. */
static void factors_are_rounded_to_tf32_only_if_that_is_asked_for(void **state)
{
    struct cddpi_cuda_linear shape = {CDDP_F32, 16, 16, 16, CDDPI_EPILOGUE_NONE, false};

    (void)state;
    NEEDS_CUDA();
    for (int tf32 = 0; tf32 < 2; tf32++) {
        struct numbers x;
        struct numbers y;

        setenv("CDDP_TF32", tf32 != 0 ? "1" : "0", 1);
        reopen("same", "");
        x = random_numbers(CDDP_F32, 1, 256, 0, 1 + 0x1p-12f);
        y = no_numbers(CDDP_F32, 256);
        cuda_ok(cuda->kernels->linear(cuda, &shape, x.device, x.device, NULL, y.device, NULL));
        numbers_fetch(&y);
        if (tf32 == 0) {
            assert_true(y.host[7] > 16.007f);
        } else if (started != NULL) { /* a card may, but need not, round so small a product */
            assert_true(y.host[7] == 16);
        }
        numbers_free(&x);
        numbers_free(&y);
    }
}

static void products_can_be_recorded_once_there_was_one(void **state)
{
    struct cddpi_captured_graph *captured;
    struct layer l;

    (void)state;
    NEEDS_CUDA();
    if (cuda->ops->capture_begin == NULL) {
        skip();
    }
    reopen("same", "");
    layer_make(&l, CDDP_BF16, usual);
    cuda_ok(cuda->ops->capture_begin(cuda));
    assert_int_equal(
        cuda->kernels->linear(cuda, &l.shape, l.x.device, l.weight.device, NULL, l.y.device, NULL),
        CDDP_ERR_UNAVAILABLE);
    assert_true(last_error_has("cannot be captured"));
    if (cuda->ops->capture_end(cuda, &captured) == CDDP_OK) {
        cuda->ops->graph_destroy(cuda, captured);
    }
    check_forward(&l, CDDPI_EPILOGUE_NONE, false, false);
    cuda_ok(cuda->ops->capture_begin(cuda));
    l.shape.epilogue = CDDPI_EPILOGUE_RELU; /* a shape that was never measured */
    cuda_ok(cuda->kernels->linear(cuda, &l.shape, l.x.device, l.weight.device, l.bias.device,
                                  l.y.device, NULL));
    cuda_ok(cuda->ops->capture_end(cuda, &captured));
    cuda_ok(cuda->ops->replay(cuda, captured));
    cuda_ok(cuda->ops->finish(cuda, 60000));
    find_sum(&l, true);
    for (size_t i = 0; i < l.y.count; i++) {
        l.sum[i] = fmax(l.sum[i], 0);
    }
    numbers_near(&l.y, l.sum, 0, slack(&l), "a recorded product");
    cuda->ops->graph_destroy(cuda, captured);
    layer_free(&l);
}

#define CHOICE(test) cmocka_unit_test_teardown(test, as_it_was)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHOICE(a_gradient_that_has_moved_needs_no_new_choice),
        CHOICE(the_librarys_choice_is_taken_if_that_is_asked_for),
        CHOICE(the_fastest_that_gives_the_same_bits_is_chosen),
        CHOICE(a_few_elements_of_16_bits_do_not_decide),
        CHOICE(the_fastest_of_all_is_chosen_if_that_is_asked_for),
        CHOICE(the_fastest_of_all_is_chosen_for_who_takes_any_order),
        CHOICE(the_workspace_of_fast_products_is_announced),
        CHOICE(an_algorithm_that_gives_other_bits_each_time_is_not_chosen),
        CHOICE(sums_are_not_split_in_the_outputs_type),
        CHOICE(the_fastest_of_many_is_found),
        CHOICE(in_any_order_split_sums_may_be_added_in_the_outputs_type_if_that_is_float32),
        CHOICE(data_that_tells_nothing_decides_nothing),
        CHOICE(measuring_keeps_what_is_added_to),
        CHOICE(without_epilogues_there_are_kernels_of_our_own),
        CHOICE(a_library_that_does_not_start_is_an_error),
        CHOICE(without_the_library_a_product_says_so),
        CHOICE(a_choice_that_is_none_is_an_error),
        CHOICE(factors_are_rounded_to_tf32_only_if_that_is_asked_for),
        CHOICE(products_can_be_recorded_once_there_was_one),
    };

    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
