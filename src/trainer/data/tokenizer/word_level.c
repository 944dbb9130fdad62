/* word_level.c - owns vocabularies of words: their hash table, their form in Hugging Face's
 * tokenizer.json, and making one of the most frequent words of a text. A token's text is a space
 * and the word, so that a decoded text is readable; the text of <eos> is a newline. */

#include "base/alloc.h"
#include "base/error.h"
#include "data/tokenizer/tokenizer_impl.h"
#include "data/tokenizer/words.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const char unknown_name[] = CDDPI_WORD_UNKNOWN;
static const char line_name[] = CDDPI_WORD_LINE_END;

/* The token's text without the space in front. */
static const char *word_of(const struct cddpi_tokenizer *tokenizer, int32_t token,
                           size_t *out_bytes)
{
    if (token == tokenizer->line_end) {
        *out_bytes = strlen(line_name);
        return line_name;
    }
    *out_bytes = tokenizer->text_starts[token + 1] - tokenizer->text_starts[token] - 1;
    return tokenizer->texts + tokenizer->text_starts[token] + 1;
}

/* The slot of @p word, or the empty slot for it. */
static size_t slot_of(const struct cddpi_tokenizer *tokenizer, const char *word, size_t bytes)
{
    size_t mask = tokenizer->word_slot_count - 1;
    size_t slot = (size_t)cddpi_word_hash(word, bytes) & mask;

    for (;;) {
        int32_t token = tokenizer->word_slots[slot];
        size_t known_bytes;
        const char *known;

        if (token < 0) {
            return slot;
        }
        known = word_of(tokenizer, token, &known_bytes);
        if (known_bytes == bytes && memcmp(known, word, bytes) == 0) {
            return slot;
        }
        slot = (slot + 1) & mask;
    }
}

/* Build the hash table that finds words, when all tokens have their texts. */
static cddp_status index_words(struct cddpi_tokenizer *tokenizer)
{
    size_t count = 16;

    while (count < 2 * (size_t)tokenizer->count) {
        count *= 2;
    }
    tokenizer->word_slots = cddpi_zalloc_array(count, sizeof *tokenizer->word_slots);
    CDDPI_TRY_MEMORY(tokenizer->word_slots != NULL, "tokenizer: no memory for %d words",
                     tokenizer->count);
    tokenizer->word_slot_count = count;
    memset(tokenizer->word_slots, 0xff, count * sizeof *tokenizer->word_slots);
    for (int32_t token = 0; token < tokenizer->count; token++) {
        size_t bytes;
        const char *word = word_of(tokenizer, token, &bytes);

        if (token != tokenizer->end) { /* no text encodes to it */
            tokenizer->word_slots[slot_of(tokenizer, word, bytes)] = token;
        }
    }
    return CDDP_OK;
}

int32_t cddpi_word_level_find(const struct cddpi_tokenizer *tokenizer, const char *word,
                              size_t bytes)
{
    int32_t token = tokenizer->word_slots[slot_of(tokenizer, word, bytes)];

    return token < 0 ? tokenizer->unknown : token;
}

/* Set the text of @p token to @p word, written at byte @p at of the texts. Call it in the order of
 * the tokens. Returns the bytes that it took, at most @p bytes + 1. */
static size_t put_word(struct cddpi_tokenizer *tokenizer, int32_t token, const char *word,
                       size_t bytes, size_t at)
{
    size_t length = token == tokenizer->line_end ? 1 : bytes + 1;

    tokenizer->texts[at] = token == tokenizer->line_end ? '\n' : ' ';
    memcpy(tokenizer->texts + at + 1, word, length - 1);
    tokenizer->text_starts[token + 1] = at + length;
    return length;
}

/* Check that a setting of the file about splitting texts equals the only value that is supported
 * here. */
static cddp_status check_element(const char *path, const json_t *root, const char *name,
                                 json_t *expected, const char *meaning)
{
    bool same = expected != NULL && json_equal(json_object_get(root, name), expected);

    CDDPI_TRY_MEMORY(expected != NULL, "%s: no memory to read it", path);
    json_decref(expected);
    return same ? CDDP_OK
                : cddpi_fail(CDDP_ERR_FORMAT,
                             "%s: its model is WordLevel, but its %s is not the one with which %s: "
                             "no other can be used",
                             path, name, meaning);
}

static json_t *normalizer(void)
{
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", "\n", "content",
                     " " CDDPI_WORD_LINE_END " ");
}

static json_t *pre_tokenizer(void)
{
    return json_pack("{s:s}", "type", "WhitespaceSplit");
}

static cddp_status check_root(const char *path, const json_t *root, const json_t *vocab)
{
    const json_t *added = json_object_get(root, "added_tokens");
    const char *unknown = json_string_value(
        json_object_get(json_object_get(root, "model"), "unk_token"));

    CDDPI_TRY(check_element(path, root, "pre_tokenizer", pre_tokenizer(),
                            "words lie between white space"));
    CDDPI_TRY(check_element(path, root, "normalizer", normalizer(),
                            "each line's end becomes " CDDPI_WORD_LINE_END));
    if (!json_is_object(vocab)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: model.vocab is not an object", path);
    }
    if (unknown == NULL || strcmp(unknown, unknown_name) != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: model.unk_token is not %s", path, unknown_name);
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const char *content = json_string_value(
            json_object_get(json_array_get(added, i), "content"));

        if (content == NULL || strcmp(content, CDDPI_END_OF_TEXT) != 0) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s: added_tokens[%zu] is not %s, the only one that can be used",
                              path, i, CDDPI_END_OF_TEXT);
        }
    }
    return CDDP_OK;
}

/* Sort the words by their ids, which must be 0 to count - 1, each once. */
static cddp_status order_words(const struct cddpi_tokenizer *tokenizer, const char *path,
                               const json_t *vocab, const char **words, size_t *out_bytes)
{
    const char *word;
    json_t *value;

    json_object_foreach((json_t *)vocab, word, value)
    {
        json_int_t id = json_integer_value(value);
        size_t bytes = strlen(word);
        char shown[CDDPI_SHOWN_BYTES];

        if (!json_is_integer(value) || id < 0 || id >= tokenizer->count || words[id] != NULL) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s: token \"%s\": its id is not a whole number from 0 to %d that no "
                              "other has",
                              path, cddpi_tokenizer_shown(word, bytes, shown),
                              tokenizer->count - 1);
        }
        if (bytes == 0 || bytes > CDDPI_TOKEN_TEXT_MAX) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s: the token with id %lld has %zu bytes; 1 to %d are possible",
                              path, (long long)id, bytes, CDDPI_TOKEN_TEXT_MAX);
        }
        words[id] = word;
        *out_bytes += bytes + 1;
    }
    return CDDP_OK;
}

static cddp_status find_special(const char *path, const json_t *vocab, const char *name,
                                int32_t *out)
{
    const json_t *id = json_object_get(vocab, name);

    if (id == NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: model.vocab has no %s", path, name);
    }
    *out = (int32_t)json_integer_value(id);
    return CDDP_OK;
}

static cddp_status take_words(struct cddpi_tokenizer *tokenizer, const char *path,
                              const json_t *vocab, const char **words)
{
    size_t bytes = 0;
    size_t used = 0;

    CDDPI_TRY(order_words(tokenizer, path, vocab, words, &bytes));
    CDDPI_TRY(find_special(path, vocab, unknown_name, &tokenizer->unknown));
    CDDPI_TRY(find_special(path, vocab, line_name, &tokenizer->line_end));
    CDDPI_TRY(find_special(path, vocab, CDDPI_END_OF_TEXT, &tokenizer->end));
    CDDPI_TRY(cddpi_tokenizer_reserve(tokenizer, path, (size_t)tokenizer->count, bytes + 1));
    for (int32_t id = 0; id < tokenizer->count; id++) {
        used += put_word(tokenizer, id, words[id], strlen(words[id]), used);
    }
    return index_words(tokenizer);
}

cddp_status cddpi_word_level_load(struct cddpi_tokenizer *tokenizer, const char *path,
                                  const json_t *root)
{
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    const char **words;
    cddp_status status;

    CDDPI_TRY(check_root(path, root, vocab));
    if (json_object_size(vocab) > CDDPI_VOCABULARY_MAX) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: there are %zu tokens, but only %d can be used",
                          path, json_object_size(vocab), CDDPI_VOCABULARY_MAX);
    }
    tokenizer->count = (int)json_object_size(vocab);
    words = cddpi_zalloc_array((size_t)tokenizer->count, sizeof *words);
    CDDPI_TRY_MEMORY(words != NULL, "%s: no memory for %d words", path, tokenizer->count);
    status = take_words(tokenizer, path, vocab, words);
    cddpi_free(words);
    return status;
}

static json_t *vocab_of(const struct cddpi_tokenizer *tokenizer)
{
    json_t *vocab = json_object();
    bool is_good = vocab != NULL;

    for (int32_t token = 0; token < tokenizer->count && is_good; token++) {
        size_t bytes;
        const char *word = word_of(tokenizer, token, &bytes);
        char *text = cddpi_format("%.*s", (int)bytes, word);

        is_good = text != NULL && json_object_set_new(vocab, text, json_integer(token)) == 0;
        cddpi_free(text);
    }
    if (!is_good) {
        json_decref(vocab);
        vocab = NULL;
    }
    return vocab;
}

json_t *cddpi_word_level_document(const struct cddpi_tokenizer *tokenizer)
{
    return json_pack("{s:s, s:n, s:n, s:[{s:i, s:s, s:b, s:b, s:b, s:b, s:b}], s:o, s:o, s:n, s:n, "
                     "s:{s:s, s:o, s:s}}",
                     "version", "1.0", "truncation", "padding", "added_tokens", "id",
                     (int)tokenizer->end, "content", CDDPI_END_OF_TEXT, "single_word", 0, "lstrip",
                     0, "rstrip", 0, "normalized", 0, "special", 1, "normalizer", normalizer(),
                     "pre_tokenizer", pre_tokenizer(), "post_processor", "decoder", "model", "type",
                     "WordLevel", "vocab", vocab_of(tokenizer), "unk_token", unknown_name);
}

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
    CDDPI_TRY(cddpi_tokenizer_reserve(tokenizer, "tokenizer", count + SPECIAL, bytes));
    at += put_word(tokenizer, UNKNOWN, CDDPI_WORD_UNKNOWN, strlen(CDDPI_WORD_UNKNOWN), at);
    at += put_word(tokenizer, LINE_END, CDDPI_WORD_LINE_END, strlen(CDDPI_WORD_LINE_END), at);
    for (size_t i = 0; i < count; i++) {
        at += put_word(tokenizer, token++, words[i].text, words[i].bytes, at);
    }
    (void)put_word(tokenizer, token, CDDPI_END_OF_TEXT, strlen(CDDPI_END_OF_TEXT), at);
    return index_words(tokenizer);
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
