/* optim_loops.c - owns the loops of cpu_optim.h. Compiled once for each instruction set, with
 * CDDPI_ISA as its name. */
#include "kernels/cpu/cpu_optim.h"

#include <math.h>

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)

/* One of the three kinds of SGD. The callers pass the flags as constants. */
static inline __attribute__((always_inline)) void
sgd_loop(float *restrict p, const float *restrict g, float *restrict m, size_t n,
         const struct cddpi_sgd_step *step, bool has_momentum, bool nesterov)
{
    const float lr = step->lr;
    const float momentum = step->momentum;
    const float weight_decay = step->weight_decay;
    const float grad_scale = step->grad_scale;

    for (size_t i = 0; i < n; i++) {
        float d = g[i] * grad_scale + weight_decay * p[i];

        if (has_momentum) {
            float b = momentum * m[i] + d;

            m[i] = b;
            d = nesterov ? d + momentum * b : b;
        }
        p[i] = p[i] - lr * d;
    }
}

static void sgd(float *p, const float *g, float *m, size_t n, const struct cddpi_sgd_step *step)
{
    if (m == NULL) {
        sgd_loop(p, g, m, n, step, false, false);
    } else if (step->nesterov) {
        sgd_loop(p, g, m, n, step, true, true);
    } else {
        sgd_loop(p, g, m, n, step, true, false);
    }
}

static void adamw(float *restrict p, const float *restrict g, float *restrict m, float *restrict v,
                  size_t n, const struct cddpi_adamw_step *step)
{
    const struct cddpi_adamw_step s = *step;

    for (size_t i = 0; i < n; i++) {
        float d = g[i] * s.grad_scale;
        float first = m[i] + (d - m[i]) * s.beta1_left;
        float second = v[i] * s.beta2 + s.beta2_left * d * d;
        float scale = sqrtf(second) / s.correction2 + s.epsilon;

        m[i] = first;
        v[i] = second;
        p[i] = p[i] * s.keep - s.step_size * first / scale;
    }
}

/* Sixteen partial sums, whatever the register width, then a tree over them. */
enum { LANES = 16 };

static double square_sum(const float *x, size_t n)
{
    double lanes[LANES] = {0};
    size_t whole = n / LANES * LANES;

    for (size_t i = 0; i < whole; i += LANES) {
        for (size_t lane = 0; lane < LANES; lane++) {
            double value = x[i + lane];

            lanes[lane] += value * value;
        }
    }
    for (size_t i = whole; i < n; i++) {
        double value = x[i];

        lanes[i - whole] += value * value;
    }
    for (size_t width = LANES / 2; width > 0; width /= 2) {
        for (size_t lane = 0; lane < width; lane++) {
            lanes[lane] += lanes[lane + width];
        }
    }
    return lanes[0];
}

const struct cddpi_optim_kernels JOIN(cddpi_optim_kernels_, CDDPI_ISA);
const struct cddpi_optim_kernels JOIN(cddpi_optim_kernels_, CDDPI_ISA) = {TEXT(CDDPI_ISA), sgd,
                                                                          adamw, square_sum};
