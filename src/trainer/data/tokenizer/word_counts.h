/* word_counts.h - owns the counted words, as training reads them. */
#ifndef CDDPI_DATA_TOKENIZER_WORD_COUNTS_H
#define CDDPI_DATA_TOKENIZER_WORD_COUNTS_H

#include "data/tokenizer/tokenizer_train.h"

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

#endif
