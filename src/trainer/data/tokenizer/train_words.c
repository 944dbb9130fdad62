/* train_words.c - learns a vocabulary of words: the most frequent ones of a text. */
#include "base/alloc.h"
#include "base/error.h"
#include "data/tokenizer/tokenizer_train.h"
#include "data/tokenizer/word_counts.h"
#include "data/tokenizer/word_level.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { UNKNOWN, LINE_END, SPECIAL = 3 };

struct ranked {
    const char *text;
    size_t bytes;
    int64_t count;
};

static int by_count(const void *a, const void *b)
{
    const struct ranked *left = a;
    const struct ranked *right = b;
    size_t shorter = left->bytes < right->bytes ? left->bytes : right->bytes;
    int difference = (left->count < right->count) - (left->count > right->count);

    if (difference == 0) {
        difference = memcmp(left->text, right->text, shorter);
    }
    return difference != 0 ? difference
                           : (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

static bool is(const struct ranked *word, const char *name)
{
    return word->bytes == strlen(name) && memcmp(word->text, name, word->bytes) == 0;
}

/* Whether a vocabulary file can hold the word, and the word is not one of the special tokens. */
static bool can_be_token(const struct ranked *word)
{
    size_t at = 0;

    while (at < word->bytes && word->text[at] != '\0') {
        utf8proc_int32_t point;
        utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)word->text + at,
                                                   (utf8proc_ssize_t)(word->bytes - at), &point);

        if (length < 1) {
            return false;
        }
        at += (size_t)length;
    }
    return at == word->bytes && word->bytes <= CDDPI_TRAIN_TOKEN_MAX &&
           !is(word, CDDPI_WORD_UNKNOWN) && !is(word, CDDPI_WORD_LINE_END) &&
           !is(word, CDDPI_END_OF_TEXT);
}

/* Collect the words that can be tokens, the most frequent first. Returns their number. */
static size_t rank_words(const struct cddpi_word_counts *counts, struct ranked *out)
{
    size_t used = 0;

    for (size_t i = 0; i < counts->count; i++) {
        const struct cddpi_counted_word *word = &counts->words[i];

        out[used] = (struct ranked){counts->text + word->start, word->bytes, word->count};
        used += can_be_token(&out[used]);
    }
    if (used > 0) {
        qsort(out, used, sizeof *out, by_count);
    }
    return used;
}

static cddp_status fill_tokenizer(const struct ranked *words, size_t count,
                                  struct cddpi_tokenizer *tokenizer)
{
    size_t bytes = sizeof CDDPI_WORD_UNKNOWN + sizeof CDDPI_WORD_LINE_END +
                   sizeof CDDPI_END_OF_TEXT;
    size_t at = 0;
    int32_t token = LINE_END + 1;

    for (size_t i = 0; i < count; i++) {
        bytes += words[i].bytes + 1;
    }
    tokenizer->count = (int)(count + SPECIAL);
    tokenizer->unknown = UNKNOWN;
    tokenizer->line_end = LINE_END;
    tokenizer->end = tokenizer->count - 1;
    tokenizer->texts = cddpi_zalloc(bytes);
    tokenizer->text_starts = cddpi_zalloc_array((size_t)tokenizer->count + 1,
                                                sizeof *tokenizer->text_starts);
    if (tokenizer->texts == NULL || tokenizer->text_starts == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "tokenizer: no memory for %d words",
                          tokenizer->count);
    }
    at += cddpi_word_level_put(tokenizer, UNKNOWN, CDDPI_WORD_UNKNOWN, strlen(CDDPI_WORD_UNKNOWN),
                               at);
    at += cddpi_word_level_put(tokenizer, LINE_END, CDDPI_WORD_LINE_END,
                               strlen(CDDPI_WORD_LINE_END), at);
    for (size_t i = 0; i < count; i++) {
        at += cddpi_word_level_put(tokenizer, token++, words[i].text, words[i].bytes, at);
    }
    (void)cddpi_word_level_put(tokenizer, token, CDDPI_END_OF_TEXT, strlen(CDDPI_END_OF_TEXT), at);
    return cddpi_word_level_index(tokenizer);
}

cddp_status cddpi_tokenizer_train_words(const struct cddpi_word_counts *counts, int vocabulary,
                                        struct cddpi_tokenizer **out)
{
    struct cddpi_tokenizer *tokenizer = NULL;
    struct ranked *words = NULL;
    size_t count;
    cddp_status status;

    if (vocabulary < SPECIAL || vocabulary > CDDPI_TRAIN_VOCABULARY_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "a vocabulary of %d words cannot be learned: it can have %d to %d",
                          vocabulary, SPECIAL, CDDPI_TRAIN_VOCABULARY_MAX);
    }
    tokenizer = cddpi_zalloc(sizeof *tokenizer);
    words = cddpi_zalloc_array(counts->count + 1, sizeof *words);
    if (tokenizer == NULL || words == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "tokenizer: no memory for %zu words",
                            counts->count);
    } else {
        count = rank_words(counts, words);
        count = count < (size_t)vocabulary - SPECIAL ? count : (size_t)vocabulary - SPECIAL;
        status = fill_tokenizer(words, count, tokenizer);
    }
    cddpi_free(words);
    if (status != CDDP_OK) {
        cddpi_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return CDDP_OK;
}
