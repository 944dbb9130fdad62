/* tokenizer_impl.h - what the parts of the tokenizer share. */
#ifndef CDDPI_DATA_TOKENIZER_IMPL_H
#define CDDPI_DATA_TOKENIZER_IMPL_H

#include "data/tokenizer/tokenizer.h"

#include <stdbool.h>

#define CDDPI_END_OF_TEXT "<|endoftext|>"
#define CDDPI_WORD_UNKNOWN "<unk>"
#define CDDPI_WORD_LINE_END "<eos>"

enum { CDDPI_VOCABULARY_MAX = 1 << 24 };

/* "left right" becomes merged; the lowest rank goes first. */
struct cddpi_merge {
    int32_t left, right, merged;
    uint32_t rank;
};

struct cddpi_tokenizer {
    char *texts;         /* of all tokens, one after the other */
    size_t *text_starts; /* count + 1 of them */
    int count;
    int32_t end;
    int32_t byte_tokens[256];
    struct cddpi_merge *merges; /* a hash table by left and right, left < 0: an empty slot */
    size_t merge_slots;         /* a power of two; 0: bytes are never merged */
    int32_t *word_slots;        /* a hash table of tokens by their words, < 0: an empty slot */
    size_t word_slot_count;     /* a power of two; 0: tokens are not words */
    int32_t unknown, line_end;  /* of words: what unknown ones become, and what ends a line */
};

/* What merging needs beside the tokens of a long word; grows. Zeroed: empty. */
struct cddpi_merge_room {
    struct cddpi_merge_candidate *heap;
    size_t heap_count, heap_room;
    uint32_t *links; /* of the tokens: where the one before and the one after are */
    size_t link_room;
};

/** What GPT-2's files write for @p byte: a character of its own, as UTF-8. Returns its bytes. */
size_t cddpi_byte_write(unsigned char byte, char out[4]);
/** The byte that a character stands for; -1: none. */
int cddpi_byte_read(int32_t character);

/** Give the table room for @p count merges. */
CDDP_CHECKED cddp_status cddpi_merges_reserve(struct cddpi_tokenizer *tokenizer, size_t count);
/** Add one; false: there is one of the same two tokens. */
bool cddpi_merges_add(struct cddpi_tokenizer *tokenizer, const struct cddpi_merge *merge);

/** Merge the tokens of one word, in place.
 *  @param tokens  One for each byte.
 *  @param count   Before, and after. */
CDDP_CHECKED cddp_status cddpi_merge_word(const struct cddpi_tokenizer *tokenizer,
                                          struct cddpi_merge_room *room, int32_t *tokens,
                                          size_t *count);
void cddpi_merge_room_fini(struct cddpi_merge_room *room);

/** A number for a word, to be used as a hash. */
uint64_t cddpi_word_hash(const char *text, size_t bytes);

/** Read the vocabulary at @p path into a zeroed tokenizer. */
CDDP_CHECKED cddp_status cddpi_tokenizer_load(struct cddpi_tokenizer *tokenizer, const char *path);

#endif
