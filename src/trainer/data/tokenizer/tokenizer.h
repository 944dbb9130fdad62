/* tokenizer.h - owns a vocabulary that turns text into tokens and back: bytes, byte-level BPE as in
 * GPT-2 (Sennrich et al. 2016, Radford et al. 2019), or words. Any bytes are text, also invalid
 * UTF-8. Concatenating the tokens' bytes gives exactly the original text. Vocabularies of words are
 * the exception: a word's token gives a space and the word, <eos> gives a newline, and unknown
 * words give <unk>. Read-only after opening: any thread. */
#ifndef CDDPI_DATA_TOKENIZER_TOKENIZER_H
#define CDDPI_DATA_TOKENIZER_TOKENIZER_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_tokenizer;

/** @param path  "": each byte is a token, and 256 is the end of a text. Else GPT-2's encoder.json
 *  or vocab.bpe (also named vocab.json and merges.txt), a tokenizer.json in Hugging Face's format,
 *  of the type BPE or WordLevel, or the folder of these files.
 *  @param out   Release with cddpi_tokenizer_close().
 *  @return CDDP_OK, CDDP_ERR_NOT_FOUND, CDDP_ERR_IO, CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY; error
 *          texts name the file and the entry. */
CDDP_CHECKED cddp_status cddpi_tokenizer_open(const char *path, struct cddpi_tokenizer **out);
void cddpi_tokenizer_close(struct cddpi_tokenizer *tokenizer); /* accepts NULL */

/** Number of tokens. The ids are 0 to this number minus 1. */
int cddpi_tokenizer_vocabulary(const struct cddpi_tokenizer *tokenizer);

/** The end-of-text token. No text encodes to it, not even the token's own bytes. */
int32_t cddpi_tokenizer_end(const struct cddpi_tokenizer *tokenizer);

/** Whether decoding gives back the encoded text: yes, unless tokens are words. */
bool cddpi_tokenizer_keeps_text(const struct cddpi_tokenizer *tokenizer);

/** Tokens of a whole text, without an end token.
 *  @param out_tokens  Release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_tokenizer_encode(const struct cddpi_tokenizer *tokenizer,
                                                const char *text, size_t bytes,
                                                int32_t **out_tokens, size_t *out_count);

/** The bytes of @p token, without a NUL at the end; NULL: there is no such token. */
const char *cddpi_tokenizer_token(const struct cddpi_tokenizer *tokenizer, int32_t token,
                                  size_t *out_bytes);

/* The state of encoding a text that arrives in pieces. It caches the tokens of each word, which
 * makes encoding fast. One thread at a time. */
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
