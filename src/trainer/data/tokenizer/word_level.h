/* word_level.h - vocabularies whose tokens are the words between white space, as
 * PyTorch's word_language_model cuts texts: <eos> at each line's end, <unk> for other words. */
#ifndef CDDPI_DATA_TOKENIZER_WORD_LEVEL_H
#define CDDPI_DATA_TOKENIZER_WORD_LEVEL_H

#include "data/tokenizer/tokenizer_impl.h"

#include <jansson.h>

/** Read a tokenizer.json of Hugging Face's type WordLevel, with white space and <eos> as
 *  cddpi_word_level_document() writes them. */
CDDP_CHECKED cddp_status cddpi_word_level_load(struct cddpi_tokenizer *tokenizer, const char *path,
                                               const json_t *root);
/** What @p tokenizer is as such a file; NULL: no memory. */
json_t *cddpi_word_level_document(const struct cddpi_tokenizer *tokenizer);

/** Let @p token of a vocabulary of words be @p word; the texts from byte @p at on are unused, and
 *  those of lower tokens are there. Returns the bytes that it took, at most @p bytes + 1. */
size_t cddpi_word_level_put(struct cddpi_tokenizer *tokenizer, int32_t token, const char *word,
                            size_t bytes, size_t at);

/** Make the table by which words are found; the tokens' texts are there.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_word_level_index(struct cddpi_tokenizer *tokenizer);
/** The token of a word: `unknown`, if it is not in the vocabulary. */
int32_t cddpi_word_level_find(const struct cddpi_tokenizer *tokenizer, const char *word,
                              size_t bytes);

#endif
