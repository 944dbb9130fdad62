/* gelu_loops.c - owns gelu and its derivative. Compiled once for each instruction set, with
 * CDDPI_ISA as its name.
 *
 * Both forms are x times a distribution with exponential tails, so both are computed from that
 * exponential. No nearly equal numbers are subtracted, so the left tail stays exact. */
#include "kernels/cpu/per_isa/lanes.h"
#include "kernels/cpu/transformer.h"

/* The distribution at x, and its derivative times x. */
struct gelu_distribution {
    lanes value, slope;
};

/* (1 + tanh(u)) / 2 = 1 / (1 + e^-2u) with 2 u = x (2 sqrt(2 / pi) + 0.044715 ... x^2). */
CDDPI_LANES_INLINE struct gelu_distribution with_tanh(lanes x)
{
    const float linear = 1.5957691216f;   /* 2 sqrt(2 / pi) */
    const float cubic = 0.0713548163f;    /* ... x 0.044715 */
    lanes near = lanes_clamp(x, -20, 20); /* beyond these limits the function is constant */
    lanes square = near * near;
    lanes u = near * (square * cubic + linear);
    lanes e = lanes_exp(-lanes_abs(u));
    lanes right = 1.0f / (1.0f + e);

    return (struct gelu_distribution){
        lanes_select(x < 0, e * right, right),
        near * (e * right * right) * (square * (3 * cubic) + linear),
    };
}

/* Phi(-a) = e^(-a^2 / 2) P(1 / (1 + 0.45 a)) for a >= 0, with a relative error of P below 3e-8. */
CDDPI_LANES_INLINE struct gelu_distribution with_erf(lanes x)
{
    static const float p[] = {0.0387939326f, -0.228135630f,  0.542777359f, -0.617635131f,
                              0.268099070f,  -0.0236316919f, 0.163119966f, 0.176899940f,
                              0.179718316f,  -6.16626357e-6f};
    lanes near = lanes_clamp(x, -20, 20);
    lanes e = lanes_exp(near * near * -0.5f);
    lanes t = 1.0f / (lanes_abs(near) * 0.45f + 1.0f);
    lanes tail = lanes_of(p[0]);

    for (size_t i = 1; i < sizeof p / sizeof *p; i++) {
        tail = tail * t + p[i];
    }
    tail *= e;
    return (struct gelu_distribution){
        lanes_select(x < 0, tail, 1.0f - tail), near * e * 0.398942280f, /* 1 / sqrt(2 pi) */
    };
}

CDDPI_LANES_INLINE struct gelu_distribution distribution_at(lanes x, bool exact)
{
    return exact ? with_erf(x) : with_tanh(x);
}

CDDPI_LANES_INLINE lanes gelu(lanes x, bool exact)
{
    return x * distribution_at(x, exact).value;
}

CDDPI_LANES_INLINE lanes gradient(lanes dy, lanes x, bool exact)
{
    struct gelu_distribution at = distribution_at(x, exact);

    return dy * (at.value + at.slope);
}

CDDPI_LANES_INLINE void forward_as(const float *x, bool exact, float *out, size_t count)
{
    size_t whole = count / LANES * LANES;
    size_t rest = count - whole;

    for (size_t i = 0; i < whole; i += LANES) {
        lanes_store(out + i, gelu(lanes_load(x + i), exact));
    }
    if (rest > 0) {
        lanes_store_part(out + whole, gelu(lanes_load_part(x + whole, rest, 0), exact), rest);
    }
}

CDDPI_LANES_INLINE void backward_as(const float *dy, const float *x, bool exact, float *out,
                                    size_t count)
{
    size_t whole = count / LANES * LANES;
    size_t rest = count - whole;

    for (size_t i = 0; i < whole; i += LANES) {
        lanes_store(out + i, gradient(lanes_load(dy + i), lanes_load(x + i), exact));
    }
    if (rest > 0) {
        lanes_store_part(out + whole,
                         gradient(lanes_load_part(dy + whole, rest, 0),
                                  lanes_load_part(x + whole, rest, 0), exact),
                         rest);
    }
}

/* `exact` is a constant in each of these loops. */

static void forward(const float *x, bool exact, float *out, size_t count)
{
    if (exact) {
        forward_as(x, true, out, count);
    } else {
        forward_as(x, false, out, count);
    }
}

static void backward(const float *dy, const float *x, bool exact, float *out, size_t count)
{
    if (exact) {
        backward_as(dy, x, true, out, count);
    } else {
        backward_as(dy, x, false, out, count);
    }
}

extern const struct cddpi_gelu_kernels CDDPI_LANES_JOIN(cddpi_gelu_kernels_, CDDPI_ISA);
const struct cddpi_gelu_kernels CDDPI_LANES_JOIN(cddpi_gelu_kernels_, CDDPI_ISA) = {forward,
                                                                                    backward};
