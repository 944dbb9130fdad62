/* cpu_tokens.h - converts tokens from the form of files to the form of models, and adds up
 * gradients by token. */
#ifndef CDDPI_KERNELS_CPU_TOKENS_H
#define CDDPI_KERNELS_CPU_TOKENS_H

#include <stddef.h>
#include <stdint.h>

/** input[i] = in[i] and label[i] = in[i + 1] for i < @p count, from @p count + 1 little-endian
 *  tokens (@p count > 0). Returns the largest token. A token of 2^31 or more is not represented
 *  correctly in the outputs. */
uint32_t cddpi_token_sequence_u16(const uint16_t *in, size_t count, int32_t *input, int32_t *label);
uint32_t cddpi_token_sequence_u32(const uint32_t *in, size_t count, int32_t *input, int32_t *label);

/** table[tokens[r]] += x[r] for each of @p rows rows of @p columns elements. Rows with the same
 *  token are added in their order; many of them are summed with float64 precision. @p order is
 *  scratch memory for rows + vocab + 1 elements. */
void cddpi_nn_add_rows(const float *x, const int32_t *tokens, size_t rows, size_t vocab,
                       size_t columns, uint32_t *order, float *table);

#endif
