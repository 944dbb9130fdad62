/* nn_dispatch.c - selects the builds of transformer.h's and norm.h's kernels for this CPU. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/transformer.h"

#define DECLARE(isa, level)                                                                        \
    extern const struct cddpi_layer_norm_kernels cddpi_layer_norm_kernels_##isa;                   \
    extern const struct cddpi_gelu_kernels cddpi_gelu_kernels_##isa;                               \
    extern const struct cddpi_silu_kernels cddpi_silu_kernels_##isa;                               \
    extern const struct cddpi_attention_kernels cddpi_attention_kernels_##isa;                     \
    extern const struct cddpi_softmax_kernels cddpi_softmax_kernels_##isa;                         \
    extern const struct cddpi_dropout_kernels cddpi_dropout_kernels_##isa;                         \
    extern const struct cddpi_lstm_kernels cddpi_lstm_kernels_##isa;                               \
    extern const struct cddpi_norm_kernels cddpi_norm_kernels_##isa;
CDDPI_FOR_ISAS(DECLARE)

#define ROW(isa, level)                                                                            \
    [CDDPI_ISA_LEVEL_##level] = {                                                                  \
        #isa,                                                                                      \
        &cddpi_layer_norm_kernels_##isa,                                                           \
        &cddpi_gelu_kernels_##isa,                                                                 \
        &cddpi_silu_kernels_##isa,                                                                 \
        &cddpi_attention_kernels_##isa,                                                            \
        &cddpi_softmax_kernels_##isa,                                                              \
        &cddpi_dropout_kernels_##isa,                                                              \
        &cddpi_lstm_kernels_##isa,                                                                 \
    },
static const struct cddpi_transformer_kernels builds[] = {CDDPI_FOR_ISAS(ROW)};

#define NORM_ROW(isa, level) [CDDPI_ISA_LEVEL_##level] = &cddpi_norm_kernels_##isa,
static const struct cddpi_norm_kernels *const norm_builds[] = {CDDPI_FOR_ISAS(NORM_ROW)};

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

size_t cddpi_norm_kernels_all(const struct cddpi_norm_kernels *out[3])
{
    size_t count = (size_t)cddpi_isa() + 1;

    for (size_t i = 0; i < count; i++) {
        out[i] = norm_builds[i];
    }
    return count;
}

const struct cddpi_norm_kernels *cddpi_norm_kernels(void)
{
    return norm_builds[cddpi_isa()];
}
