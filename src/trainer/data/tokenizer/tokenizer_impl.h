/* tokenizer_impl.h - owns what the files of the tokenizer share. */
#ifndef CDDPI_DATA_TOKENIZER_IMPL_H
#define CDDPI_DATA_TOKENIZER_IMPL_H

#include "data/tokenizer/tokenizer.h"

#include <jansson.h>
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

/* A special token: no text gives it. Its flags, and that it exists, only a saved file needs. */
enum { CDDPI_SPECIAL_FLAGS = 4 };
extern const char *const cddpi_special_flags[CDDPI_SPECIAL_FLAGS]; /* Hugging Face's names */

struct cddpi_special {
    int32_t id;
    unsigned flags; /* bit i: cddpi_special_flags[i] is true */
};

struct cddpi_tokenizer {
    char *texts;         /* the bytes of all tokens, one after the other */
    size_t *text_starts; /* count + 1 offsets in texts */
    int count;
    int32_t end;
    unsigned end_flags;           /* as in struct cddpi_special */
    struct cddpi_special *others; /* special tokens besides the end, in the file's order */
    size_t other_count;
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

/** Allocate texts of @p bytes bytes for @p count tokens. @p path begins the error text. */
CDDP_CHECKED cddp_status cddpi_tokenizer_reserve(struct cddpi_tokenizer *tokenizer,
                                                 const char *path, size_t count, size_t bytes);

/* build.c: builds a tokenizer from the JSON objects of a vocabulary file, which may be malformed */
enum { CDDPI_TOKEN_TEXT_MAX = 8192, CDDPI_SHOWN_BYTES = 64 };

struct cddpi_tokenizer_build {
    struct cddpi_tokenizer *tokenizer;
    const char *path;    /* the file of the tokens, for error texts */
    const json_t *vocab; /* token, as GPT-2's files write it: id */
    const json_t *added; /* array of Hugging Face's added tokens, or NULL */
    bool *special;       /* by id: a special token, which no text contains */
    char *text;          /* room for two tokens */
    uint32_t rank;       /* rank of the next merge */
};

/** Set everything but the merges. Release with cddpi_tokenizer_build_fini(), also after a
 *  failure. */
CDDP_CHECKED cddp_status cddpi_tokenizer_build_tokens(struct cddpi_tokenizer_build *build);

/** Add the next merge. @p path and @p where, such as "line 3", locate it in error texts. */
CDDP_CHECKED cddp_status cddpi_tokenizer_build_merge(struct cddpi_tokenizer_build *build,
                                                     const char *path, const char *where,
                                                     const char *left, size_t left_bytes,
                                                     const char *right, size_t right_bytes);

/** The same for a merge written as "left right". */
CDDP_CHECKED cddp_status cddpi_tokenizer_build_merge_text(struct cddpi_tokenizer_build *build,
                                                          const char *path, const char *where,
                                                          const char *text, size_t bytes);

void cddpi_tokenizer_build_fini(struct cddpi_tokenizer_build *build);

/** Make a part of an input file fit for an error text: bounded and printable. Returns @p buffer. */
const char *cddpi_tokenizer_shown(const char *text, size_t bytes, char buffer[CDDPI_SHOWN_BYTES]);

/** Read a tokenizer.json that has been parsed. */
CDDP_CHECKED cddp_status cddpi_tokenizer_load_json(struct cddpi_tokenizer *tokenizer,
                                                   const char *path, const json_t *root);

/* word_level.c: vocabularies whose tokens are the words between white space, as in PyTorch's
 * word_language_model: <eos> at the end of each line, <unk> for unknown words */
/** Read a tokenizer.json of Hugging Face's type WordLevel. White space and <eos> must be configured
 *  as cddpi_word_level_document() writes them. */
CDDP_CHECKED cddp_status cddpi_word_level_load(struct cddpi_tokenizer *tokenizer, const char *path,
                                               const json_t *root);
/** The JSON document of @p tokenizer in that format; NULL: no memory. */
json_t *cddpi_word_level_document(const struct cddpi_tokenizer *tokenizer);

/** The token of a word; `unknown` if the vocabulary does not have the word. */
int32_t cddpi_word_level_find(const struct cddpi_tokenizer *tokenizer, const char *word,
                              size_t bytes);

#endif
