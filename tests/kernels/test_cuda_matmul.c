/* test_cuda_matmul.c - products of linear layers on a CUDA device against float64. */
#include "support/cuda_matmul.h"
#include "support/failure.h"

/* --- y --- */

static void outputs_are_near_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    check_all_forward();
}

/* --- dx --- */

static void gradients_of_inputs_are_near_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    check_all_inputs();
}

/* --- dweight, dbias --- */

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
    assert_true(last_error_has("1 rows, 0 inputs and 1 outputs"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_near_float64),
        cmocka_unit_test(gradients_of_inputs_are_near_float64),
        cmocka_unit_test(gradients_of_weights_replace_or_add),
        cmocka_unit_test(no_rows_have_no_gradients),
        cmocka_unit_test(shapes_that_cannot_be_are_errors),
    };

    return cmocka_run_group_tests(tests, cuda_open, cuda_close);
}
