/* encoder.h - owns the state of encoding a text that arrives in pieces. It caches the tokens of
 * each word, which makes encoding fast. One thread at a time. */
#ifndef CDDPI_DATA_TOKENIZER_ENCODER_H
#define CDDPI_DATA_TOKENIZER_ENCODER_H

#include "data/tokenizer/tokenizer.h"

#include <stdbool.h>

struct cddpi_encoder;

/** @param tokenizer  Outlives the encoder.
 *  @param out        Release with cddpi_encoder_destroy(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_encoder_create(const struct cddpi_tokenizer *tokenizer,
                                              struct cddpi_encoder **out);
void cddpi_encoder_destroy(struct cddpi_encoder *encoder);

/** Encode as much of @p text as is certain, and append its tokens to those already there.
 *  @param last      The text ends here, so all of it is certain.
 *  @param out_used  How many bytes were encoded. The next call must begin with the remaining bytes:
 *                   a word whose end has not been seen. */
CDDP_CHECKED cddp_status cddpi_encoder_put(struct cddpi_encoder *encoder, const char *text,
                                           size_t bytes, bool last, size_t *out_used);

/** The tokens since the last cddpi_encoder_clear(); valid until the next call. */
const int32_t *cddpi_encoder_tokens(const struct cddpi_encoder *encoder, size_t *out_count);
void cddpi_encoder_clear(struct cddpi_encoder *encoder);

#endif
