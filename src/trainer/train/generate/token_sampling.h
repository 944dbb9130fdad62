/* token_sampling.h - draws the next token from a model's logits. */
#ifndef CDDPI_TRAIN_GENERATE_TOKEN_SAMPLING_H
#define CDDPI_TRAIN_GENERATE_TOKEN_SAMPLING_H

#include <stdint.h>

struct cddpi_token_sampling {
    double temperature; /* 0: always the most likely token (the first of equals) */
    int top_k;          /* only the k most likely tokens; 0: all */
    uint64_t seed;
    uint64_t step; /* of the run; part of the key of the random numbers */
};

struct cddpi_token_candidate {
    float logit;
    int32_t token;
};

/** Draw one of @p count > 0 tokens with the probabilities softmax(logits / temperature). Pure
 *  function. A token whose logit is NaN is never drawn, unless all are.
 *  @param position  Of the token in the generated text, for its random number.
 *  @param scratch   Memory for @p count candidates. */
int32_t cddpi_sample_token(const struct cddpi_token_sampling *sampling, uint32_t position,
                           const float *logits, int count, struct cddpi_token_candidate *scratch);

#endif
