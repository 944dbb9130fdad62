/* cpu_loss.c - owns the losses. Rows are short (as many elements as classes), so their sums are in
 * float64. */
#include "kernels/cpu/cpu_loss.h"

#include <math.h>

static float largest(const float *x, size_t columns)
{
    float best = x[0];

    for (size_t c = 1; c < columns; c++) {
        best = x[c] > best ? x[c] : best;
    }
    return best;
}

double cddpi_nn_cross_entropy(const float *x, const int32_t *label, size_t rows, size_t columns,
                              float *grad)
{
    double loss = 0;

    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * columns;
        float best = largest(row, columns);
        double sum = 0;

        for (size_t c = 0; c < columns; c++) {
            double power = exp((double)row[c] - best);

            sum += power;
            if (grad != NULL) {
                grad[r * columns + c] = (float)power;
            }
        }
        loss += log(sum) - ((double)row[label[r]] - best);
        if (grad != NULL) {
            for (size_t c = 0; c < columns; c++) {
                double p = grad[r * columns + c] / sum;

                grad[r * columns + c] = (float)(p - (c == (size_t)label[r] ? 1.0 : 0.0));
            }
        }
    }
    return loss;
}

double cddpi_nn_mse(const float *x, const int32_t *label, size_t rows, size_t columns, float *grad)
{
    double loss = 0;

    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * columns;
        double sum = 0;

        for (size_t c = 0; c < columns; c++) {
            double difference = (double)row[c] - (c == (size_t)label[r] ? 1.0 : 0.0);

            sum += difference * difference;
            if (grad != NULL) {
                grad[r * columns + c] = (float)(2 * difference / (double)columns);
            }
        }
        loss += sum / (double)columns;
    }
    return loss;
}

double cddpi_nn_squared_error(const float *x, const float *targets, size_t rows, size_t columns,
                              float *grad)
{
    double loss = 0;

    for (size_t r = 0; r < rows; r++) {
        double sum = 0;

        for (size_t i = r * columns; i < (r + 1) * columns; i++) {
            double difference = (double)x[i] - (double)targets[i];

            sum += difference * difference;
            if (grad != NULL) {
                grad[i] = (float)(2 * difference / (double)columns);
            }
        }
        loss += sum / (double)columns;
    }
    return loss;
}

double cddpi_nn_absolute_error(const float *x, const float *targets, size_t rows, size_t columns,
                               float *grad)
{
    double loss = 0;

    for (size_t r = 0; r < rows; r++) {
        double sum = 0;

        for (size_t i = r * columns; i < (r + 1) * columns; i++) {
            double difference = (double)x[i] - (double)targets[i];

            sum += fabs(difference);
            if (grad != NULL) {
                double sign = (double)(difference > 0) - (double)(difference < 0);

                grad[i] = isnan(difference) ? NAN : (float)(sign / (double)columns);
            }
        }
        loss += sum / (double)columns;
    }
    return loss;
}

double cddpi_nn_binary_cross_entropy(const float *x, const int32_t *label, size_t rows,
                                     size_t columns, float *grad)
{
    double loss = 0;

    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * columns;
        double sum = 0;

        for (size_t c = 0; c < columns; c++) {
            double target = columns == 1 ? label[r] : c == (size_t)label[r] ? 1 : 0;
            double power = exp(-fabs((double)row[c])); /* does not overflow */
            double p = (row[c] < 0 ? power : 1) / (1 + power);

            /* log(1 + e^x) - target x */
            sum += fmax(row[c], 0) + log1p(power) - target * (double)row[c];
            if (grad != NULL) {
                grad[r * columns + c] = (float)((p - target) / (double)columns);
            }
        }
        loss += sum / (double)columns;
    }
    return loss;
}

int cddpi_nn_count_correct_signs(const float *x, const int32_t *label, size_t rows)
{
    int correct = 0;

    for (size_t r = 0; r < rows; r++) {
        correct += !isnan(x[r]) && (x[r] > 0) == (label[r] == 1);
    }
    return correct;
}

int cddpi_nn_count_correct(const float *x, const int32_t *label, size_t rows, size_t columns)
{
    int correct = 0;

    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * columns;
        size_t best = 0;
        int ordered = 1;

        for (size_t c = 0; c < columns; c++) {
            best = row[c] > row[best] ? c : best;
            ordered &= !isnan(row[c]);
        }
        correct += ordered && best == (size_t)label[r];
    }
    return correct;
}

void cddpi_nn_scale(const float *x, float scale, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = scale * x[i];
    }
}
