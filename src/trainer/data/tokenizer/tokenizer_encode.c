/* tokenizer_encode.c - encodes text to tokens: splits it into words, merges each word, and caches
 * the tokens of short words. */

#include "base/alloc.h"
#include "base/error.h"
#include "data/tokenizer/tokenizer_impl.h"
#include "data/tokenizer/words.h"

#include <string.h>

enum { SLOTS = 1 << 15, SLOT_WORD = 22, SLOT_TOKENS = 10 };

/* A word and its tokens: one cache line. */
struct tokenizer_encode_slot {
    uint8_t bytes; /* 0: empty */
    uint8_t count;
    char word[SLOT_WORD];
    int32_t tokens[SLOT_TOKENS];
};

struct cddpi_encoder {
    const struct cddpi_tokenizer *tokenizer;
    struct tokenizer_encode_slot
        *slots; /* a new word replaces the old one in its slot, so nothing grows */
    struct cddpi_merge_room room;
    int32_t *tokens;
    size_t count, token_room;
};

cddp_status cddpi_encoder_create(const struct cddpi_tokenizer *tokenizer,
                                 struct cddpi_encoder **out)
{
    struct cddpi_encoder *encoder = cddpi_zalloc(sizeof *encoder);

    CDDPI_TRY_MEMORY(encoder != NULL, "tokenizer: no memory for %zu bytes", sizeof *encoder);
    encoder->tokenizer = tokenizer;
    *out = encoder;
    return CDDP_OK;
}

void cddpi_encoder_destroy(struct cddpi_encoder *encoder)
{
    if (encoder == NULL) {
        return;
    }
    cddpi_merge_room_fini(&encoder->room);
    cddpi_free(encoder->slots);
    cddpi_free(encoder->tokens);
    cddpi_free(encoder);
}

/* Make room for @p more tokens. */
static cddp_status reserve(struct cddpi_encoder *encoder, size_t more)
{
    int32_t *tokens;

    if (more <= encoder->token_room - encoder->count) {
        return CDDP_OK;
    }
    tokens = cddpi_grow(encoder->tokens, &encoder->token_room, encoder->count + more,
                        sizeof *tokens);
    CDDPI_TRY_MEMORY(tokens != NULL, "tokenizer: no memory for %zu tokens", encoder->count + more);
    encoder->tokens = tokens;
    return CDDP_OK;
}

static void put_bytes(struct cddpi_encoder *encoder, const char *text, size_t bytes)
{
    const int32_t *byte_tokens = encoder->tokenizer->byte_tokens;
    int32_t *tokens = encoder->tokens + encoder->count;

    for (size_t i = 0; i < bytes; i++) {
        tokens[i] = byte_tokens[(unsigned char)text[i]];
    }
}

static struct tokenizer_encode_slot *slot_of(const struct cddpi_encoder *encoder, const char *word,
                                             size_t bytes)
{
    uint64_t parts[3] = {0};
    uint64_t hash;

    memcpy(parts, word, bytes);
    hash = (parts[0] ^ bytes) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 29 ^ parts[1]) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 32 ^ parts[2]) * 0x94d049bb133111ebu;
    return &encoder->slots[hash >> 49];
}

/* Merge a word that is not in the cache, and append its tokens. */
static cddp_status put_new_word(struct cddpi_encoder *encoder, const char *word, size_t bytes)
{
    size_t count = bytes;

    CDDPI_TRY(reserve(encoder, bytes));
    put_bytes(encoder, word, bytes);
    CDDPI_TRY(cddpi_merge_word(encoder->tokenizer, &encoder->room, encoder->tokens + encoder->count,
                               &count));
    encoder->count += count;
    return CDDP_OK;
}

static cddp_status put_word(struct cddpi_encoder *encoder, const char *word, size_t bytes)
{
    size_t before = encoder->count;
    struct tokenizer_encode_slot *slot;

    if (bytes > SLOT_WORD) {
        return put_new_word(encoder, word, bytes);
    }
    slot = slot_of(encoder, word, bytes);
    if (slot->bytes == bytes && memcmp(slot->word, word, bytes) == 0) {
        CDDPI_TRY(reserve(encoder, slot->count));
        memcpy(encoder->tokens + encoder->count, slot->tokens, slot->count * sizeof *slot->tokens);
        encoder->count += slot->count;
        return CDDP_OK;
    }
    CDDPI_TRY(put_new_word(encoder, word, bytes));
    if (encoder->count - before <= SLOT_TOKENS) {
        slot->bytes = (uint8_t)bytes;
        slot->count = (uint8_t)(encoder->count - before);
        memcpy(slot->word, word, bytes);
        memcpy(slot->tokens, encoder->tokens + before, slot->count * sizeof *slot->tokens);
    }
    return CDDP_OK;
}

static cddp_status put_spaced_words(struct cddpi_encoder *encoder, const char *text, size_t bytes,
                                    bool last, size_t *out_used)
{
    const struct cddpi_tokenizer *tokenizer = encoder->tokenizer;
    struct cddpi_spaced_word word = {0};

    while (cddpi_spaced_word_next(text, bytes, last, &word)) {
        CDDPI_TRY(reserve(encoder, 1));
        encoder->tokens[encoder->count++] =
            word.is_line_end ? tokenizer->line_end
                             : cddpi_word_level_find(tokenizer, text + word.start, word.bytes);
    }
    *out_used = word.next;
    return CDDP_OK;
}

cddp_status cddpi_encoder_put(struct cddpi_encoder *encoder, const char *text, size_t bytes,
                              bool last, size_t *out_used)
{
    size_t at = 0;

    if (encoder->tokenizer->word_slot_count > 0) {
        return put_spaced_words(encoder, text, bytes, last, out_used);
    }
    if (encoder->tokenizer->merge_slots == 0) {
        CDDPI_TRY(reserve(encoder, bytes));
        put_bytes(encoder, text, bytes);
        encoder->count += bytes;
        *out_used = bytes;
        return CDDP_OK;
    }
    if (encoder->slots == NULL) {
        encoder->slots = cddpi_zalloc_array(SLOTS, sizeof *encoder->slots);
        CDDPI_TRY_MEMORY(encoder->slots != NULL, "tokenizer: no memory for %zu bytes",
                         SLOTS * sizeof *encoder->slots);
    }
    while (at < bytes) {
        size_t length = cddpi_word_length(text + at, bytes - at);

        if (!last && bytes - at - length < CDDPI_WORD_LOOKAHEAD) {
            break;
        }
        CDDPI_TRY(put_word(encoder, text + at, length));
        at += length;
    }
    *out_used = at;
    return CDDP_OK;
}

const int32_t *cddpi_encoder_tokens(const struct cddpi_encoder *encoder, size_t *out_count)
{
    *out_count = encoder->count;
    return encoder->tokens;
}

void cddpi_encoder_clear(struct cddpi_encoder *encoder)
{
    encoder->count = 0;
}

cddp_status cddpi_tokenizer_encode(const struct cddpi_tokenizer *tokenizer, const char *text,
                                   size_t bytes, int32_t **out_tokens, size_t *out_count)
{
    struct cddpi_encoder *encoder;
    size_t used;
    cddp_status status;

    CDDPI_TRY(cddpi_encoder_create(tokenizer, &encoder));
    CDDPI_TRY_GOTO(done, status, reserve(encoder, bytes / 4 + 1));
    CDDPI_TRY_GOTO(done, status, cddpi_encoder_put(encoder, text, bytes, true, &used));
    *out_count = encoder->count;
    *out_tokens = encoder->tokens;
    encoder->tokens = NULL;

done:
    cddpi_encoder_destroy(encoder);
    return status;
}
