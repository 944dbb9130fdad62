/* tokenizer.h - text to tokens and back: bytes, byte-level BPE as GPT-2 does it (Sennrich et al.
 * 2016, Radford et al. 2019), or words. Any bytes are text: what is not UTF-8 is encoded, too, and
 * tokens put one after the other give exactly the bytes they were made from; but of words, a space
 * and the word, a newline for <eos>, and <unk> for what is not in the vocabulary. Read-only after
 * opening: any thread. */
#ifndef CDDPI_DATA_TOKENIZER_TOKENIZER_H
#define CDDPI_DATA_TOKENIZER_TOKENIZER_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_tokenizer;

/** @param path  "": each byte is a token, and 256 the end of a text. Else GPT-2's encoder.json or
 *               vocab.bpe (also named vocab.json and merges.txt), a tokenizer.json in Hugging
 *               Face's form, of the type BPE or WordLevel, or the folder where they lie.
 *  @param out   Release with cddpi_tokenizer_close().
 *  @return CDDP_OK, CDDP_ERR_NOT_FOUND, CDDP_ERR_IO, CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY; texts
 * name the file and the entry. */
CDDP_CHECKED cddp_status cddpi_tokenizer_open(const char *path, struct cddpi_tokenizer **out);
void cddpi_tokenizer_close(struct cddpi_tokenizer *tokenizer); /* accepts NULL */

/** Number of tokens: all from 0 on exist. */
int cddpi_tokenizer_vocabulary(const struct cddpi_tokenizer *tokenizer);

/** The token that ends a text. No text encodes to it, not even its own bytes. */
int32_t cddpi_tokenizer_end(const struct cddpi_tokenizer *tokenizer);

/** Whether tokens give back the text that they were made of: unless they are words. */
bool cddpi_tokenizer_keeps_text(const struct cddpi_tokenizer *tokenizer);

/** Tokens of a whole text, without an end token.
 *  @param out_tokens  Release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_tokenizer_encode(const struct cddpi_tokenizer *tokenizer,
                                                const char *text, size_t bytes,
                                                int32_t **out_tokens, size_t *out_count);

/** The bytes of @p token, which no 0 ends; NULL: there is no such token. */
const char *cddpi_tokenizer_token(const struct cddpi_tokenizer *tokenizer, int32_t token,
                                  size_t *out_bytes);

#endif
