/* tokenizer_train.c - learns a BPE vocabulary: merges pairs in the different words of a text until
 * the vocabulary is full. */
#include "data/tokenizer/tokenizer_train.h"

#include "base/alloc.h"
#include "base/error.h"
#include "data/tokenizer/pair_counts.h"
#include "data/tokenizer/tokenizer_impl.h"
#include "data/tokenizer/words.h"

#include <string.h>

enum { PROGRESS_EVERY = 16 };

struct training {
    const struct cddpi_word_counts *counts;
    struct cddpi_tokenizer *tokenizer; /* its texts and text_starts have their final size */
    struct cddpi_pair_counts pairs;
    int32_t *symbols; /* tokens of all words; a word's start at the offset of its bytes in the
                         counts' text */
    size_t *lengths;  /* of words, in tokens */
    struct cddpi_merge *merges;
    size_t merge_count, merge_room;
    int wanted; /* tokens to learn, without the end-of-text token */
};

static size_t text_bytes(const struct cddpi_tokenizer *tokenizer, int32_t token)
{
    return tokenizer->text_starts[token + 1] - tokenizer->text_starts[token];
}

static int compare_texts(const struct cddpi_tokenizer *tokenizer, int32_t a, int32_t b)
{
    size_t a_bytes = text_bytes(tokenizer, a);
    size_t b_bytes = text_bytes(tokenizer, b);
    int difference = memcmp(tokenizer->texts + tokenizer->text_starts[a],
                            tokenizer->texts + tokenizer->text_starts[b],
                            a_bytes < b_bytes ? a_bytes : b_bytes);

    return difference != 0 ? difference : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static bool is_before(const void *argument, const struct cddpi_pair *a, const struct cddpi_pair *b)
{
    const struct cddpi_tokenizer *tokenizer = argument;
    int difference = compare_texts(tokenizer, a->left, b->left);

    return difference != 0 ? difference < 0 : compare_texts(tokenizer, a->right, b->right) < 0;
}

/* Add the 256 bytes as tokens, in the order of GPT-2's characters for them. */
static void add_bytes(struct training *training)
{
    struct cddpi_tokenizer *tokenizer = training->tokenizer;

    for (int32_t character = 0; tokenizer->count < 256; character++) {
        int byte = cddpi_byte_read(character);

        if (byte >= 0) {
            tokenizer->byte_tokens[byte] = tokenizer->count;
            tokenizer->texts[tokenizer->count] = (char)byte;
            tokenizer->count++;
            tokenizer->text_starts[tokenizer->count] = (size_t)tokenizer->count;
        }
    }
}

static cddp_status count_pairs(struct training *training)
{
    const struct cddpi_word_counts *counts = training->counts;

    for (size_t i = 0; i < counts->text_bytes; i++) {
        training->symbols[i] = training->tokenizer->byte_tokens[(unsigned char)counts->text[i]];
    }
    for (size_t i = 0; i < counts->count; i++) {
        const struct cddpi_counted_word *word = &counts->words[i];
        const int32_t *symbols = training->symbols + word->start;

        training->lengths[i] = word->bytes;
        for (size_t k = 0; k + 1 < word->bytes; k++) {
            CDDPI_TRY(cddpi_pair_counts_add(&training->pairs, symbols[k], symbols[k + 1],
                                            word->count, (uint32_t)i));
        }
    }
    return CDDP_OK;
}

/* In @p word, the pair of @p merge at index @p read becomes one token at index @p written: update
 * the counts of the pairs with its neighbours. */
static cddp_status count_around(struct training *training, uint32_t word,
                                const struct cddpi_merge *merge, const int32_t *symbols,
                                size_t read, size_t written)
{
    struct cddpi_pair_counts *pairs = &training->pairs;
    int64_t count = training->counts->words[word].count;

    CDDPI_TRY(cddpi_pair_counts_add(pairs, merge->left, merge->right, -count, word));
    if (written > 0) {
        int32_t before = symbols[written - 1];

        CDDPI_TRY(cddpi_pair_counts_add(pairs, before, merge->left, -count, word));
        CDDPI_TRY(cddpi_pair_counts_add(pairs, before, merge->merged, count, word));
    }
    if (read + 2 < training->lengths[word]) {
        int32_t after = symbols[read + 2];

        CDDPI_TRY(cddpi_pair_counts_add(pairs, merge->right, after, -count, word));
        CDDPI_TRY(cddpi_pair_counts_add(pairs, merge->merged, after, count, word));
    }
    return CDDP_OK;
}

static cddp_status merge_in_word(struct training *training, uint32_t word,
                                 const struct cddpi_merge *merge)
{
    int32_t *symbols = training->symbols + training->counts->words[word].start;
    size_t written = 0;

    for (size_t read = 0; read < training->lengths[word];) {
        if (read + 1 < training->lengths[word] && symbols[read] == merge->left &&
            symbols[read + 1] == merge->right) {
            CDDPI_TRY(count_around(training, word, merge, symbols, read, written));
            symbols[written++] = merge->merged;
            read += 2;
        } else {
            symbols[written++] = symbols[read++];
        }
    }
    training->lengths[word] = written;
    return CDDP_OK;
}

/* Make the token that joins @p left and @p right. No older token has the same bytes: merges inside
 * these bytes depend on nothing outside, so the bytes always ended as these two tokens. */
static int32_t make_token(struct training *training, int32_t left, int32_t right)
{
    struct cddpi_tokenizer *tokenizer = training->tokenizer;
    size_t left_bytes = text_bytes(tokenizer, left);
    size_t right_bytes = text_bytes(tokenizer, right);
    size_t at = tokenizer->text_starts[tokenizer->count];

    memcpy(tokenizer->texts + at, tokenizer->texts + tokenizer->text_starts[left], left_bytes);
    memcpy(tokenizer->texts + at + left_bytes, tokenizer->texts + tokenizer->text_starts[right],
           right_bytes);
    tokenizer->text_starts[tokenizer->count + 1] = at + left_bytes + right_bytes;
    return tokenizer->count++;
}

static cddp_status merge_pair(struct training *training, size_t index)
{
    struct cddpi_pair *pair = &training->pairs.pairs[index];
    struct cddpi_merge merge = {.left = pair->left, .right = pair->right};
    uint32_t *words = pair->words;
    size_t word_count = pair->word_count;
    struct cddpi_merge *merges;
    cddp_status status = CDDP_OK;

    pair->words = NULL; /* merging adds words to pairs, and the array of pairs may move */
    pair->word_count = pair->word_room = 0;
    merges = cddpi_grow(training->merges, &training->merge_room, training->merge_count + 1,
                        sizeof *merges);
    if (merges == NULL) {
        cddpi_free(words);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "tokenizer: no memory for %zu merges",
                          training->merge_count + 1);
    }
    training->merges = merges;
    merge.merged = make_token(training, merge.left, merge.right);
    merge.rank = (uint32_t)training->merge_count;
    training->merges[training->merge_count++] = merge;
    for (size_t i = 0; i < word_count && status == CDDP_OK; i++) {
        status = merge_in_word(training, words[i], &merge);
    }
    cddpi_free(words);
    return status;
}

static cddp_status learn(struct training *training, bool (*progress)(void *argument, int tokens),
                         void *argument)
{
    CDDPI_TRY(count_pairs(training));
    while (training->tokenizer->count < training->wanted) {
        const struct cddpi_pair *pair;
        size_t index;

        CDDPI_TRY(cddpi_pair_counts_settle(&training->pairs));
        index = cddpi_pair_counts_pop(&training->pairs);
        if (index == SIZE_MAX) {
            break;
        }
        pair = &training->pairs.pairs[index];
        if (text_bytes(training->tokenizer, pair->left) +
                text_bytes(training->tokenizer, pair->right) >
            CDDPI_TRAIN_TOKEN_MAX) {
            continue;
        }
        CDDPI_TRY(merge_pair(training, index));
        if (progress != NULL && training->merge_count % PROGRESS_EVERY == 0 &&
            !progress(argument, training->tokenizer->count + 1)) {
            break;
        }
    }
    return CDDP_OK;
}

/* The end-of-text token is the last one, as in GPT-2's vocabulary. */
static cddp_status complete_tokenizer(struct training *training)
{
    struct cddpi_tokenizer *tokenizer = training->tokenizer;
    size_t at = tokenizer->text_starts[tokenizer->count];

    CDDPI_TRY(cddpi_merges_reserve(tokenizer, training->merge_count));
    for (size_t i = 0; i < training->merge_count; i++) {
        cddpi_merges_add(tokenizer, &training->merges[i]);
    }
    memcpy(tokenizer->texts + at, CDDPI_END_OF_TEXT, strlen(CDDPI_END_OF_TEXT));
    tokenizer->end = tokenizer->count++;
    tokenizer->text_starts[tokenizer->count] = at + strlen(CDDPI_END_OF_TEXT);
    return CDDP_OK;
}

static cddp_status allocate(struct training *training)
{
    const struct cddpi_word_counts *counts = training->counts;
    struct cddpi_tokenizer *tokenizer = cddpi_zalloc(sizeof *tokenizer);
    size_t tokens = (size_t)training->wanted + 2;

    training->tokenizer = tokenizer;
    training->symbols = cddpi_zalloc_array(counts->text_bytes, sizeof *training->symbols);
    training->lengths = cddpi_zalloc_array(counts->count, sizeof *training->lengths);
    if (tokenizer != NULL) {
        /* Untouched pages take no memory. */
        tokenizer->texts = cddpi_zalloc_array(tokens, CDDPI_TRAIN_TOKEN_MAX);
        tokenizer->text_starts = cddpi_zalloc_array(tokens + 1, sizeof *tokenizer->text_starts);
    }
    CDDPI_TRY_MEMORY(
        tokenizer != NULL && tokenizer->texts != NULL && tokenizer->text_starts != NULL &&
            training->symbols != NULL && training->lengths != NULL,
        "tokenizer: no memory to learn %zu tokens from %zu words", tokens, counts->count);
    training->pairs.before = is_before;
    training->pairs.argument = tokenizer;
    return CDDP_OK;
}

cddp_status cddpi_tokenizer_train(const struct cddpi_word_counts *counts, int vocabulary,
                                  bool (*progress)(void *argument, int tokens), void *argument,
                                  struct cddpi_tokenizer **out)
{
    struct training training = {.counts = counts, .wanted = vocabulary - 1};
    cddp_status status;

    if (vocabulary < CDDPI_TRAIN_VOCABULARY_MIN || vocabulary > CDDPI_TRAIN_VOCABULARY_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "a vocabulary of %d tokens cannot be learned: it can have %d to %d",
                          vocabulary, CDDPI_TRAIN_VOCABULARY_MIN, CDDPI_TRAIN_VOCABULARY_MAX);
    }
    CDDPI_TRY_GOTO(done, status, allocate(&training));
    add_bytes(&training);
    CDDPI_TRY_GOTO(done, status, learn(&training, progress, argument));
    CDDPI_TRY_GOTO(done, status, complete_tokenizer(&training));
    *out = training.tokenizer;
    training.tokenizer = NULL;

done:
    cddpi_tokenizer_close(training.tokenizer);
    cddpi_pair_counts_fini(&training.pairs);
    cddpi_free(training.symbols);
    cddpi_free(training.lengths);
    cddpi_free(training.merges);
    return status;
}
