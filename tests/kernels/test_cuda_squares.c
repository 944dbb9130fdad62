/* test_cuda_squares.c - sums of squares, clipping and loss scales on a CUDA device equal the CPU's,
 * bit by bit. */
#include "support/cuda_update.h"

static struct cddpi_exact_sum squares_of(const struct model *model)
{
    struct cddpi_exact_sum *out = cuda_alloc(sizeof *out);
    struct cddpi_exact_sum *host;
    struct cddpi_exact_sum sum;

    cuda_ok(cuda->kernels->squares(cuda, &model->made, out));
    host = cuda_download(out, sizeof *out);
    sum = *host;
    free(host);
    cuda_release(out);
    return sum;
}

/* Each sum begins at zero. */
static void squares_are_those_of_the_processor(void **state)
{
    struct cddpi_exact_sum expected = {{0}};
    struct model model;

    (void)state;
    NEEDS_CUDA();
    make(&model, CDDP_BF16, false);
    for (int i = 0; i < TENSORS; i++) {
        cddpi_optim_kernels()->add_squares(model.tensors[i].g, model.tensors[i].count, &expected);
    }
    cddpi_exact_carry(&expected);
    for (int i = 0; i < 3; i++) {
        struct cddpi_exact_sum sum = squares_of(&model);

        assert_memory_equal(&sum, &expected, sizeof sum);
    }
    unmake(&model);
}

enum { COUNT = 50001 };

/* The same numbers in a tensor that is aligned, or not. */
static void expect_squares(const float *host, bool finite)
{
    struct cddpi_exact_sum expected = {{0}};

    cddpi_optim_kernels()->add_squares(host, COUNT, &expected);
    cddpi_exact_carry(&expected);
    for (size_t late = 0; late < 2; late++) {
        struct cddpi_exact_sum sum;
        struct cddpi_cuda_slot slot = {.count = COUNT};
        struct model model = {.copy_type = CDDP_BF16};
        void *memory;

        slot.grad = placed(&memory, host, COUNT * sizeof *host, late * sizeof(float));
        slot.param = memory;
        model.table = cuda_alloc(cuda->kernels->tensors_bytes(&slot, 1));
        cuda_ok(cuda->kernels->tensors(cuda, &slot, 1, model.table, &model.made));
        sum = squares_of(&model);
        if (finite) {
            assert_memory_equal(&sum, &expected, sizeof sum);
        } else {
            double value = cddpi_exact_value(&sum);
            double wanted = cddpi_exact_value(&expected);

            assert_true(isnan(wanted) ? isnan(value) : value == wanted);
        }
        cuda_release(model.table);
        cuda_release(memory);
    }
}

/* Of numbers that are as different as can be, and of all magnitudes between. */
static void squares_of_any_numbers_are_exact(void **state)
{
    float *host;

    (void)state;
    NEEDS_CUDA();
    host = some(77, COUNT, 1);
    expect_squares(host, true);
    for (size_t i = 0; i < COUNT; i++) { /* in float64, sums of 16 differ by 2^30, then by 2^540 */
        host[i] = ldexpf(host[i],
                         i / 5000 % 2 == 0 ? -(int)(i / 16 % 16) : (int)(i / 32 % 270) - 145);
    }
    expect_squares(host, true);
    memset(host, 0, COUNT * sizeof *host);
    expect_squares(host, true);
    host[COUNT - 1] = 0x1p-149F;
    expect_squares(host, true);
    host[17] = (float)-INFINITY;
    expect_squares(host, false);
    host[40000] = (float)NAN;
    expect_squares(host, false);
    host[17] = 1;
    host[40000] = -(float)NAN;
    expect_squares(host, false);
    free(host);
}

static void no_tensors_have_no_squares_and_no_update(void **state)
{
    const struct cddpi_exact_sum none = {{0}};
    struct cddpi_cuda_update update = adamw;
    struct model model = {.copy_type = CDDP_BF16};
    struct cddpi_exact_sum sum;
    const double lr = 1;

    (void)state;
    NEEDS_CUDA();
    cuda_ok(cuda->kernels->tensors(cuda, NULL, 0, NULL, &model.made));
    assert_int_equal(cuda->kernels->tensors_bytes(NULL, 0), 0);
    sum = squares_of(&model);
    assert_memory_equal(&sum, &none, sizeof sum);
    model.lr = cuda_upload(&lr, sizeof lr);
    update.lr = model.lr;
    cuda_ok(cuda->kernels->update(cuda, &update, &model.made));
    cuda_release(model.lr);
}

struct clipped {
    double norm;
    float scale;
    int32_t skip;
};

static struct clipped clip(double squares, float loss_scale, double limit)
{
    struct cddpi_exact_sum sum = {{0}};
    struct cddpi_exact_sum *in;
    float *by = cuda_upload(&loss_scale, sizeof loss_scale);
    char *out = cuda_alloc(sizeof(struct clipped));
    struct clipped *host;
    struct clipped result;

    for (int i = 0; i < 8; i++) { /* as of eight ranks */
        cddpi_exact_add(&sum, squares / 8);
    }
    in = cuda_upload(&sum, sizeof sum);
    cuda_ok(cuda->kernels->clip(cuda, in, loss_scale != 0 ? by : NULL, limit,
                                (float *)(void *)(out + offsetof(struct clipped, scale)),
                                (int32_t *)(void *)(out + offsetof(struct clipped, skip)),
                                (double *)(void *)(out + offsetof(struct clipped, norm))));
    host = cuda_download(out, sizeof *host);
    result = *host;
    free(host);
    cuda_release(out);
    cuda_release(in);
    cuda_release(by);
    return result;
}

static void clipping_is_the_training_loops(void **state)
{
    const double squares = 7.3;
    double norm = sqrt(squares);
    struct clipped result;

    (void)state;
    NEEDS_CUDA();
    result = clip(squares, 0, 0);
    assert_true(result.scale == 1 && result.skip == 0 && result.norm == norm);
    result = clip(squares, 0, 100);
    assert_true(result.scale == 1 && result.norm == norm);
    result = clip(squares, 0, 0.1);
    assert_true(result.scale == (float)(0.1 / norm) && result.norm == norm);
    /* of gradients times 1024 */
    result = clip(squares * 1024 * 1024, 1024, 0.1);
    assert_true(result.scale == (float)(0.1 / norm / 1024) && result.norm == norm);
    result = clip(squares * 1024 * 1024, 1024, 0);
    assert_true(result.scale == 1.0f / 1024 && result.skip == 0);
}

static void what_is_not_finite_is_skipped(void **state)
{
    struct clipped result;

    (void)state;
    NEEDS_CUDA();
    result = clip((double)INFINITY, 1024, 1);
    assert_true(result.skip == 1 && result.scale == 0);
    result = clip((double)NAN, 0, 0);
    assert_true(result.skip == 1 && result.scale == 0);
}

static void loss_scales_move_as_on_the_processor(void **state)
{
    static const bool allowed[] = {true,  true,  true,  false, true, true,  false, false,
                                   true,  true,  true,  true,  true, true,  true,  true,
                                   false, false, false, false, true, false, false};
    struct cddpi_loss_scale here;
    float *scale;
    int32_t *good;
    int32_t *skip;
    const int32_t none = 0;

    (void)state;
    NEEDS_CUDA();
    cddpi_loss_scale_init(&here);
    here.interval = 3;
    here.scale = 0x1p126f;   /* so that it grows to where it must not ... */
    here.least = 0x1.8p124f; /* ... and falls to where it stays */
    scale = cuda_upload(&here.scale, sizeof here.scale);
    good = cuda_upload(&none, sizeof none);
    skip = cuda_alloc(sizeof *skip);
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        int32_t skips = !allowed[i];
        float *moved;
        int32_t *steps;

        cuda_copy(skip, &skips, sizeof skips);
        cuda_ok(cuda->kernels->scale_loss(cuda, skip, here.growth, here.backoff, here.least,
                                          (int32_t)here.interval, scale, good));
        cddpi_loss_scale_update(&here, allowed[i]);
        moved = cuda_download(scale, sizeof *scale);
        steps = cuda_download(good, sizeof *good);
        assert_true(*moved == here.scale);
        assert_int_equal(*steps, here.good_steps);
        free(moved);
        free(steps);
    }
    cuda_release(scale);
    cuda_release(good);
    cuda_release(skip);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares_are_those_of_the_processor),
        cmocka_unit_test(squares_of_any_numbers_are_exact),
        cmocka_unit_test(no_tensors_have_no_squares_and_no_update),
        cmocka_unit_test(clipping_is_the_training_loops),
        cmocka_unit_test(what_is_not_finite_is_skipped),
        cmocka_unit_test(loss_scales_move_as_on_the_processor),
    };

    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
