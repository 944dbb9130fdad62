/* cuda_matmul.c - one linear layer on a CUDA device and in float64: its outputs, the gradients of
 * its inputs and weights, and the allowed difference. */
#include "support/cuda_matmul.h"

/* Rows, inputs and outputs: some shapes suit every epilogue, others none. */
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

double *zeros(size_t count)
{
    return calloc(count, sizeof(double));
}

void layer_make(struct layer *l, cddp_type type, const size_t *shape)
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

void layer_free(struct layer *l)
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

void find_sum(struct layer *l, bool bias)
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

double slack(const struct layer *l)
{
    size_t longest = l->shape.rows > l->shape.outputs ? l->shape.rows : l->shape.outputs;

    longest = longest > l->shape.inputs ? longest : l->shape.inputs;
    return 3e-7 * (double)(longest + 8) + 2 * rounding_of(l->shape.type, 2);
}

/* --- y --- */

void check_forward(struct layer *l, enum cddpi_cuda_epilogue epilogue, bool bias, bool aux)
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

void check_all_forward(void)
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
                check_forward(&l, CDDPI_EPILOGUE_GELU, bias != 0, true); /* with the algorithm that
                                                                            was chosen before */
            }
            layer_free(&l);
        }
    }
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

void check_all_inputs(void)
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

/* Compute the weights' gradients: first replace (@p replaces), then add twice to existing values
 * (numbers of stream 20). */
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

void check_all_weights(bool replaces)
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
