/* cpu_tokens.c - widens sequences of tokens, and adds up rows that belong to the same token. */
#include "kernels/cpu/cpu_tokens.h"

#include "kernels/cpu/elementwise.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files of tokens are read as they are");

/* The labels have been widened. The input is copied from them: it consists of the same tokens,
 * shifted by one. */
static uint32_t finish(uint32_t first, uint32_t largest, size_t count, int32_t *input,
                       const int32_t *label)
{
    input[0] = (int32_t)first;
    memcpy(input + 1, label, (count - 1) * sizeof *input);
    return first > largest ? first : largest;
}

uint32_t cddpi_token_sequence_u16(const uint16_t *in, size_t count, int32_t *input, int32_t *label)
{
    uint16_t largest = 0;

    for (size_t i = 0; i < count; i++) {
        label[i] = in[i + 1];
        largest = in[i + 1] > largest ? in[i + 1] : largest;
    }
    return finish(in[0], largest, count, input, label);
}

uint32_t cddpi_token_sequence_u32(const uint32_t *in, size_t count, int32_t *input, int32_t *label)
{
    uint32_t largest = 0;

    for (size_t i = 0; i < count; i++) {
        label[i] = (int32_t)in[i + 1];
        largest = in[i + 1] > largest ? in[i + 1] : largest;
    }
    return finish(in[0], largest, count, input, label);
}

void cddpi_nn_add_rows(const float *x, const int32_t *tokens, size_t rows, size_t vocab,
                       size_t columns, uint32_t *order, float *table)
{
    /* end of each token's rows in `order`, while they are filled in */
    uint32_t *end = order + rows;

    memset(end, 0, (vocab + 1) * sizeof *end);
    for (size_t r = 0; r < rows; r++) {
        end[tokens[r] + 1]++;
    }
    for (size_t t = 0; t < vocab; t++) {
        end[t + 1] += end[t];
    }
    for (size_t r = 0; r < rows; r++) {
        order[end[tokens[r]]++] = (uint32_t)r;
    }
    for (size_t t = 0; t < vocab; t++) {
        size_t begin = t > 0 ? end[t - 1] : 0;

        if (end[t] > begin) {
            cddpi_nn_add_listed_rows(x, order + begin, end[t] - begin, columns,
                                     table + t * columns);
        }
    }
}
