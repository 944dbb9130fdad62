/* text.c - owns datasets of text: lets the ranks of a machine encode the text only once, and splits
 * the tokens into training and test data. It encodes in pieces, which need little memory besides
 * the result and let a rank tell the others that it is still working. */
#include "data/formats/text.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/foreign.h"
#include "base/memory_left.h"
#include "base/utf8.h"
#include "data/dataset_memory.h"
#include "data/files/data_file_exchange.h"
#include "data/rounds.h"
#include "group/group_info.h"
#include "group/join/group_agree.h"

#include <string.h>

enum { PIECE_BYTES = 1 << 20, NARROW_TOKENS = 1 << 16, FIRST_BYTES = 1 << 16 };

/* Bytes of a token of this vocabulary in memory. */
static int token_bytes_of(const struct cddpi_tokenizer *tokenizer)
{
    return cddpi_tokenizer_vocabulary(tokenizer) <= NARROW_TOKENS ? 2 : 4;
}

void cddpi_text_init(const struct cddpi_paths *paths, const struct cddpi_tokenizer *tokenizer,
                     bool shareable, struct cddpi_text *out)
{
    *out = (struct cddpi_text){.paths = paths,
                               .tokenizer = tokenizer,
                               .token_bytes = token_bytes_of(tokenizer),
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
    const char *kind;

    text->at = 0;
    if (text->next_file++ > 0) {
        CDDPI_TRY(append_tokens(text, &end, 1));
    }
    CDDPI_TRY(cddpi_data_file_open(path, false, NULL, &text->file));
    kind = cddpi_foreign_to_text(text->file.data, text->file.bytes);
    if (kind != NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: not text: it is %s", path, kind);
    }
    text->at = cddpi_utf8_mark((const char *)text->file.data, text->file.bytes);
    return CDDP_OK;
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
            status = status == CDDP_OK ? cddpi_data_file_check(&text->file) : status;
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

enum { TRAIN, TEST, PARTS };

/* Let every rank with an unfinished @p text (NULL: it has none) read on until all are finished, and
 * put its tokens into @p out. */
static cddp_status finish_together(cddp_group *group, struct cddpi_text *text,
                                   struct cddpi_data_file *out)
{
    struct cddpi_rounds rounds = {.group = group};
    cddp_status status = CDDP_OK;

    while (text != NULL && !text->done && status == CDDP_OK) {
        status = cddpi_text_read(text, CDDPI_ROUND_NS);
        status = status == CDDP_OK ? cddpi_rounds_tick(&rounds) : status;
    }
    CDDPI_TRY(cddpi_rounds_end(&rounds, status));
    return cddpi_agree(group, text != NULL ? cddpi_text_finish(text, out) : CDDP_OK);
}

/* Make the tokens collectively. After each step, all ranks agree on the outcome. */
static cddp_status make_together(const struct cddpi_paths *paths,
                                 const struct cddpi_tokenizer *tokenizer, cddp_group *group,
                                 struct cddpi_data_file *out)
{
    bool reads = cddpi_group_local_rank(group) == 0;
    bool shareable = cddpi_group_local_world_size(group) > 1;
    struct cddpi_data_file_address address;
    struct cddpi_text text;
    bool found = false;
    bool alone;
    cddp_status status;

    cddpi_text_init(paths, tokenizer, shareable, &text);
    CDDPI_TRY_GOTO(done, status, finish_together(group, reads ? &text : NULL, out));
    CDDPI_TRY_GOTO(done, status,
                   cddpi_exchange_data_files(group, reads ? out : NULL, 1, &found, &address));
    alone = !reads &&
            !cddpi_map_exchanged(found, &address, (const char *const *)paths->names, 1, out);
    text.shareable = false;
    /* all others have mapped when this returns */
    status = finish_together(group, alone ? &text : NULL, out);

done:
    cddpi_text_fini(&text);
    cddpi_data_file_close_fd(out);
    return status;
}

static cddp_status make_alone(const struct cddpi_paths *paths,
                              const struct cddpi_tokenizer *tokenizer, struct cddpi_data_file *out)
{
    struct cddpi_text text;
    cddp_status status;

    cddpi_text_init(paths, tokenizer, false, &text);
    status = cddpi_text_read(&text, INT64_MAX);
    status = status == CDDP_OK ? cddpi_text_finish(&text, out) : status;
    cddpi_text_fini(&text);
    return status;
}

/* Make the names of the two parts for error texts. */
static cddp_status name_parts(struct cddpi_dataset_memory *memory, bool split)
{
    const char *first = memory->paths.names[0];
    const char *others = memory->paths.count > 1 ? " and the files after it" : "";

    memory->labels[TRAIN] = cddpi_format("%s%s%s", first, others,
                                         split ? " without the end held back for tests" : "");
    memory->labels[TEST] = cddpi_format("%s%s: the end held back for tests", first, others);
    CDDPI_TRY_MEMORY(memory->labels[TRAIN] != NULL && memory->labels[TEST] != NULL, "%s: no memory",
                     first);
    return CDDP_OK;
}

/* Make the datasets from the tokens in the first file of @p memory. Without @p split, the first
 * dataset has all tokens. */
static cddp_status describe(const struct cddpi_text_options *options,
                            const struct cddpi_tokenizer *tokenizer,
                            struct cddpi_dataset_memory *memory, bool split,
                            struct cddpi_dataset out[PARTS])
{
    struct cddpi_dataset part = {.memory = memory,
                                 .context = options->context,
                                 .token_bytes = token_bytes_of(tokenizer),
                                 .classes = cddpi_tokenizer_vocabulary(tokenizer)};
    uint64_t count = memory->files[0].bytes / (uint64_t)part.token_bytes;
    uint64_t held_back = split ? (uint64_t)((double)count * options->test_fraction) : 0;
    uint64_t first[PARTS + 1] = {0, count - held_back, count};

    CDDPI_TRY(name_parts(memory, split));
    for (int i = 0; i < (split ? PARTS : 1); i++) {
        memory->shards[i] = (struct cddpi_token_shard){
            .path = memory->labels[i],
            .tokens = memory->files[0].data + first[i] * (uint64_t)part.token_bytes,
            .token_count = first[i + 1] - first[i],
            .first_token = first[i]};
        out[i] = part;
        CDDPI_TRY(cddpi_tokens_lay_out(&memory->shards[i], 1, &out[i]));
    }
    return CDDP_OK;
}

/* Compare the tokens, and also the text files of ranks that have mapped a neighbour's tokens. */
static cddp_status compare_texts(cddp_group *group, const struct cddpi_dataset_memory *memory)
{
    static const char *const names[] = {"number of files"};
    const struct cddpi_paths *paths = &memory->paths;
    const uint64_t count = paths->count;
    const struct cddpi_content tokens = {count > 1 ? memory->labels[TRAIN] : paths->names[0],
                                         memory->files[0].data, memory->files[0].bytes};

    CDDPI_TRY(cddpi_agree_on(group, paths->names[0], names, &count, 1));
    CDDPI_TRY(cddpi_agree_on_files(group, paths->names, paths->count, false));
    return cddpi_agree_on_contents(group, &tokens, 1, true);
}

static cddp_status open_parts(const struct cddpi_text_options *options, cddp_group *group,
                              struct cddpi_dataset_memory *memory, bool split,
                              struct cddpi_dataset out[PARTS])
{
    bool together = group != NULL && cddp_group_world_size(group) > 1;
    struct cddpi_tokenizer *tokenizer = NULL;
    cddp_status status = cddpi_paths_find(options->patterns, options->pattern_count,
                                          &memory->paths);

    if (status == CDDP_OK) {
        status = cddpi_tokenizer_open(options->vocabulary != NULL ? options->vocabulary : "",
                                      &tokenizer);
    }
    CDDPI_TRY_GOTO(done, status, together ? cddpi_agree(group, status) : status);
    CDDPI_TRY_GOTO(done, status,
                   together ? make_together(&memory->paths, tokenizer, group, &memory->files[0])
                            : make_alone(&memory->paths, tokenizer, &memory->files[0]));
    status = describe(options, tokenizer, memory, split, out);
    if (together) {
        CDDPI_TRY_GOTO(done, status, cddpi_agree(group, status));
        CDDPI_TRY_GOTO(done, status, cddpi_tokens_agree(group, &out[TRAIN]));
        CDDPI_TRY_GOTO(done, status, compare_texts(group, memory));
    }

done:
    cddpi_tokenizer_close(tokenizer);
    return status;
}

cddp_status cddpi_dataset_open_text(const struct cddpi_text_options *options, cddp_group *group,
                                    struct cddpi_dataset *out, struct cddpi_dataset *out_test)
{
    struct cddpi_dataset parts[PARTS];
    struct cddpi_dataset_memory *memory;
    bool split = out_test != NULL;
    cddp_status status;

    if (options->context < 1 ||
        (split && !(options->test_fraction > 0 && options->test_fraction < 1))) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "data: the context is %d, which must be at least 1, and the test "
                          "fraction %g, which must be between 0 and 1",
                          options->context, options->test_fraction);
    }
    memory = cddpi_dataset_memory_create(1, PARTS, group);
    if (memory == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    status = open_parts(options, group, memory, split, parts);
    if (status != CDDP_OK) {
        cddpi_dataset_memory_release(memory);
        return status;
    }
    *out = parts[TRAIN];
    if (split) {
        *out_test = parts[TEST];
        memory->datasets = PARTS;
    }
    return CDDP_OK;
}
