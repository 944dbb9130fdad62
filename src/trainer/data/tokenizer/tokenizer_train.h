/* tokenizer_train.h - learning a vocabulary from the words of a text: of byte-level BPE, or the
 * words themselves. What a text gives depends on nothing but the text: the most frequent pair is
 * merged or word taken, of equals the one whose bytes come first. One thread at a time. */
#ifndef CDDPI_DATA_TOKENIZER_TRAIN_H
#define CDDPI_DATA_TOKENIZER_TRAIN_H

#include "data/tokenizer/tokenizer.h"

#include <stdbool.h>

enum {
    CDDPI_TRAIN_VOCABULARY_MIN = 257, /* the bytes and the end of a text */
    CDDPI_TRAIN_VOCABULARY_MAX = 1 << 20,
    CDDPI_TRAIN_TOKEN_MAX =
        256 /* bytes of a token: longer ones would only be lines of dashes and the like */
};

/* The different words of a text, and how often each occurs. */
struct cddpi_word_counts;

/** @param out  Release with cddpi_word_counts_destroy(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_word_counts_create(struct cddpi_word_counts **out);
void cddpi_word_counts_destroy(struct cddpi_word_counts *counts);

/** Count what lies between white space instead of GPT-2's words; before any is counted. */
void cddpi_word_counts_by_space(struct cddpi_word_counts *counts);

/** Count the words of @p text of which the end is certain; see cddpi_encoder_put(). */
CDDP_CHECKED cddp_status cddpi_word_counts_put(struct cddpi_word_counts *counts, const char *text,
                                               size_t bytes, bool last, size_t *out_used);

/** How many there are. */
size_t cddpi_word_counts_size(const struct cddpi_word_counts *counts);

/** Learn up to @p vocabulary tokens; fewer, if no pair occurs twice any more.
 *  @param progress  Called with the tokens so far now and then, may be NULL; false stops the
 *                   training at what there is.
 *  @param out       Release with cddpi_tokenizer_close(). */
CDDP_CHECKED cddp_status cddpi_tokenizer_train(const struct cddpi_word_counts *counts,
                                               int vocabulary,
                                               bool (*progress)(void *argument, int tokens),
                                               void *argument, struct cddpi_tokenizer **out);

/** The @p vocabulary most frequent words of @p counts, which were counted by space; fewer, if there
 *  are no more. Among them are <unk>, <eos> and the end of a text. Left out are words that are not
 *  UTF-8 or have more than CDDPI_TRAIN_TOKEN_MAX bytes.
 *  @param out  Release with cddpi_tokenizer_close(). */
CDDP_CHECKED cddp_status cddpi_tokenizer_train_words(const struct cddpi_word_counts *counts,
                                                     int vocabulary, struct cddpi_tokenizer **out);

/** Write a trained tokenizer in Hugging Face's form, beside @p path and then renamed. */
CDDP_CHECKED cddp_status cddpi_tokenizer_save(const struct cddpi_tokenizer *tokenizer,
                                              const char *path);

#endif
