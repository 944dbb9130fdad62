/* tokenizer_save.c - writes a vocabulary in a form that Hugging Face's tokenizers read,
 * too. */
#include "data/tokenizer/tokenizer_train.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/replace.h"
#include "data/tokenizer/tokenizer_impl.h"

#include <jansson.h>
#include <stdlib.h>

static bool is_special(const struct cddpi_tokenizer *tokenizer, int32_t token)
{
    bool is_other = false;

    for (size_t i = 0; i < tokenizer->other_count; i++) {
        is_other |= tokenizer->others[i].id == token;
    }
    return is_other || token == tokenizer->end;
}

/* Write token @p token to @p text as GPT-2's files do. Returns its length in bytes. */
static size_t write_token(const struct cddpi_tokenizer *tokenizer, int32_t token, char *text)
{
    bool is_raw = is_special(tokenizer, token);
    size_t used = 0;

    for (size_t i = tokenizer->text_starts[token]; i < tokenizer->text_starts[token + 1]; i++) {
        if (is_raw) {
            text[used++] = tokenizer->texts[i];
        } else {
            used += cddpi_byte_write((unsigned char)tokenizer->texts[i], text + used);
        }
    }
    text[used] = '\0';
    return used;
}

static json_t *vocab_of(const struct cddpi_tokenizer *tokenizer)
{
    json_t *vocab = json_object();
    char text[2 * CDDPI_TRAIN_TOKEN_MAX + 1];
    bool is_good = vocab != NULL;

    for (int32_t token = 0; token < tokenizer->count && is_good; token++) {
        write_token(tokenizer, token, text);
        is_good = json_object_set_new(vocab, text, json_integer(token)) == 0;
    }
    if (!is_good) {
        json_decref(vocab);
        vocab = NULL;
    }
    return vocab;
}

static int by_rank(const void *a, const void *b)
{
    const struct cddpi_merge *left = a;
    const struct cddpi_merge *right = b;

    return (left->rank > right->rank) - (left->rank < right->rank);
}

/* The merges as "left right", a form that older versions of Hugging Face's library read, too. */
static json_t *merges_of(const struct cddpi_tokenizer *tokenizer)
{
    struct cddpi_merge *merges = cddpi_zalloc_array(tokenizer->merge_slots + 1, sizeof *merges);
    json_t *array = json_array();
    char text[4 * CDDPI_TRAIN_TOKEN_MAX + 2];
    size_t count = 0;
    bool is_good = merges != NULL && array != NULL;

    for (size_t i = 0; i < tokenizer->merge_slots && is_good; i++) {
        if (tokenizer->merges[i].left >= 0) {
            merges[count++] = tokenizer->merges[i];
        }
    }
    if (count > 0) {
        qsort(merges, count, sizeof *merges, by_rank);
    }
    for (size_t i = 0; i < count && is_good; i++) {
        size_t used = write_token(tokenizer, merges[i].left, text);

        text[used++] = ' ';
        write_token(tokenizer, merges[i].right, text + used);
        is_good = json_array_append_new(array, json_string(text)) == 0;
    }
    cddpi_free(merges);
    if (!is_good) {
        json_decref(array);
        array = NULL;
    }
    return array;
}

/* Vocabularies of others may have longer tokens than the buffers here. */
static cddp_status check_lengths(const struct cddpi_tokenizer *tokenizer, const char *path)
{
    for (int32_t token = 0; token < tokenizer->count; token++) {
        size_t bytes = tokenizer->text_starts[token + 1] - tokenizer->text_starts[token];

        if (bytes > CDDPI_TRAIN_TOKEN_MAX) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s: token %d has %zu bytes; %d are possible", path,
                              (int)token, bytes, CDDPI_TRAIN_TOKEN_MAX);
        }
    }
    return CDDP_OK;
}

static bool add_special(json_t *array, const struct cddpi_tokenizer *tokenizer, int32_t token,
                        unsigned flags)
{
    char text[2 * CDDPI_TRAIN_TOKEN_MAX + 1];
    json_t *added;
    bool is_good;

    write_token(tokenizer, token, text);
    added = json_pack("{s:i, s:s}", "id", (int)token, "content", text);
    is_good = added != NULL;
    for (unsigned i = 0; i < CDDPI_SPECIAL_FLAGS && is_good; i++) {
        is_good = json_object_set_new(added, cddpi_special_flags[i],
                                      json_boolean(flags >> i & 1U)) == 0;
    }
    is_good = is_good && json_object_set_new(added, "special", json_true()) == 0;
    return json_array_append_new(array, added) == 0 && is_good;
}

/* The end token and the other special ones. */
static json_t *specials_of(const struct cddpi_tokenizer *tokenizer)
{
    json_t *array = json_array();
    bool is_good = array != NULL &&
                   add_special(array, tokenizer, tokenizer->end, tokenizer->end_flags);

    for (size_t i = 0; i < tokenizer->other_count && is_good; i++) {
        is_good = add_special(array, tokenizer, tokenizer->others[i].id,
                              tokenizer->others[i].flags);
    }
    if (!is_good) {
        json_decref(array);
        array = NULL;
    }
    return array;
}

static json_t *document_of(const struct cddpi_tokenizer *tokenizer)
{
    return json_pack(
        "{s:s, s:n, s:n, s:o, s:n, s:{s:s, s:b, s:b, s:b}, "
        "s:n, s:{s:s, s:b, s:b, s:b}, s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}}",
        "version", "1.0", "truncation", "padding", "added_tokens", specials_of(tokenizer),
        "normalizer", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets",
        1, "use_regex", 1, "post_processor", "decoder", "type", "ByteLevel", "add_prefix_space", 1,
        "trim_offsets", 1, "use_regex", 1, "model", "type", "BPE", "dropout", "unk_token",
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
        "ignore_merges", 0, "vocab", vocab_of(tokenizer), "merges", merges_of(tokenizer));
}

cddp_status cddpi_tokenizer_save(const struct cddpi_tokenizer *tokenizer, const char *path)
{
    json_t *document;
    char *text;
    cddp_status status;

    CDDPI_TRY(check_lengths(tokenizer, path));
    document = tokenizer->word_slot_count > 0 ? cddpi_word_level_document(tokenizer)
                                              : document_of(tokenizer);
    text = document != NULL ? json_dumps(document, JSON_INDENT(1)) : NULL;
    json_decref(document);
    CDDPI_TRY_MEMORY(text != NULL, "%s: no memory for %d tokens", path, tokenizer->count);
    status = cddpi_file_replace_line(path, text);
    free(text); /* allocated by jansson */
    return status;
}
