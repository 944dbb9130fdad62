/* word_level.h - owns vocabularies whose tokens are the words between white space, as in PyTorch's
 * word_language_model: <eos> at the end of each line, <unk> for unknown words. */
#ifndef CDDPI_DATA_TOKENIZER_WORD_LEVEL_H
#define CDDPI_DATA_TOKENIZER_WORD_LEVEL_H

#include "data/tokenizer/tokenizer_impl.h"

#include <jansson.h>

/** Read a tokenizer.json of Hugging Face's type WordLevel. White space and <eos> must be configured
 *  as cddpi_word_level_document() writes them. */
CDDP_CHECKED cddp_status cddpi_word_level_load(struct cddpi_tokenizer *tokenizer, const char *path,
                                               const json_t *root);
/** The JSON document of @p tokenizer in that format; NULL: no memory. */
json_t *cddpi_word_level_document(const struct cddpi_tokenizer *tokenizer);

/** Set the text of @p token in a vocabulary of words to @p word, written at byte @p at of the
 *  texts. Call it in the order of the tokens. Returns the bytes that it took, at most @p bytes +
 *  1. */
size_t cddpi_word_level_put(struct cddpi_tokenizer *tokenizer, int32_t token, const char *word,
                            size_t bytes, size_t at);

/** Build the hash table that finds words. Call it when all tokens have their texts.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_word_level_index(struct cddpi_tokenizer *tokenizer);
/** The token of a word; `unknown` if the vocabulary does not have the word. */
int32_t cddpi_word_level_find(const struct cddpi_tokenizer *tokenizer, const char *word,
                              size_t bytes);

#endif
