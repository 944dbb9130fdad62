/* test_cuda_layers.c - local response normalisation, copies of columns, and a step of an LSTM on
 * the device, against float64. */
#include "support/cuda.h"

/* type, rows, channels, size, alpha, beta, offset */
static const struct cddpi_cuda_response norms[] = {
    {CDDP_F32, 7, 1, 5, 1e-4F, 0.75F, 1},
    {CDDP_F32, 300, 5, 3, 0.5F, 0.75F, 2},
    {CDDP_F32, 40, 24, 4, 0.9F, 0.5F, 1.5F},
    {CDDP_F32, 3, 6, 9, 2, 1.25F, 0.5F},
    {CDDP_F32, 0, 6, 5, 1, 1, 1},
    {CDDP_F32, 11, 4, 1, 1, 0.75F, 1},
};

/* What value @p c of a row is divided by, before the power. */
static double below(const struct cddpi_cuda_response *norm, const float *row, int c)
{
    double sum = 0;

    for (int k = c - norm->size / 2; k < c - norm->size / 2 + norm->size; k++) {
        sum += k >= 0 && k < norm->channels ? (double)row[k] * (double)row[k] : 0;
    }
    return (double)norm->offset + (double)norm->alpha / norm->size * sum;
}

static double norm_gradient(const struct cddpi_cuda_response *norm, const float *x, const float *dy,
                            int c)
{
    double made = (double)dy[c] * pow(below(norm, x, c), -(double)norm->beta);

    for (int k = 0; k < norm->channels; k++) {
        int first = k - norm->size / 2;

        if (c >= first && c < first + norm->size) {
            made -= 2 * (double)norm->alpha / norm->size * (double)norm->beta * (double)x[c] *
                    (double)dy[k] * (double)x[k] * pow(below(norm, x, k), -(double)norm->beta - 1);
        }
    }
    return made;
}

static void check_norm(const struct cddpi_cuda_response *norm)
{
    size_t channels = (size_t)norm->channels;
    size_t count = norm->rows * channels;
    struct numbers x = random_numbers(norm->type, 1, count, 2, 0);
    struct numbers dy = random_numbers(norm->type, 2, count, 1, 0);
    struct numbers y = no_numbers(norm->type, count);
    double *expected = calloc(count + 1, sizeof *expected);
    double *gradient = calloc(count + 1, sizeof *gradient);
    float *scratch = cuda_alloc((count + 1) * sizeof *scratch);

    for (size_t i = 0; i < count; i++) {
        size_t row = i / channels * channels;
        int c = (int)(i % channels);

        expected[i] = (double)x.host[i] * pow(below(norm, x.host + row, c), -(double)norm->beta);
        gradient[i] = norm_gradient(norm, x.host + row, dy.host + row, c);
    }
    cuda_ok(cuda->kernels->response_norm(cuda, norm, x.device, y.device));
    numbers_near(&y, expected, 2e-6, 0, "response_norm");
    cuda_ok(cuda->kernels->response_norm_grad(cuda, norm, dy.device, x.device, scratch, dy.device));
    numbers_near(&dy, gradient, 4e-6, 4e-6, "response_norm_grad"); /* in place */
    cuda_release(scratch);
    free(expected);
    free(gradient);
    numbers_free(&x);
    numbers_free(&dy);
    numbers_free(&y);
}

static void response_norm_and_its_gradient_are_those_of_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * COUNT_OF(norms); i++) {
        struct cddpi_cuda_response norm = norms[i / COUNT_OF(cuda_types)];

        norm.type = cuda_types[i % COUNT_OF(cuda_types)];
        check_norm(&norm);
    }
}

/* rows, all columns, the first one, how many */
static const size_t parts[][4] = {{5, 6, 0, 2},   {300, 7, 4, 3},  {33, 32, 16, 8},
                                  {9, 48, 8, 16}, {17, 24, 20, 4}, {0, 8, 0, 8}};

static void check_columns(cddp_type type, size_t rows, size_t all, size_t first, size_t columns)
{
    struct numbers x = random_numbers(type, 1, rows * all, 2, 0);
    struct numbers part = no_numbers(type, rows * columns);
    struct numbers back = random_numbers(type, 2, rows * all, 2, 0);
    double *expected = calloc(rows * all + 1, sizeof *expected);

    for (size_t i = 0; i < rows * columns; i++) {
        expected[i] = (double)x.host[i / columns * all + first + i % columns];
    }
    cuda_ok(
        cuda->kernels->take_columns(cuda, type, x.device, rows, all, first, columns, part.device));
    numbers_near(&part, expected, 0, 0, "take_columns");
    for (size_t i = 0; i < rows * all; i++) {
        bool in = i % all >= first && i % all < first + columns;

        expected[i] = (double)(in ? x : back).host[i];
    }
    cuda_ok(cuda->kernels->put_columns(cuda, type, part.device, rows, all, first, columns,
                                       back.device));
    numbers_near(&back, expected, 0, 0, "put_columns");
    free(expected);
    numbers_free(&x);
    numbers_free(&part);
    numbers_free(&back);
}

static void columns_are_taken_and_put_back_alone(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * COUNT_OF(parts); i++) {
        const size_t *part = parts[i / COUNT_OF(cuda_types)];

        check_columns(cuda_types[i % COUNT_OF(cuda_types)], part[0], part[1], part[2], part[3]);
    }
}

enum { ROWS = 3, LENGTH = 3, UNITS = 100, ELEMENTS = ROWS * LENGTH * UNITS, ALONE = ROWS * UNITS };

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Where gate @p k of element @p i of a step's ROWS x UNITS lies among all gates. */
static size_t gate_at(size_t step, size_t i, size_t k)
{
    return (i / UNITS * LENGTH + step) * 4 * UNITS + k * UNITS + i % UNITS;
}

static size_t output_at(size_t step, size_t i)
{
    return (i / UNITS * LENGTH + step) * UNITS + i % UNITS;
}

/* One step forward; other steps' places must stay as they are. */
static void check_forward(cddp_type type, size_t step, bool biases)
{
    const struct cddpi_cuda_lstm shape = {type, ROWS, LENGTH, UNITS};
    struct numbers gates = random_numbers(type, 1, 4 * ELEMENTS, 3, 0);
    struct numbers recurrent = random_numbers(type, 2, 4 * ALONE, 1, 0);
    struct numbers cells = random_numbers(CDDP_F32, 3, ELEMENTS, 1, 0);
    struct numbers out = random_numbers(type, 4, ELEMENTS, 1, 0);
    struct numbers last = no_numbers(type, ALONE);
    struct numbers bias[2] = {random_numbers(CDDP_F32, 5, 4 * UNITS, 1, 0),
                              random_numbers(CDDP_F32, 6, 4 * UNITS, 1, 0)};
    static double of_gates[4 * ELEMENTS], of_cells[ELEMENTS], of_out[ELEMENTS], of_last[ALONE];

    for (size_t i = 0; i < 4 * ELEMENTS; i++) {
        of_gates[i] = (double)gates.host[i];
    }
    for (size_t i = 0; i < ELEMENTS; i++) {
        of_cells[i] = (double)cells.host[i];
        of_out[i] = (double)out.host[i];
    }
    for (size_t i = 0; i < ALONE; i++) {
        double *at[4];

        for (size_t k = 0; k < 4; k++) {
            size_t column = k * UNITS + i % UNITS;

            at[k] = &of_gates[gate_at(step, i, k)];
            *at[k] += (step > 0 ? (double)recurrent.host[i / UNITS * 4 * UNITS + column] : 0) +
                      (biases ? (double)bias[0].host[column] + (double)bias[1].host[column] : 0);
            *at[k] = k == 2 ? tanh(*at[k]) : sigmoid(*at[k]);
        }
        of_cells[output_at(step, i)] = (step > 0 ? *at[1] * of_cells[output_at(step - 1, i)] : 0) +
                                       *at[0] * *at[2];
        of_out[output_at(step, i)] = *at[3] * tanh(of_cells[output_at(step, i)]);
        of_last[i] = of_out[output_at(step, i)];
    }
    cuda_ok(cuda->kernels->lstm(cuda, &shape, step, biases ? bias[0].device : NULL,
                                biases ? bias[1].device : NULL, step > 0 ? recurrent.device : NULL,
                                gates.device, cells.device, out.device, last.device));
    numbers_near(&gates, of_gates, 2e-6, 2e-6, "lstm: gates");
    numbers_near(&cells, of_cells, 4e-6, 4e-6, "lstm: cells");
    numbers_near(&out, of_out, 4e-6, 4e-6, "lstm: outputs");
    numbers_near(&last, of_last, 4e-6, 4e-6, "lstm: outputs of the step");
    numbers_free(&gates);
    numbers_free(&recurrent);
    numbers_free(&cells);
    numbers_free(&out);
    numbers_free(&last);
    numbers_free(&bias[0]);
    numbers_free(&bias[1]);
}

/* What a step of backward reads, and where it writes. */
struct backward {
    struct numbers dy, carried_out, carried_cell, cells, out, gates, step_grads, before;
};

static struct backward make_backward(cddp_type type)
{
    return (struct backward){random_numbers(type, 1, ELEMENTS, 1, 0),
                             random_numbers(type, 2, ALONE, 1, 0),
                             random_numbers(CDDP_F32, 3, ALONE, 1, 0),
                             random_numbers(CDDP_F32, 4, ELEMENTS, 1, 0),
                             random_numbers(type, 5, ELEMENTS, 1, 0),
                             random_numbers(type, 6, 4 * ELEMENTS, 1, 0),
                             no_numbers(type, 4 * ALONE),
                             random_numbers(type, 7, ELEMENTS, 1, 0)};
}

static void free_backward(struct backward *b)
{
    numbers_free(&b->dy);
    numbers_free(&b->carried_out);
    numbers_free(&b->carried_cell);
    numbers_free(&b->cells);
    numbers_free(&b->out);
    numbers_free(&b->gates);
    numbers_free(&b->step_grads);
    numbers_free(&b->before);
}

/* The gradients of the gates of element @p i, and of the cell that it began from. */
static double expect_element(const struct backward *b, size_t step, size_t i, double grads[4])
{
    double gate[4];
    double t = tanh((double)b->cells.host[output_at(step, i)]);
    bool carries = step + 1 < LENGTH;
    double dh = (double)b->dy.host[output_at(step, i)] +
                (carries ? (double)b->carried_out.host[i] : 0);
    double c = step > 0 ? (double)b->cells.host[output_at(step - 1, i)] : 0;
    double dc;

    for (size_t k = 0; k < 4; k++) {
        gate[k] = (double)b->gates.host[gate_at(step, i, k)];
    }
    dc = (carries ? (double)b->carried_cell.host[i] : 0) + dh * gate[3] * (1 - t * t);
    grads[0] = dc * gate[2] * gate[0] * (1 - gate[0]);
    grads[1] = dc * c * gate[1] * (1 - gate[1]);
    grads[2] = dc * gate[0] * (1 - gate[2] * gate[2]);
    grads[3] = dh * t * gate[3] * (1 - gate[3]);
    return dc * gate[1];
}

static void check_backward(cddp_type type, size_t step)
{
    const struct cddpi_cuda_lstm shape = {type, ROWS, LENGTH, UNITS};
    struct backward b = make_backward(type);
    static double of_gates[4 * ELEMENTS], of_step[4 * ALONE], of_cell[ALONE], of_before[ELEMENTS];

    for (size_t i = 0; i < 4 * ELEMENTS; i++) {
        of_gates[i] = (double)b.gates.host[i];
    }
    for (size_t i = 0; i < ELEMENTS; i++) {
        of_before[i] = (double)b.before.host[i];
    }
    for (size_t i = 0; i < ALONE; i++) {
        double grads[4];

        of_cell[i] = expect_element(&b, step, i, grads);
        for (size_t k = 0; k < 4; k++) {
            of_gates[gate_at(step, i, k)] = grads[k];
            of_step[i / UNITS * 4 * UNITS + k * UNITS + i % UNITS] = grads[k];
        }
        of_before[output_at(step, i)] = step > 0 ? (double)b.out.host[output_at(step - 1, i)] : 0;
    }
    cuda_ok(cuda->kernels->lstm_grad(cuda, &shape, step, b.dy.device,
                                     step + 1 < LENGTH ? b.carried_out.device : NULL,
                                     b.carried_cell.device, b.cells.device, b.out.device,
                                     b.gates.device, b.step_grads.device, b.before.device));
    numbers_near(&b.gates, of_gates, 4e-6, 4e-6, "lstm_grad: gates");
    numbers_near(&b.step_grads, of_step, 4e-6, 4e-6, "lstm_grad: gates of the step");
    numbers_near(&b.carried_cell, of_cell, 4e-6, 4e-6, "lstm_grad: cells");
    numbers_near(&b.before, of_before, 0, 0, "lstm_grad: outputs before");
    free_backward(&b);
}

static void steps_of_an_lstm_are_those_of_float64(void **state)
{
    (void)state;
    NEEDS_CUDA();
    for (size_t i = 0; i < COUNT_OF(cuda_types) * LENGTH; i++) {
        check_forward(cuda_types[i / LENGTH], i % LENGTH, i % 2 == 0);
        check_backward(cuda_types[i / LENGTH], i % LENGTH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(response_norm_and_its_gradient_are_those_of_float64),
        cmocka_unit_test(columns_are_taken_and_put_back_alone),
        cmocka_unit_test(steps_of_an_lstm_are_those_of_float64),
    };

    return RUN_ON_CUDA(tests);
}
