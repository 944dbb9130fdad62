/* tokenizer_impl.h - owns what the files of the tokenizer share. */
#ifndef CDDPI_DATA_TOKENIZER_IMPL_H
#define CDDPI_DATA_TOKENIZER_IMPL_H

#include "data/tokenizer/tokenizer.h"

#include <stdbool.h>

#define CDDPI_END_OF_TEXT "<|endoftext|>"
#define CDDPI_WORD_UNKNOWN "<unk>"
#define CDDPI_WORD_LINE_END "<eos>"

enum { CDDPI_VOCABULARY_MAX = 1 << 24 };

/* A BPE merge: the tokens left, right become merged. The lowest rank is applied first. */
struct cddpi_merge {
    int32_t left, right, merged;
    uint32_t rank;
};

struct cddpi_tokenizer {
    char *texts;         /* the bytes of all tokens, one after the other */
    size_t *text_starts; /* count + 1 offsets in texts */
    int count;
    int32_t end;
    int32_t byte_tokens[256];
    struct cddpi_merge *merges; /* hash table by left and right; left < 0: an empty slot */
    size_t merge_slots;         /* a power of two; 0: bytes are never merged */
    int32_t *word_slots;        /* hash table of tokens by their words; < 0: an empty slot */
    size_t word_slot_count;     /* a power of two; 0: tokens are not words */
    int32_t unknown, line_end;  /* for words: tokens of unknown words and line ends */
};

/* Working memory for merging long words, besides the tokens. It grows. Zeroed: empty. */
struct cddpi_merge_room {
    struct cddpi_merge_candidate *heap;
    size_t heap_count, heap_room;
    uint32_t *links; /* per token: the indices of the previous and the next one */
    size_t link_room;
};

/** Write the character by which GPT-2's files represent @p byte, as UTF-8. Returns its length in
 *  bytes. */
size_t cddpi_byte_write(unsigned char byte, char out[4]);
/** The byte that a character of GPT-2's files represents; -1: it represents no byte. */
int cddpi_byte_read(int32_t character);

/** Give the table room for @p count merges. */
CDDP_CHECKED cddp_status cddpi_merges_reserve(struct cddpi_tokenizer *tokenizer, size_t count);
/** Add one. Returns false if a merge of the same two tokens exists. */
bool cddpi_merges_add(struct cddpi_tokenizer *tokenizer, const struct cddpi_merge *merge);

/** Merge the tokens of one word in place.
 *  @param tokens  One for each byte.
 *  @param count   In: the number of bytes. Out: the number of tokens. */
CDDP_CHECKED cddp_status cddpi_merge_word(const struct cddpi_tokenizer *tokenizer,
                                          struct cddpi_merge_room *room, int32_t *tokens,
                                          size_t *count);
void cddpi_merge_room_fini(struct cddpi_merge_room *room);

/** Hash a word. */
uint64_t cddpi_word_hash(const char *text, size_t bytes);

/** Read the vocabulary at @p path into a zeroed tokenizer. */
CDDP_CHECKED cddp_status cddpi_tokenizer_load(struct cddpi_tokenizer *tokenizer, const char *path);

#endif
