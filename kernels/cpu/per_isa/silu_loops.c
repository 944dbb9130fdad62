/* silu_loops.c - owns silu and its derivative (Elfwing, Uchibe, Doya 2017; also called swish).
 * Compiled once for each instruction set, with CDDPI_ISA as its name.
 *
 * Both are computed from e^-|x|. No nearly equal numbers are subtracted, so the left tail stays
 * exact. */
#include "kernels/cpu/per_isa/lanes.h"
#include "kernels/cpu/transformer.h"

/* 1 / (1 + e^-x), and its derivative. */
struct sigmoid {
    lanes value, slope;
};

CDDPI_LANES_INLINE struct sigmoid sigmoid_at(lanes x)
{
    lanes e = lanes_exp(-lanes_abs(x));
    lanes right = 1.0f / (1.0f + e);

    return (struct sigmoid){lanes_select(x < 0, e * right, right), e * right * right};
}

CDDPI_LANES_INLINE lanes silu(lanes x)
{
    return x * sigmoid_at(x).value;
}

CDDPI_LANES_INLINE lanes gradient(lanes dy, lanes x)
{
    struct sigmoid at = sigmoid_at(x);

    return dy * (at.value + x * at.slope);
}

static void forward(const float *x, float *out, size_t count)
{
    size_t whole = count / LANES * LANES;
    size_t rest = count - whole;

    for (size_t i = 0; i < whole; i += LANES) {
        lanes_store(out + i, silu(lanes_load(x + i)));
    }
    if (rest > 0) {
        lanes_store_part(out + whole, silu(lanes_load_part(x + whole, rest, 0)), rest);
    }
}

static void backward(const float *dy, const float *x, float *out, size_t count)
{
    size_t whole = count / LANES * LANES;
    size_t rest = count - whole;

    for (size_t i = 0; i < whole; i += LANES) {
        lanes_store(out + i, gradient(lanes_load(dy + i), lanes_load(x + i)));
    }
    if (rest > 0) {
        lanes_store_part(
            out + whole,
            gradient(lanes_load_part(dy + whole, rest, 0), lanes_load_part(x + whole, rest, 0)),
            rest);
    }
}

extern const struct cddpi_silu_kernels CDDPI_LANES_JOIN(cddpi_silu_kernels_, CDDPI_ISA);
const struct cddpi_silu_kernels CDDPI_LANES_JOIN(cddpi_silu_kernels_, CDDPI_ISA) = {forward,
                                                                                    backward};
