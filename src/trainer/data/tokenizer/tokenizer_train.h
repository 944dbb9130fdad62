/* tokenizer_train.h - learns a vocabulary from the words of a text: byte-level BPE, or the words
 * themselves. The result depends only on the text: the most frequent pair (or word) comes first; of
 * equally frequent ones, the one whose bytes sort first. One thread at a time. */
#ifndef CDDPI_DATA_TOKENIZER_TRAIN_H
#define CDDPI_DATA_TOKENIZER_TRAIN_H

#include "data/tokenizer/tokenizer.h"

#include <stdbool.h>

enum {
    CDDPI_TRAIN_VOCABULARY_MIN = 257, /* the 256 bytes and the end-of-text token */
    CDDPI_TRAIN_VOCABULARY_MAX = 1 << 20,
    CDDPI_TRAIN_TOKEN_MAX =
        256 /* bytes of a token: longer ones would only be lines of dashes and the like */
};

/* The different words of a text, and how often each occurs. */
struct cddpi_word_counts;

/** @param out  Release with cddpi_word_counts_destroy(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_word_counts_create(struct cddpi_word_counts **out);
void cddpi_word_counts_destroy(struct cddpi_word_counts *counts);

/** Count the words between white space instead of GPT-2's words. Call it before counting. */
void cddpi_word_counts_by_space(struct cddpi_word_counts *counts);

/** Count the words of @p text whose end is certain; see cddpi_encoder_put(). */
CDDP_CHECKED cddp_status cddpi_word_counts_put(struct cddpi_word_counts *counts, const char *text,
                                               size_t bytes, bool last, size_t *out_used);

/** The number of different words. */
size_t cddpi_word_counts_size(const struct cddpi_word_counts *counts);

/** Learn up to @p vocabulary tokens; fewer, if no pair occurs twice any more.
 *  @param progress  Called now and then with the number of tokens so far; may be NULL. If it
 *                   returns false, training stops, and @p out has the tokens so far.
 *  @param out       Release with cddpi_tokenizer_close(). */
CDDP_CHECKED cddp_status cddpi_tokenizer_train(const struct cddpi_word_counts *counts,
                                               int vocabulary,
                                               bool (*progress)(void *argument, int tokens),
                                               void *argument, struct cddpi_tokenizer **out);

/** Make a vocabulary of the @p vocabulary most frequent words of @p counts, which were counted by
 *  space; fewer, if there are no more. <unk>, <eos> and the end-of-text token count among them.
 *  Words that are not UTF-8 or are longer than CDDPI_TRAIN_TOKEN_MAX bytes are left out.
 *  @param out  Release with cddpi_tokenizer_close(). */
CDDP_CHECKED cddp_status cddpi_tokenizer_train_words(const struct cddpi_word_counts *counts,
                                                     int vocabulary, struct cddpi_tokenizer **out);

/** Write a tokenizer in Hugging Face's format. It is written next to @p path and then
 *  renamed, so that @p path is never incomplete.
 *  @return CDDP_ERR_FORMAT also if a token is longer than CDDPI_TRAIN_TOKEN_MAX bytes. */
CDDP_CHECKED cddp_status cddpi_tokenizer_save(const struct cddpi_tokenizer *tokenizer,
                                              const char *path);

#endif
