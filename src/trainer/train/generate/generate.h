/* generate.h - text made up by a model: a prompt is encoded, token after token is drawn, and what
 * came out is decoded. Local: no other rank takes part. */
#ifndef CDDPI_TRAIN_GENERATE_GENERATE_H
#define CDDPI_TRAIN_GENERATE_GENERATE_H

#include "data/tokenizer/tokenizer.h"
#include "train/generate/token_sampling.h"

#include <cddp/status.h>

#include <stdbool.h>

/** The outputs for what follows @p tokens[@p last], given all tokens before; those after it are
 *  padding. @p out is valid until the next call. */
typedef cddp_status (*cddpi_logits_fn)(void *model, const int32_t *tokens, int last,
                                       const float **out);

struct cddpi_generator {
    cddpi_logits_fn logits;
    void *model;
    int context;                             /* tokens that it looks at */
    int vocabulary;                          /* tokens that it has an output for */
    const struct cddpi_tokenizer *tokenizer; /* NULL: text is numbers of tokens */
    struct cddpi_token_sampling sampling;
    int count;               /* tokens to add, at most: the token that ends a text ends it */
    int64_t deadline_ns;     /* of cddpi_now_ns(): none is begun later; 0: none */
    bool (*must_stop)(void); /* asked before each token; NULL: never */
};

struct cddpi_generated {
    char *prompt; /* both fit to show; cddpi_free() */
    char *text;   /* what follows the prompt */
    int count;    /* tokens of it */
    bool late;    /* it was cut by the deadline */
};

/** Go on from @p prompt; "" begins a text.
 *  @return CDDP_OK, CDDP_ERR_CONFIG (the prompt has a token that there is not), CDDP_ERR_NO_MEMORY,
 *          or what the model says. */
CDDP_CHECKED cddp_status cddpi_generate(const struct cddpi_generator *generator, const char *prompt,
                                        struct cddpi_generated *out);
void cddpi_generated_fini(struct cddpi_generated *generated); /* accepts a zeroed one */

#endif
