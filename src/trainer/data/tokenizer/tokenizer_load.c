/* tokenizer_load.c - opens a vocabulary: finds and reads all its files when one of them is named.
 * The byte vocabulary needs no file. */
#include "data/tokenizer/tokenizer_impl.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/foreign.h"
#include "base/json.h"
#include "base/utf8.h"
#include "data/files/data_file.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 1 << 28 };

/* Files that belong together, by the ends of their names. */
static const struct tokenizer_load_pair {
    const char *tokens, *merges;
} pairs[] = {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}};

enum { PAIRS = sizeof pairs / sizeof *pairs };

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);

    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

/* The path of the other file of the pair. NULL: @p path's name is in no pair, or there is no
 * memory. */
static char *other_of(const char *path, bool is_merges)
{
    for (int i = 0; i < PAIRS; i++) {
        const char *name = is_merges ? pairs[i].merges : pairs[i].tokens;

        if (ends_with(path, name)) {
            return cddpi_format("%.*s%s", (int)(strlen(path) - strlen(name)), path,
                                is_merges ? pairs[i].tokens : pairs[i].merges);
        }
    }
    return NULL;
}

/* Find the file to start with in the folder @p path. */
static cddp_status find_in_folder(const char *path, char **out)
{
    static const char *const names[] = {"tokenizer.json", "encoder.json", "vocab.json"};

    for (int i = 0; i < 3; i++) {
        char *file = cddpi_format("%s/%s", path, names[i]);

        CDDPI_TRY_MEMORY(file != NULL, "%s: no memory for a path", path);
        if (access(file, F_OK) == 0) {
            *out = file;
            return CDDP_OK;
        }
        cddpi_free(file);
    }
    return cddpi_fail(CDDP_ERR_NOT_FOUND,
                      "%s: this folder has no vocabulary: no tokenizer.json, no encoder.json with "
                      "vocab.bpe, no vocab.json with merges.txt",
                      path);
}

static cddp_status open_file(const char *path, struct cddpi_data_file *out)
{
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddpi_data_file_open(path, false, NULL, out));
    if (out->bytes > FILE_BYTES_MAX) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: %zu bytes are too many for a vocabulary", path,
                            out->bytes);
    } else if (cddpi_foreign_to_text(out->data, out->bytes) != NULL) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: not a vocabulary: it is %s", path,
                            cddpi_foreign_to_text(out->data, out->bytes));
    }
    if (status != CDDP_OK) {
        cddpi_data_file_close(out);
    }
    return status;
}

/* Parse @p data_file; @p out is NULL on failure. */
static cddp_status parse(const char *path, const struct cddpi_data_file *data_file, json_t **out)
{
    json_error_t error;
    char text[CDDPI_SHOWN_BYTES];

    *out = cddpi_json_load(data_file->data, data_file->bytes, JSON_REJECT_DUPLICATES, &error);
    if (*out == NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: line %d, column %d: %s", path, error.line,
                          error.column,
                          cddpi_tokenizer_shown(error.text, strlen(error.text), text));
    }
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: it is not a JSON object", path);
    }
    return CDDP_OK;
}

static cddp_status read_merges(struct cddpi_tokenizer_build *build, const char *path,
                               const struct cddpi_data_file *data_file)
{
    const char *begin = (const char *)data_file->data;
    const char *at = begin + cddpi_utf8_mark(begin, data_file->bytes);
    const char *end = begin + data_file->bytes;
    size_t lines = 1;

    for (const char *c = at; c < end; c++) {
        lines += *c == '\n';
    }
    CDDPI_TRY(cddpi_merges_reserve(build->tokenizer, lines));
    for (size_t line = 1; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline != NULL ? newline : end;
        size_t bytes = (size_t)(stop - at);
        char where[32];

        bytes -= bytes > 0 && at[bytes - 1] == '\r';
        if (bytes > 0 && !(line == 1 && bytes >= 8 && memcmp(at, "#version", 8) == 0)) {
            snprintf(where, sizeof where, "line %zu", line);
            CDDPI_TRY(cddpi_tokenizer_build_merge_text(build, path, where, at, bytes));
        }
        at = newline != NULL ? newline + 1 : end;
    }
    return CDDP_OK;
}

static cddp_status load_pair(struct cddpi_tokenizer *tokenizer, const char *tokens_path,
                             const json_t *vocab, const char *merges_path,
                             const struct cddpi_data_file *merges)
{
    struct cddpi_tokenizer_build build = {
        .tokenizer = tokenizer, .path = tokens_path, .vocab = vocab};
    cddp_status status = cddpi_tokenizer_build_tokens(&build);

    status = status == CDDP_OK ? read_merges(&build, merges_path, merges) : status;
    cddpi_tokenizer_build_fini(&build);
    return status;
}

/* @p data_file, at @p path, has the merges; the file @p tokens_path has the tokens. */
static cddp_status load_from_merges(struct cddpi_tokenizer *tokenizer, const char *path,
                                    const struct cddpi_data_file *data_file,
                                    const char *tokens_path)
{
    struct cddpi_data_file tokens;
    json_t *vocab;
    cddp_status status = open_file(tokens_path, &tokens);

    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "%s has merges, but their tokens are missing", path);
    }
    status = parse(tokens_path, &tokens, &vocab);
    status = cddpi_data_file_finish(&tokens, status);
    if (status == CDDP_OK) {
        status = load_pair(tokenizer, tokens_path, vocab, path, data_file);
    }
    json_decref(vocab);
    return status;
}

static cddp_status load_from_tokens(struct cddpi_tokenizer *tokenizer, const char *path,
                                    const json_t *vocab, const char *merges_path)
{
    struct cddpi_data_file merges;
    cddp_status status = open_file(merges_path, &merges);

    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "%s has tokens, but their merges are missing", path);
    }
    status = load_pair(tokenizer, path, vocab, merges_path, &merges);
    return cddpi_data_file_finish(&merges, status);
}

static bool looks_like_json(const struct cddpi_data_file *data_file)
{
    size_t at = cddpi_utf8_mark((const char *)data_file->data, data_file->bytes);

    while (at < data_file->bytes && memchr(" \t\r\n", data_file->data[at], 4) != NULL) {
        at++;
    }
    return at < data_file->bytes && data_file->data[at] == '{';
}

/* @p data_file, at @p path, is JSON; @p other is the file of its merges, in case it needs one. */
static cddp_status load_from_json(struct cddpi_tokenizer *tokenizer, const char *path,
                                  const struct cddpi_data_file *data_file, const char *other)
{
    json_t *root;
    cddp_status status;

    CDDPI_TRY(parse(path, data_file, &root));
    if (json_is_object(json_object_get(root, "model"))) {
        status = cddpi_tokenizer_load_json(tokenizer, path, root);
    } else if (other != NULL) {
        status = load_from_tokens(tokenizer, path, root, other);
    } else {
        status = cddpi_fail(
            CDDP_ERR_FORMAT,
            "%s: it is not a tokenizer.json (there is no \"model\"), and its name ends neither in "
            "encoder.json, beside a vocab.bpe, nor in vocab.json, beside a merges.txt",
            path);
    }
    json_decref(root);
    return status;
}

static cddp_status load_file(struct cddpi_tokenizer *tokenizer, const char *path)
{
    struct cddpi_data_file data_file;
    char words[CDDPI_FOREIGN_WORDS_BYTES];
    cddp_status status;
    bool is_json;
    char *other;

    CDDPI_TRY(open_file(path, &data_file));
    is_json = looks_like_json(&data_file);
    other = other_of(path, !is_json);
    if (is_json) {
        status = load_from_json(tokenizer, path, &data_file, other);
    } else if (other != NULL) {
        status = load_from_merges(tokenizer, path, &data_file, other);
    } else {
        status = cddpi_fail(
            CDDP_ERR_FORMAT,
            "%s: it is not JSON, and its name ends in neither vocab.bpe nor merges.txt%s", path,
            cddpi_foreign_words(data_file.data, data_file.bytes, words));
    }
    cddpi_free(other);
    return cddpi_data_file_finish(&data_file, status);
}

/* Read the vocabulary at @p path into a zeroed tokenizer. */
static cddp_status load_vocabulary(struct cddpi_tokenizer *tokenizer, const char *path)
{
    struct stat info;
    char *file = NULL;
    cddp_status status;

    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return load_file(tokenizer, path);
    }
    CDDPI_TRY(find_in_folder(path, &file));
    status = load_file(tokenizer, file);
    cddpi_free(file);
    return status;
}

static cddp_status open_bytes(struct cddpi_tokenizer *tokenizer)
{
    tokenizer->count = 257;
    tokenizer->end = 256;
    CDDPI_TRY(cddpi_tokenizer_reserve(tokenizer, "tokenizer", 257, 256 + sizeof CDDPI_END_OF_TEXT));
    for (int i = 0; i < 256; i++) {
        tokenizer->byte_tokens[i] = i;
        tokenizer->texts[i] = (char)i;
        tokenizer->text_starts[i + 1] = (size_t)i + 1;
    }
    memcpy(tokenizer->texts + 256, CDDPI_END_OF_TEXT, sizeof CDDPI_END_OF_TEXT);
    tokenizer->text_starts[257] = 256 + strlen(CDDPI_END_OF_TEXT);
    return CDDP_OK;
}

cddp_status cddpi_tokenizer_open(const char *path, struct cddpi_tokenizer **out)
{
    struct cddpi_tokenizer *tokenizer = cddpi_zalloc(sizeof *tokenizer);
    cddp_status status;

    CDDPI_TRY_MEMORY(tokenizer != NULL, "tokenizer: no memory for %zu bytes", sizeof *tokenizer);
    status = path[0] == '\0' ? open_bytes(tokenizer) : load_vocabulary(tokenizer, path);
    if (status != CDDP_OK) {
        cddpi_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return CDDP_OK;
}
