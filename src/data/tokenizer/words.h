/* words.h - GPT-2's cutting of a text into the words inside which BPE merges. */
#ifndef CDDPI_DATA_TOKENIZER_WORDS_H
#define CDDPI_DATA_TOKENIZER_WORDS_H

#include <stddef.h>

/* What decides a word's end: the character after it. */
enum { CDDPI_WORD_LOOKAHEAD = 4 };

/** Bytes of the first word of @p text, which has at least one. If the text goes on after @p bytes,
 *  the answer holds if CDDPI_WORD_LOOKAHEAD bytes are left behind the word, else more
 *  are needed. */
size_t cddpi_word_length(const char *text, size_t bytes);

#endif
