/* test_cuda_product.c - products of linear layers on a CUDA device against float64, and how their
 * algorithms are chosen. */
#include "cuda_support.h"
#include "fake_cuda/fake_cublaslt.h"

#include <dlfcn.h>

/* Rows, inputs and outputs: some that every epilogue takes, some that none does. */
static const size_t shapes[][3] = {{1, 1, 1},    {3, 5, 7},    {16, 32, 24},
                                   {17, 64, 40}, {33, 48, 10}, {5, 130, 64}};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* --- in float64 --- */

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.79788456080286536 * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286536 * (1 + 3 * 0.044715 * x * x);
}

static double *zeros(size_t count)
{
    return calloc(count, sizeof(double));
}

/* One layer's arrays, there and here, and what should come out. */
struct layer {
    struct cddpi_cuda_linear shape;
    struct numbers x, weight, bias, y, aux;
    struct numbers dy, dx, dweight, dbias;
    double *sum; /* rows x outputs: x W^T (+ bias) */
};

static void layer_make(struct layer *l, cddp_type type, const size_t *shape)
{
    size_t rows = shape[0];
    size_t inputs = shape[1];
    size_t outputs = shape[2];

    *l = (struct layer){
        .shape = {.type = type, .rows = rows, .inputs = inputs, .outputs = outputs}};
    l->x = random_numbers(type, 1, rows * inputs, 1, 0);
    l->weight = random_numbers(type, 2, outputs * inputs, 1 / sqrtf((float)inputs), 0);
    l->bias = random_numbers(type, 3, outputs, 1, 0.2f);
    l->y = no_numbers(type, rows * outputs);
    l->aux = no_numbers(type, rows * outputs);
    l->dy = random_numbers(type, 4, rows * outputs, 1, 0);
    l->dx = no_numbers(type, rows * inputs);
    l->dweight = no_numbers(CDDP_F32, outputs * inputs);
    l->dbias = no_numbers(CDDP_F32, outputs);
    l->sum = zeros(rows * outputs);
}

static void layer_free(struct layer *l)
{
    numbers_free(&l->x);
    numbers_free(&l->weight);
    numbers_free(&l->bias);
    numbers_free(&l->y);
    numbers_free(&l->aux);
    numbers_free(&l->dy);
    numbers_free(&l->dx);
    numbers_free(&l->dweight);
    numbers_free(&l->dbias);
    free(l->sum);
}

static void find_sum(struct layer *l, bool bias)
{
    for (size_t r = 0; r < l->shape.rows; r++) {
        for (size_t o = 0; o < l->shape.outputs; o++) {
            double sum = bias ? (double)l->bias.host[o] : 0;

            for (size_t i = 0; i < l->shape.inputs; i++) {
                sum += (double)l->x.host[r * l->shape.inputs + i] *
                       (double)l->weight.host[o * l->shape.inputs + i];
            }
            l->sum[r * l->shape.outputs + o] = sum;
        }
    }
}

/* Of float32 sums; and for 16 bits what an epilogue of our own rounds in between. */
static double slack(const struct layer *l)
{
    size_t longest = l->shape.rows > l->shape.outputs ? l->shape.rows : l->shape.outputs;

    longest = longest > l->shape.inputs ? longest : l->shape.inputs;
    return 3e-7 * (double)(longest + 8) + 2 * rounding_of(l->shape.type, 2);
}

/* --- y --- */

static void check_forward(struct layer *l, enum cddpi_cuda_epilogue epilogue, bool bias, bool aux)
{
    size_t count = l->shape.rows * l->shape.outputs;
    double *expected = zeros(count);

    l->shape.epilogue = epilogue;
    find_sum(l, bias);
    for (size_t i = 0; i < count; i++) {
        expected[i] = epilogue == CDDPI_EPILOGUE_GELU   ? gelu(l->sum[i])
                      : epilogue == CDDPI_EPILOGUE_RELU ? fmax(l->sum[i], 0)
                                                        : l->sum[i];
    }
    cuda_ok(cuda->kernels->linear(cuda, &l->shape, l->x.device, l->weight.device,
                                  bias ? l->bias.device : NULL, l->y.device,
                                  aux ? l->aux.device : NULL));
    numbers_near(&l->y, expected, 0, slack(l), "linear");
    if (aux) {
        numbers_near(&l->aux, l->sum, 0, slack(l), "what the GELU was applied to");
    }
    free(expected);
}

static void check_all_forward(void)
{
    for (size_t t = 0; t < 3; t++) {
        for (int s = 0; s < SHAPES; s++) {
            struct layer l;

            layer_make(&l, cuda_types[t], shapes[s]);
            for (int bias = 0; bias < 2; bias++) {
                check_forward(&l, CDDPI_EPILOGUE_NONE, bias != 0, false);
                check_forward(&l, CDDPI_EPILOGUE_RELU, bias != 0, false);
                check_forward(&l, CDDPI_EPILOGUE_GELU, bias != 0, false);
                check_forward(&l, CDDPI_EPILOGUE_GELU, bias != 0, true);
                check_forward(&l, CDDPI_EPILOGUE_GELU, bias != 0, true); /* by what was chosen */
            }
            layer_free(&l);
        }
    }
}

static void outputs_are_near_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    check_all_forward();
}

/* --- dx --- */

static void check_input(struct layer *l, bool behind_gelu)
{
    size_t count = l->shape.rows * l->shape.inputs;
    struct numbers before = random_numbers(l->shape.type, 9, count, 2, 0);
    double *expected = zeros(count);

    for (size_t r = 0; r < l->shape.rows; r++) {
        for (size_t i = 0; i < l->shape.inputs; i++) {
            size_t at = r * l->shape.inputs + i;

            for (size_t o = 0; o < l->shape.outputs; o++) {
                expected[at] += (double)l->dy.host[r * l->shape.outputs + o] *
                                (double)l->weight.host[o * l->shape.inputs + i];
            }
            expected[at] *= behind_gelu ? gelu_slope((double)before.host[at]) : 1;
        }
    }
    cuda_ok(cuda->kernels->linear_input(cuda, &l->shape, l->dy.device, l->weight.device,
                                        behind_gelu ? before.device : NULL, l->dx.device));
    numbers_near(&l->dx, expected, 0, slack(l) * (1 + (double)l->shape.outputs / 8),
                 "the gradient of inputs");
    free(expected);
    numbers_free(&before);
}

static void check_all_inputs(void)
{
    for (size_t t = 0; t < 3; t++) {
        for (int s = 0; s < SHAPES; s++) {
            struct layer l;

            layer_make(&l, cuda_types[t], shapes[s]);
            check_input(&l, false);
            check_input(&l, true);
            check_input(&l, true);
            layer_free(&l);
        }
    }
}

static void gradients_of_inputs_are_near_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    check_all_inputs();
}

/* --- dweight, dbias --- */

static void find_weight_grads(const struct layer *l, double *dweight, double *dbias)
{
    for (size_t r = 0; r < l->shape.rows; r++) {
        for (size_t o = 0; o < l->shape.outputs; o++) {
            double dy = (double)l->dy.host[r * l->shape.outputs + o];

            dbias[o] += dy;
            for (size_t i = 0; i < l->shape.inputs; i++) {
                dweight[o * l->shape.inputs + i] += dy * (double)l->x.host[r * l->shape.inputs + i];
            }
        }
    }
}

/* Replaced first, if @p replaces, then twice added to what is there: numbers of stream 20. */
static void check_weight(struct layer *l, bool bias, bool replaces)
{
    size_t count = l->shape.inputs * l->shape.outputs;
    struct numbers dweight = random_numbers(CDDP_F32, 20, count, 1, 0);
    struct numbers dbias = random_numbers(CDDP_F32, 20, l->shape.outputs, 1, 0);
    double *expected = zeros(count);
    double *expected_bias = zeros(l->shape.outputs);

    if (!replaces) {
        for (size_t i = 0; i < count; i++) {
            expected[i] = (double)dweight.host[i];
        }
        for (size_t i = 0; i < l->shape.outputs; i++) {
            expected_bias[i] = (double)dbias.host[i];
        }
    }
    for (int run = 0; run < 3; run++) {
        find_weight_grads(l, expected, expected_bias);
        cuda_ok(cuda->kernels->linear_weight(cuda, &l->shape, l->dy.device, l->x.device,
                                             run > 0 || !replaces, dweight.device,
                                             bias ? dbias.device : NULL));
    }
    numbers_near(&dweight, expected, 1e-6, slack(l), "the gradient of weights");
    if (bias) {
        numbers_near(&dbias, expected_bias, 1e-6, slack(l), "the gradient of biases");
    }
    free(expected);
    free(expected_bias);
    numbers_free(&dweight);
    numbers_free(&dbias);
}

static void check_all_weights(bool replaces)
{
    for (size_t t = 0; t < 3; t++) {
        for (int s = 0; s < SHAPES; s++) {
            struct layer l;

            layer_make(&l, cuda_types[t], shapes[s]);
            check_weight(&l, true, replaces);
            check_weight(&l, false, replaces);
            layer_free(&l);
        }
    }
}

static void gradients_of_weights_replace_or_add(void **state)
{
    (void)state;
    NEEDS_CUDA();
    check_all_weights(true);
}

static void no_rows_have_no_gradients(void **state)
{
    const size_t shape[] = {1, 8, 8};
    double *nothing;
    struct layer l;

    (void)state;
    NEEDS_CUDA();
    nothing = zeros(64);
    layer_make(&l, CDDP_BF16, shape);
    l.shape.rows = 0;
    cuda_ok(cuda->kernels->linear(cuda, &l.shape, l.x.device, l.weight.device, l.bias.device,
                                  l.y.device, NULL));
    cuda_ok(cuda->kernels->linear_input(cuda, &l.shape, l.dy.device, l.weight.device, NULL,
                                        l.dx.device));
    cuda_ok(cuda->kernels->linear_weight(cuda, &l.shape, l.dy.device, l.x.device, false,
                                         l.dweight.device, l.dbias.device));
    cuda_ok(cuda->kernels->linear_weight(cuda, &l.shape, l.dy.device, l.x.device, true,
                                         l.dweight.device, l.dbias.device));
    numbers_near(&l.dweight, nothing, 0, 0, "the gradient of weights");
    numbers_near(&l.dbias, nothing, 0, 0, "the gradient of biases");
    layer_free(&l);
    free(nothing);
}

static void shapes_that_cannot_be_are_errors(void **state)
{
    struct cddpi_cuda_linear shape = {CDDP_F64, 1, 1, 1, CDDPI_EPILOGUE_NONE, false};

    (void)state;
    NEEDS_CUDA();
    assert_int_equal(cuda->kernels->linear(cuda, &shape, NULL, NULL, NULL, NULL, NULL),
                     CDDP_ERR_ARGUMENT);
    shape = (struct cddpi_cuda_linear){CDDP_F32, 1, 0, 1, CDDPI_EPILOGUE_NONE, false};
    assert_int_equal(cuda->kernels->linear(cuda, &shape, NULL, NULL, NULL, NULL, NULL),
                     CDDP_ERR_ARGUMENT);
    assert_non_null(strstr(cddp_last_error(), "1 rows, 0 inputs and 1 outputs"));
}

/* --- choices: each with a device of its own --- */

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
    cuda_ok(cddpi_device_open("cuda", -1, 0, 1, true, &cuda));
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
        cuda_ok(cddpi_device_open("cuda", -1, 0, 1, true, &cuda));
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
    assert_non_null(strstr(cddp_last_error(), "cublasLtCreate: the library was not initialized"));
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
        assert_non_null(strstr(cddp_last_error(), "cublasLt"));
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
    assert_non_null(
        strstr(cddp_last_error(), "CDDP_PRODUCTS=quick is none of first, same and fast"));
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
    struct cddpi_recording *recording;
    struct layer l;

    (void)state;
    NEEDS_CUDA();
    if (cuda->ops->record_begin == NULL) {
        skip();
    }
    reopen("same", "");
    layer_make(&l, CDDP_BF16, usual);
    cuda_ok(cuda->ops->record_begin(cuda));
    assert_int_equal(
        cuda->kernels->linear(cuda, &l.shape, l.x.device, l.weight.device, NULL, l.y.device, NULL),
        CDDP_ERR_UNAVAILABLE);
    assert_non_null(strstr(cddp_last_error(), "cannot be recorded"));
    if (cuda->ops->record_end(cuda, &recording) == CDDP_OK) {
        cuda->ops->recording_destroy(cuda, recording);
    }
    check_forward(&l, CDDPI_EPILOGUE_NONE, false, false);
    cuda_ok(cuda->ops->record_begin(cuda));
    l.shape.epilogue = CDDPI_EPILOGUE_RELU; /* a shape that was never measured */
    cuda_ok(cuda->kernels->linear(cuda, &l.shape, l.x.device, l.weight.device, l.bias.device,
                                  l.y.device, NULL));
    cuda_ok(cuda->ops->record_end(cuda, &recording));
    cuda_ok(cuda->ops->replay(cuda, recording));
    cuda_ok(cuda->ops->finish(cuda, 60000));
    find_sum(&l, true);
    for (size_t i = 0; i < l.y.count; i++) {
        l.sum[i] = fmax(l.sum[i], 0);
    }
    numbers_near(&l.y, l.sum, 0, slack(&l), "a recorded product");
    cuda->ops->recording_destroy(cuda, recording);
    layer_free(&l);
}

#define CHOICE(test) cmocka_unit_test_teardown(test, as_it_was)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_near_float64),
        cmocka_unit_test(gradients_of_inputs_are_near_float64),
        cmocka_unit_test(gradients_of_weights_replace_or_add),
        cmocka_unit_test(no_rows_have_no_gradients),
        cmocka_unit_test(shapes_that_cannot_be_are_errors),
        CHOICE(a_gradient_that_has_moved_needs_no_new_choice),
        CHOICE(the_librarys_choice_is_taken_if_that_is_asked_for),
        CHOICE(the_fastest_that_gives_the_same_bits_is_chosen),
        CHOICE(a_few_elements_of_16_bits_do_not_decide),
        CHOICE(the_fastest_of_all_is_chosen_if_that_is_asked_for),
        CHOICE(the_fastest_of_all_is_chosen_for_who_takes_any_order),
        CHOICE(an_algorithm_that_gives_other_bits_each_time_is_not_chosen),
        CHOICE(sums_are_not_split_in_the_outputs_type),
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
