/* token_sampling.h - the next token, drawn from a model's outputs. */
#ifndef CDDPI_TRAIN_GENERATE_TOKEN_SAMPLING_H
#define CDDPI_TRAIN_GENERATE_TOKEN_SAMPLING_H

#include <stdint.h>

struct cddpi_token_sampling {
    double temperature; /* 0: the likeliest token (of equals the first), whatever the rest says */
    int top_k;          /* only the so many likeliest; 0: all */
    uint64_t seed;
    uint64_t step; /* of the run: each has its own random numbers */
};

struct cddpi_token_candidate {
    float logit;
    int32_t token;
};

/** One of @p count > 0 tokens, drawn with the probabilities softmax(logits / temperature): a pure
 *  function. Tokens whose logit is not a number are never drawn unless all are.
 *  @param position  Of the token in what is generated, for its random number.
 *  @param scratch   Memory for @p count candidates. */
int32_t cddpi_sample_token(const struct cddpi_token_sampling *sampling, uint32_t position,
                           const float *logits, int count, struct cddpi_token_candidate *scratch);

#endif
