/* text.c - owns the way from text files to tokens. Pieces keep the memory beside the result small,
 * and let the caller tell others that it is still at work. */
#include "data/text.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <string.h>

enum { PIECE_BYTES = 1 << 20, NARROW_TOKENS = 1 << 16, FIRST_BYTES = 1 << 16 };

static const struct cddpi_source closed = {NULL, 0, -1};

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
                               .file = closed,
                               .pages = {NULL, 0, -1}};
}

void cddpi_text_fini(struct cddpi_text *text)
{
    cddpi_source_close(&text->file);
    cddpi_pages_free(&text->pages);
}

/* Room for @count more tokens. Zeros that are never written take no memory, so there may be much.
 */
static cddp_status make_room(struct cddpi_text *text, size_t count)
{
    const char *path = text->paths->names[0];
    size_t wanted = text->used + count * (size_t)text->token_bytes;
    size_t bytes = text->pages.bytes > 0 ? text->pages.bytes : FIRST_BYTES;

    while (bytes < wanted) {
        bytes *= 2;
    }
    if (text->pages.data == NULL) {
        return cddpi_pages_create(path, bytes, text->shareable, &text->pages);
    }
    return cddpi_pages_resize(path, bytes, &text->pages);
}

static cddp_status append(struct cddpi_text *text, const int32_t *tokens, size_t count)
{
    cddp_status status = make_room(text, count);

    if (status != CDDP_OK) {
        return status;
    }
    if (text->token_bytes == 2) {
        uint16_t *out = (uint16_t *)(void *)(text->pages.data + text->used);

        for (size_t i = 0; i < count; i++) {
            out[i] = (uint16_t)tokens[i];
        }
    } else {
        memcpy(text->pages.data + text->used, tokens, count * sizeof *tokens);
    }
    text->used += count * (size_t)text->token_bytes;
    return CDDP_OK;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Where the piece ends that begins at @at. Vocabularies of words never put a word and the space
 * before it into different tokens than the whole text would have, if it is cut between a letter and
 * a space that a letter follows; where there is no such place the piece is longer. */
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
        status = append(text, tokens, count);
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
        status = append(text, &end, 1);
    }
    if (status == CDDP_OK) {
        status = cddpi_source_open(path, false, &text->file);
    }
    text->next_file++;
    text->at = 0;
    return status;
}

cddp_status cddpi_text_read(struct cddpi_text *text, int64_t most_ns)
{
    int64_t begun = cddpi_now_ns();
    cddp_status status = CDDP_OK;

    if (text->done) {
        return CDDP_OK;
    }
    do { /* at least one piece, however short the time is */
        if (text->file.data == NULL) {
            status = open_next(text);
        } else {
            status = read_piece(text);
        }
        if (text->file.data != NULL && text->at == text->file.bytes) {
            cddpi_source_close(&text->file);
            text->done = text->next_file == text->paths->count;
        }
    } while (status == CDDP_OK && !text->done && cddpi_now_ns() - begun < most_ns);
    return status;
}

cddp_status cddpi_text_finish(struct cddpi_text *text, struct cddpi_source *out)
{
    const char *path = text->paths->names[0];
    cddp_status status = cddpi_pages_resize(path, text->used, &text->pages);

    if (status == CDDP_OK) {
        status = cddpi_source_freeze(path, &text->pages, out);
    }
    if (status == CDDP_OK) {
        text->pages = (struct cddpi_pages){NULL, 0, -1}; /* they are the source's */
    }
    return status;
}
