/* transformer_dispatch.c - selects the build of transformer.h's kernels for this CPU. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/transformer.h"

#define DECLARE(isa)                                                                               \
    extern const struct cddpi_layer_norm_kernels cddpi_layer_norm_kernels_##isa;                   \
    extern const struct cddpi_gelu_kernels cddpi_gelu_kernels_##isa;                               \
    extern const struct cddpi_silu_kernels cddpi_silu_kernels_##isa;                               \
    extern const struct cddpi_attention_kernels cddpi_attention_kernels_##isa;                     \
    extern const struct cddpi_softmax_kernels cddpi_softmax_kernels_##isa;                         \
    extern const struct cddpi_dropout_kernels cddpi_dropout_kernels_##isa;                         \
    extern const struct cddpi_lstm_kernels cddpi_lstm_kernels_##isa;
#define ROW(isa)                                                                                   \
    {                                                                                              \
#isa, &cddpi_layer_norm_kernels_##isa, &cddpi_gelu_kernels_##isa,                          \
            &cddpi_silu_kernels_##isa, &cddpi_attention_kernels_##isa,                             \
            &cddpi_softmax_kernels_##isa, &cddpi_dropout_kernels_##isa, &cddpi_lstm_kernels_##isa  \
    }

DECLARE(generic)
#if defined(__x86_64__)
DECLARE(avx2)
DECLARE(avx512)
#endif

static const struct cddpi_transformer_kernels builds[] = {
    [CDDPI_ISA_LEVEL_GENERIC] = ROW(generic),
#if defined(__x86_64__)
    [CDDPI_ISA_LEVEL_AVX2] = ROW(avx2),
    [CDDPI_ISA_LEVEL_AVX512] = ROW(avx512),
#endif
};

size_t cddpi_transformer_kernels_all(const struct cddpi_transformer_kernels *out[3])
{
    size_t count = (size_t)cddpi_isa() + 1;

    for (size_t i = 0; i < count; i++) {
        out[i] = &builds[i];
    }
    return count;
}

const struct cddpi_transformer_kernels *cddpi_transformer_kernels(void)
{
    return &builds[cddpi_isa()];
}
