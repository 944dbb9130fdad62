/* text.c - owns the encoding of text files to tokens. It works in pieces, which need little memory
 * besides the result and let the caller tell other ranks that it is still working. */
#include "data/formats/text.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/foreign.h"
#include "base/memory_left.h"
#include "base/utf8.h"

#include <string.h>

enum { PIECE_BYTES = 1 << 20, NARROW_TOKENS = 1 << 16, FIRST_BYTES = 1 << 16 };

int cddpi_text_token_bytes(const struct cddpi_tokenizer *tokenizer)
{
    return cddpi_tokenizer_vocabulary(tokenizer) <= NARROW_TOKENS ? 2 : 4;
}

void cddpi_text_init(const struct cddpi_paths *paths, const struct cddpi_tokenizer *tokenizer,
                     bool shareable, struct cddpi_text *out)
{
    *out = (struct cddpi_text){.paths = paths,
                               .tokenizer = tokenizer,
                               .token_bytes = cddpi_text_token_bytes(tokenizer),
                               .shareable = shareable,
                               .file = CDDPI_DATA_FILE_CLOSED,
                               .mapping = {NULL, 0, -1}};
}

void cddpi_text_fini(struct cddpi_text *text)
{
    cddpi_data_file_close(&text->file);
    cddpi_growable_mapping_free(&text->mapping);
}

/* Make room for @p count more tokens, and for as many later ones if memory allows. Pages of zeros
 * that are never written take no memory. But if written pages do not fit into memory, the kernel
 * kills the process. */
static cddp_status make_room(struct cddpi_text *text, size_t count)
{
    const char *path = text->paths->names[0];
    size_t wanted = text->used + count * (size_t)text->token_bytes;
    size_t bytes = text->mapping.bytes > 0 ? text->mapping.bytes : FIRST_BYTES;

    if (wanted <= text->mapping.bytes) {
        return CDDP_OK;
    }
    while (bytes < wanted) {
        bytes *= 2;
    }
    if (cddpi_memory_need(bytes - text->mapping.bytes, "%s", path) != CDDP_OK) {
        CDDPI_TRY(cddpi_memory_need(wanted - text->mapping.bytes,
                                    "%s: its tokens, beside %zu bytes of them", path, text->used));
        bytes = wanted;
    }
    if (text->mapping.data == NULL) {
        return cddpi_growable_mapping_create(path, bytes, text->shareable, &text->mapping);
    }
    return cddpi_growable_mapping_resize(path, bytes, &text->mapping);
}

static cddp_status append_tokens(struct cddpi_text *text, const int32_t *tokens, size_t count)
{
    CDDPI_TRY(make_room(text, count));
    if (text->token_bytes == 2) {
        uint16_t *out = (uint16_t *)(void *)(text->mapping.data + text->used);

        for (size_t i = 0; i < count; i++) {
            out[i] = (uint16_t)tokens[i];
        }
    } else {
        memcpy(text->mapping.data + text->used, tokens, count * sizeof *tokens);
    }
    text->used += count * (size_t)text->token_bytes;
    return CDDP_OK;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The end of the piece that begins at @p at. The cut is between a letter and a space that is
 * followed by a letter: there, vocabularies of words give the same tokens as for the whole text.
 * Without such a place, the piece is longer. */
static size_t piece_end(const char *data, size_t bytes, size_t at)
{
    for (size_t length = PIECE_BYTES; bytes - at > length; length += PIECE_BYTES) {
        for (size_t i = at + length; i > at + length - PIECE_BYTES + 1; i--) {
            if (data[i - 1] == ' ' && is_letter(data[i]) && is_letter(data[i - 2])) {
                return i - 1;
            }
        }
    }
    return bytes;
}

static cddp_status read_piece(struct cddpi_text *text)
{
    const char *data = (const char *)text->file.data;
    size_t end = piece_end(data, text->file.bytes, text->at);
    int32_t *tokens = NULL;
    size_t count = 0;
    cddp_status status = cddpi_tokenizer_encode(text->tokenizer, data + text->at, end - text->at,
                                                &tokens, &count);

    if (status == CDDP_OK) {
        status = append_tokens(text, tokens, count);
        text->at = end;
    }
    cddpi_free(tokens);
    return status;
}

static cddp_status open_next(struct cddpi_text *text)
{
    const char *path = text->paths->names[text->next_file];
    int32_t end = cddpi_tokenizer_end(text->tokenizer);
    cddp_status status = CDDP_OK;

    if (text->next_file > 0) {
        status = append_tokens(text, &end, 1);
    }
    if (status == CDDP_OK) {
        status = cddpi_data_file_open(path, false, NULL, &text->file);
    }
    text->next_file++;
    text->at = 0;
    if (status == CDDP_OK) {
        const char *kind = cddpi_foreign_to_text(text->file.data, text->file.bytes);

        if (kind != NULL) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s: not text: it is %s", path, kind);
        }
        text->at = cddpi_utf8_mark((const char *)text->file.data, text->file.bytes);
    }
    return status;
}

cddp_status cddpi_text_read(struct cddpi_text *text, int64_t most_ns)
{
    int64_t begun = cddpi_now_ns();
    cddp_status status = CDDP_OK;

    if (text->done) {
        return CDDP_OK;
    }
    do { /* at least one piece, however little time there is */
        if (text->file.data == NULL) {
            status = open_next(text);
        } else {
            status = read_piece(text);
            if (status == CDDP_OK) {
                status = cddpi_data_file_check(&text->file);
            }
        }
        if (text->file.data != NULL && text->at == text->file.bytes) {
            cddpi_data_file_close(&text->file);
            text->done = text->next_file == text->paths->count;
        }
    } while (status == CDDP_OK && !text->done && cddpi_now_ns() - begun < most_ns);
    return status;
}

cddp_status cddpi_text_finish(struct cddpi_text *text, struct cddpi_data_file *out)
{
    const char *path = text->paths->names[0];

    CDDPI_TRY(cddpi_growable_mapping_resize(path, text->used, &text->mapping));
    CDDPI_TRY(cddpi_data_file_freeze(path, &text->mapping, out));
    text->mapping = (struct cddpi_growable_mapping){NULL, 0, -1}; /* the data file owns it now */
    return CDDP_OK;
}
