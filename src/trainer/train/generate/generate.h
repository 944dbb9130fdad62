/* generate.h - generates text with a model: encodes the prompt, draws one token after the other,
 * and decodes them. Local: no other rank takes part. */
#ifndef CDDPI_TRAIN_GENERATE_GENERATE_H
#define CDDPI_TRAIN_GENERATE_GENERATE_H

#include "data/tokenizer/tokenizer.h"

#include <cddp/status.h>

#include <stdbool.h>
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

/** Compute the logits of the token after @p tokens[@p last], given all tokens up to it; later
 *  tokens are padding. @p out is valid until the next call. */
typedef cddp_status (*cddpi_logits_fn)(void *model, const int32_t *tokens, int last,
                                       const float **out);

struct cddpi_generator {
    cddpi_logits_fn logits;
    void *model;
    int context;                             /* how many tokens the model can see */
    int vocabulary;                          /* number of the model's outputs */
    const struct cddpi_tokenizer *tokenizer; /* NULL: text is token numbers */
    struct cddpi_token_sampling sampling;
    int count;               /* the most tokens to add; an end-of-text token ends it */
    int64_t deadline_ns;     /* as cddpi_now_ns(): begin no token after it; 0: no deadline */
    bool (*must_stop)(void); /* called before each token; NULL: never stop */
    /* Gets each token's bytes as it is drawn; any status but CDDP_OK ends the text. NULL: nobody.
     */
    cddp_status (*on_token)(void *state, const char *bytes, size_t count);
    void *state; /* of on_token */
};

struct cddpi_generated {
    char *prompt; /* both are printable, and NULL with on_token; release with cddpi_free() */
    char *text;   /* the continuation */
    int count;    /* number of tokens in text */
    bool late;    /* the deadline cut it short */
};

/** Continue @p prompt; "" begins a new text.
 *  @return CDDP_OK, CDDP_ERR_CONFIG (a token of the prompt is outside the vocabulary),
 *          CDDP_ERR_NO_MEMORY, or the model's error. */
CDDP_CHECKED cddp_status cddpi_generate(const struct cddpi_generator *generator, const char *prompt,
                                        struct cddpi_generated *out);
void cddpi_generated_fini(struct cddpi_generated *generated); /* accepts a zeroed one */

/** Draw one of @p count > 0 tokens with the probabilities softmax(logits / temperature). Pure
 *  function. A token whose logit is NaN is never drawn, unless all are.
 *  @param position  Of the token in the generated text, for its random number.
 *  @param scratch   Memory for @p count candidates. */
int32_t cddpi_sample_token(const struct cddpi_token_sampling *sampling, uint32_t position,
                           const float *logits, int count, struct cddpi_token_candidate *scratch);

#endif
