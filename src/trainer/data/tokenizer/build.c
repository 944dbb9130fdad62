/* build.c - builds a tokenizer from a vocabulary, and checks each entry. */
#include "data/tokenizer/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

enum { ADDED_MAX = 4096 };

static const char *const end_names[] = {CDDPI_END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>",
                                        "[EOS]"};

/* A token, as its file writes it. */
struct build_entry {
    const char *text; /* NULL: the id is unused so far */
    bool raw;         /* literal, not in GPT-2's characters for bytes */
};

const char *cddpi_tokenizer_shown(const char *text, size_t bytes, char buffer[CDDPI_SHOWN_BYTES])
{
    size_t used = 0;

    while (used < bytes && used < CDDPI_SHOWN_BYTES - 4) {
        unsigned char c = (unsigned char)text[used];

        buffer[used++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    if (used < bytes) {
        while (used > 0 && ((unsigned char)buffer[used - 1] & 0xc0) == 0x80) {
            used--; /* do not cut inside a character */
        }
        used -= used > 0 && (unsigned char)buffer[used - 1] >= 0xc0;
    }
    snprintf(buffer + used, CDDPI_SHOWN_BYTES - used, "%s", used < bytes ? "..." : "");
    return buffer;
}

static const char *shown(const char *text, char buffer[CDDPI_SHOWN_BYTES])
{
    return cddpi_tokenizer_shown(text, strlen(text), buffer);
}

/* Give @p token the id @p value. */
static cddp_status place_entry(const struct cddpi_tokenizer_build *build,
                               struct build_entry *entries, const char *token, const json_t *value,
                               bool raw)
{
    char name[CDDPI_SHOWN_BYTES];
    char other[CDDPI_SHOWN_BYTES];
    int count = build->tokenizer->count;
    json_int_t id = json_integer_value(value);

    if (!json_is_integer(value)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: token \"%s\": its id is not a whole number",
                          build->path, shown(token, name));
    }
    if (id < 0 || id >= count) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: token \"%s\": its id is %lld, but there are %d tokens, so that ids "
                          "are 0 to %d",
                          build->path, shown(token, name), (long long)id, count, count - 1);
    }
    if (entries[id].text != NULL && strcmp(entries[id].text, token) != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: tokens \"%s\" and \"%s\" have the same id %lld",
                          build->path, shown(entries[id].text, other), shown(token, name),
                          (long long)id);
    }
    if (strlen(token) > CDDPI_TOKEN_TEXT_MAX) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: token \"%s\": it has %zu bytes, more than %d",
                          build->path, shown(token, name), strlen(token), CDDPI_TOKEN_TEXT_MAX);
    }
    entries[id].text = token;
    entries[id].raw = raw;
    return CDDP_OK;
}

/* Check one of Hugging Face's added tokens: it has an id, a content and whether it is special. */
static cddp_status check_added(const struct cddpi_tokenizer_build *build, size_t index,
                               int *io_count)
{
    const json_t *token = json_array_get(build->added, index);
    const char *content = json_string_value(json_object_get(token, "content"));
    const json_t *id = json_object_get(token, "id");
    const json_t *known = content != NULL ? json_object_get(build->vocab, content) : NULL;
    char name[CDDPI_SHOWN_BYTES];

    if (content == NULL || content[0] == '\0' || !json_is_integer(id)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: added_tokens[%zu]: it has no id and content",
                          build->path, index);
    }
    if (!json_is_true(json_object_get(token, "special"))) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: added_tokens[%zu], \"%s\": it is not special; added tokens that "
                          "are parts of a text cannot be used",
                          build->path, index, shown(content, name));
    }
    if (known != NULL && json_integer_value(known) != json_integer_value(id)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: added_tokens[%zu], \"%s\": its id is %lld, but %lld in the "
                          "vocabulary",
                          build->path, index, shown(content, name),
                          (long long)json_integer_value(id), (long long)json_integer_value(known));
    }
    for (size_t i = 0; i < index; i++) {
        const json_t *other = json_array_get(build->added, i);

        if (strcmp(json_string_value(json_object_get(other, "content")), content) == 0) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s: added_tokens[%zu], \"%s\": it is there twice",
                              build->path, index, shown(content, name));
        }
    }
    *io_count += known == NULL;
    return CDDP_OK;
}

static cddp_status place_all(struct cddpi_tokenizer_build *build, struct build_entry *entries)
{
    const char *token;
    json_t *value;

    json_object_foreach((json_t *)build->vocab, token, value)
    {
        CDDPI_TRY(place_entry(build, entries, token, value, false));
    }
    for (size_t i = 0; i < json_array_size(build->added); i++) {
        const json_t *added = json_array_get(build->added, i);
        const json_t *id = json_object_get(added, "id");

        CDDPI_TRY(place_entry(build, entries, json_string_value(json_object_get(added, "content")),
                              id, true));
        build->special[json_integer_value(id)] = true;
    }
    return CDDP_OK;
}

/* Append the bytes of token @p id to the tokenizer's texts. */
static cddp_status put_text(const struct cddpi_tokenizer_build *build,
                            const struct build_entry *entry, int id, size_t *io_used)
{
    struct cddpi_tokenizer *tokenizer = build->tokenizer;
    const char *at = entry->text;
    char name[CDDPI_SHOWN_BYTES];

    if (entry->raw) {
        memcpy(tokenizer->texts + *io_used, entry->text, strlen(entry->text));
        *io_used += strlen(entry->text);
        at = "";
    }
    while (*at != '\0') {
        utf8proc_int32_t point = -1;
        utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)at, -1, &point);
        int byte = cddpi_byte_read(point);

        if (byte < 0 || length < 1) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s: token \"%s\" (id %d): U+%04X does not stand for a byte",
                              build->path, shown(entry->text, name), id, (unsigned)point);
        }
        tokenizer->texts[(*io_used)++] = (char)byte;
        at += length;
    }
    tokenizer->text_starts[id + 1] = *io_used;
    return CDDP_OK;
}

static cddp_status put_texts(const struct cddpi_tokenizer_build *build,
                             const struct build_entry *entries)
{
    struct cddpi_tokenizer *tokenizer = build->tokenizer;
    size_t bytes = 0;
    size_t used = 0;

    for (int id = 0; id < tokenizer->count; id++) {
        if (entries[id].text == NULL) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s: no token has the id %d, though there are %d tokens", build->path,
                              id, tokenizer->count);
        }
        if (entries[id].text[0] == '\0') {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s: the token with id %d is empty", build->path,
                              id);
        }
        bytes += strlen(entries[id].text);
    }
    CDDPI_TRY(cddpi_tokenizer_reserve(tokenizer, build->path, (size_t)tokenizer->count, bytes));
    for (int id = 0; id < tokenizer->count; id++) {
        CDDPI_TRY(put_text(build, &entries[id], id, &used));
    }
    return CDDP_OK;
}

/* The id of a token that a text may contain; -1: no such token. */
static int32_t find(const struct cddpi_tokenizer_build *build, const char *token)
{
    const json_t *id = json_object_get(build->vocab, token);

    return id != NULL ? (int32_t)json_integer_value(id) : -1;
}

static cddp_status find_bytes(const struct cddpi_tokenizer_build *build)
{
    for (int byte = 0; byte < 256; byte++) {
        char text[5];

        text[cddpi_byte_write((unsigned char)byte, text)] = '\0';
        build->tokenizer->byte_tokens[byte] = find(build, text);
        if (build->tokenizer->byte_tokens[byte] < 0) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s: no token is the byte 0x%02x, written \"%s\", so that not every "
                              "text can be encoded",
                              build->path, (unsigned)byte, text);
        }
    }
    return CDDP_OK;
}

static cddp_status find_end(const struct cddpi_tokenizer_build *build)
{
    size_t names = sizeof end_names / sizeof *end_names;

    for (size_t i = 0; i < names; i++) {
        int32_t end = find(build, end_names[i]);

        for (size_t k = 0; k < json_array_size(build->added) && end < 0; k++) {
            const json_t *added = json_array_get(build->added, k);

            if (strcmp(json_string_value(json_object_get(added, "content")), end_names[i]) == 0) {
                end = (int32_t)json_integer_value(json_object_get(added, "id"));
            }
        }
        if (end >= 0) {
            build->tokenizer->end = end;
            build->special[end] = true;
            return CDDP_OK;
        }
    }
    return cddpi_fail(
        CDDP_ERR_FORMAT,
        "%s: no token stands for the end of a text: there is neither %s nor %s, %s, %s or %s",
        build->path, end_names[0], end_names[1], end_names[2], end_names[3], end_names[4]);
}

const char *const cddpi_special_flags[CDDPI_SPECIAL_FLAGS] = {"single_word", "lstrip", "rstrip",
                                                              "normalized"};

static unsigned flags_of(const json_t *added)
{
    unsigned flags = 0;

    for (unsigned i = 0; i < CDDPI_SPECIAL_FLAGS; i++) {
        flags |= (unsigned)json_is_true(json_object_get(added, cddpi_special_flags[i])) << i;
    }
    return flags;
}

/* What only a saved file needs of the special tokens. */
static cddp_status keep_specials(const struct cddpi_tokenizer_build *build)
{
    struct cddpi_tokenizer *tokenizer = build->tokenizer;
    size_t count = json_array_size(build->added);

    if (count == 0) {
        return CDDP_OK;
    }
    tokenizer->others = cddpi_zalloc_array(count, sizeof *tokenizer->others);
    CDDPI_TRY_MEMORY(tokenizer->others != NULL, "%s: no memory for %zu tokens", build->path, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *added = json_array_get(build->added, i);
        int32_t id = (int32_t)json_integer_value(json_object_get(added, "id"));

        if (id == tokenizer->end) {
            tokenizer->end_flags = flags_of(added);
        } else {
            tokenizer->others[tokenizer->other_count++] = (struct cddpi_special){id,
                                                                                 flags_of(added)};
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_tokenizer_build_tokens(struct cddpi_tokenizer_build *build)
{
    struct build_entry *entries = NULL;
    size_t listed = json_object_size(build->vocab) + json_array_size(build->added);
    int count = (int)json_object_size(build->vocab);
    cddp_status status;

    if (json_array_size(build->added) > ADDED_MAX) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: there are %zu added tokens, but only %d can be used", build->path,
                          json_array_size(build->added), ADDED_MAX);
    }
    if (listed > CDDPI_VOCABULARY_MAX) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: there are %zu tokens, but only %d can be used",
                          build->path, listed, CDDPI_VOCABULARY_MAX);
    }
    for (size_t i = 0; i < json_array_size(build->added); i++) {
        CDDPI_TRY(check_added(build, i, &count));
    }
    build->tokenizer->count = count;
    entries = cddpi_zalloc_array((size_t)count, sizeof *entries);
    build->special = cddpi_zalloc_array((size_t)count, sizeof *build->special);
    build->text = cddpi_zalloc((size_t)2 * CDDPI_TOKEN_TEXT_MAX + 1);
    if (entries == NULL || build->special == NULL || build->text == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %d tokens", build->path, count);
        goto done;
    }
    CDDPI_TRY_GOTO(done, status, place_all(build, entries));
    CDDPI_TRY_GOTO(done, status, put_texts(build, entries));
    CDDPI_TRY_GOTO(done, status, find_bytes(build));
    CDDPI_TRY_GOTO(done, status, find_end(build));
    CDDPI_TRY_GOTO(done, status, keep_specials(build));

done:
    cddpi_free(entries);
    return status;
}

/* Find the id of one half of a merge. */
static cddp_status find_part(struct cddpi_tokenizer_build *build, const char *path,
                             const char *where, const char *text, size_t bytes, int32_t *out)
{
    char name[CDDPI_SHOWN_BYTES];

    *out = -1;
    if (bytes <= (size_t)2 * CDDPI_TOKEN_TEXT_MAX && memchr(text, '\0', bytes) == NULL) {
        memcpy(build->text, text, bytes);
        build->text[bytes] = '\0';
        *out = find(build, build->text);
    }
    if (*out < 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: %s: \"%s\" is not a token of %s", path, where,
                          cddpi_tokenizer_shown(text, bytes, name), build->path);
    }
    if (build->special[*out]) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: %s: \"%s\" is a special token", path, where,
                          cddpi_tokenizer_shown(text, bytes, name));
    }
    return CDDP_OK;
}

cddp_status cddpi_tokenizer_build_merge(struct cddpi_tokenizer_build *build, const char *path,
                                        const char *where, const char *left, size_t left_bytes,
                                        const char *right, size_t right_bytes)
{
    struct cddpi_merge merge = {.rank = build->rank};
    char whole[2 * CDDPI_TOKEN_TEXT_MAX];
    char name[CDDPI_SHOWN_BYTES];

    CDDPI_TRY(find_part(build, path, where, left, left_bytes, &merge.left));
    CDDPI_TRY(find_part(build, path, where, right, right_bytes, &merge.right));
    memcpy(whole, left, left_bytes); /* both are tokens, so not longer than the maximum */
    memcpy(whole + left_bytes, right, right_bytes);
    CDDPI_TRY(find_part(build, path, where, whole, left_bytes + right_bytes, &merge.merged));
    if (!cddpi_merges_add(build->tokenizer, &merge)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: %s: \"%s\" is merged for the second time", path,
                          where, cddpi_tokenizer_shown(whole, left_bytes + right_bytes, name));
    }
    build->rank++;
    return CDDP_OK;
}

cddp_status cddpi_tokenizer_build_merge_text(struct cddpi_tokenizer_build *build, const char *path,
                                             const char *where, const char *text, size_t bytes)
{
    const char *space = memchr(text, ' ', bytes);
    char name[CDDPI_SHOWN_BYTES];

    if (space == NULL || space == text || space + 1 == text + bytes ||
        memchr(space + 1, ' ', (size_t)(text + bytes - space - 1)) != NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: %s: \"%s\" is not two tokens with a space between them", path, where,
                          cddpi_tokenizer_shown(text, bytes, name));
    }
    return cddpi_tokenizer_build_merge(build, path, where, text, (size_t)(space - text), space + 1,
                                       (size_t)(text + bytes - space - 1));
}

void cddpi_tokenizer_build_fini(struct cddpi_tokenizer_build *build)
{
    cddpi_free(build->special);
    cddpi_free(build->text);
}
