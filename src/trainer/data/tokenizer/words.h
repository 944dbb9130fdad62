/* words.h - GPT-2's cutting of a text into the words inside which BPE merges. */
#ifndef CDDPI_DATA_TOKENIZER_WORDS_H
#define CDDPI_DATA_TOKENIZER_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* What decides a word's end: the character after it. */
enum { CDDPI_WORD_LOOKAHEAD = 4 };

/** Bytes of the first word of @p text, which has at least one. If the text goes on after @p bytes,
 *  the answer holds if CDDPI_WORD_LOOKAHEAD bytes follow the word, else more
 *  are needed. */
size_t cddpi_word_length(const char *text, size_t bytes);

/* A word between white space, or the end of a line, which is a newline. Zeroed: before the first.
 */
struct cddpi_spaced_word {
    size_t start, bytes;
    size_t next; /* where the search goes on */
    bool is_line_end;
};

/** The next word of @p text, whatever is white space in Unicode. Unless the text ends after
 *  @p bytes (@p last), a word that reaches up to there is not certain; false: there is none. */
bool cddpi_spaced_word_next(const char *text, size_t bytes, bool last,
                            struct cddpi_spaced_word *word);

#endif
