/* words.h - splits a text into words as GPT-2 does, and counts them. BPE merges only inside a word.
 */
#ifndef CDDPI_DATA_TOKENIZER_WORDS_H
#define CDDPI_DATA_TOKENIZER_WORDS_H

#include "data/tokenizer/tokenizer_train.h"

/* Bytes after a word that decide where it ends: one UTF-8 character. */
enum { CDDPI_WORD_LOOKAHEAD = 4 };

/** The length in bytes of the first word of @p text, which has at least one byte. If the text goes
 *  on after @p bytes, the answer is certain only if CDDPI_WORD_LOOKAHEAD bytes follow the word;
 *  else call again with more text. */
size_t cddpi_word_length(const char *text, size_t bytes);

/* A word between white space, or a newline that ends a line. Zeroed: before the first one. */
struct cddpi_spaced_word {
    size_t start, bytes;
    size_t next; /* where the next search begins */
    bool is_line_end;
};

/** Find the next word of @p text; Unicode's white space separates words. A word that ends at @p
 *  bytes is certain only if the text ends there (@p last). Returns false if there is no further
 *  certain word. */
bool cddpi_spaced_word_next(const char *text, size_t bytes, bool last,
                            struct cddpi_spaced_word *word);

/* word_counts.c; the inside is for training, which reads it */
struct cddpi_counted_word {
    uint64_t hash;
    int64_t count;
    size_t start, bytes; /* position in the text of all words */
};

struct cddpi_word_counts {
    struct cddpi_counted_word *words;
    size_t count, word_room;
    char *text;
    size_t text_bytes, text_room;
    uint32_t *slots;   /* hash table: index of a word plus 1; 0: empty */
    size_t slot_count; /* a power of two */
    bool by_space;
};

/** Hash a word. */
uint64_t cddpi_word_hash(const char *text, size_t bytes);

#endif
