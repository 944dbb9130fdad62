/* text_dataset.c - owns datasets of text: lets the ranks of a machine encode the text only once,
 * and splits the tokens into training and test data. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "data/dataset_memory.h"
#include "data/files/data_file_exchange.h"
#include "data/formats/text.h"
#include "data/formats/tokens.h"
#include "group/join/group_agree.h"

enum { TRAIN, TEST, PARTS };

/* How long ranks that wait for tokens hear nothing; far below any deadline. */
#define ROUND_NS INT64_C(200000000)

/* Let every rank with an unfinished @p text (NULL: it has none) read on until all are finished.
 * Waiting ranks complete a collective in each round, so that a long text does not run into a
 * deadline. */
static cddp_status read_together(cddp_group *group, struct cddpi_text *text)
{
    uint8_t busy = 1;
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && busy) {
        status = cddpi_agree(group, text != NULL ? cddpi_text_read(text, ROUND_NS) : CDDP_OK);
        busy = text != NULL && !text->done;
        if (status == CDDP_OK) {
            status = cddp_all_reduce(group, &busy, &busy, 1, CDDP_U8, CDDP_OP_MAX, NULL);
        }
    }
    return status;
}

/* Map the tokens that another rank of this machine has made. Returns false if that is
 * impossible. */
static bool map_tokens(const char *path, bool found, const struct cddpi_data_file_address *address,
                       struct cddpi_data_file *out)
{
    if (found && cddpi_data_file_map(address, path, out) == CDDP_OK) {
        return true;
    }
    cddpi_log(CDDPI_LOG_INFO, "this rank reads %s itself and does not share it: %s", path,
              found ? cddp_last_error() : "no rank of this machine has read it");
    return false;
}

/* Make the tokens collectively. After each step, all ranks agree on the outcome. */
static cddp_status make_together(const struct cddpi_paths *paths,
                                 const struct cddpi_tokenizer *tokenizer, cddp_group *group,
                                 struct cddpi_data_file *out)
{
    bool reads = cddp_group_local_rank(group) == 0;
    bool shareable = cddp_group_local_world_size(group) > 1;
    struct cddpi_data_file_address address;
    struct cddpi_data_file data_file = CDDPI_DATA_FILE_CLOSED;
    struct cddpi_text text;
    bool found = false;
    cddp_status status;

    cddpi_text_init(paths, tokenizer, shareable, &text);
    status = read_together(group, reads ? &text : NULL);
    if (status == CDDP_OK) {
        status = cddpi_agree(group, reads ? cddpi_text_finish(&text, &data_file) : CDDP_OK);
    }
    if (status == CDDP_OK) {
        status = cddpi_exchange_data_files(group, reads ? &data_file : NULL, 1, &found, &address);
    }
    if (status == CDDP_OK) {
        bool alone = !reads && !map_tokens(paths->names[0], found, &address, &data_file);

        text.shareable = false;
        status = read_together(group, alone ? &text : NULL); /* all others have mapped by now */
        if (status == CDDP_OK) {
            status = cddpi_agree(group, alone ? cddpi_text_finish(&text, &data_file) : CDDP_OK);
        }
    }
    cddpi_text_fini(&text);
    cddpi_data_file_close_fd(&data_file);
    if (status != CDDP_OK) {
        cddpi_data_file_close(&data_file);
        return status;
    }
    *out = data_file;
    return CDDP_OK;
}

static cddp_status make_alone(const struct cddpi_paths *paths,
                              const struct cddpi_tokenizer *tokenizer, struct cddpi_data_file *out)
{
    struct cddpi_text text;
    cddp_status status;

    cddpi_text_init(paths, tokenizer, false, &text);
    status = cddpi_text_read(&text, INT64_MAX);
    if (status == CDDP_OK) {
        status = cddpi_text_finish(&text, out);
    }
    cddpi_text_fini(&text);
    return status;
}

/* Make the names of the two parts for error texts. */
static cddp_status name_parts(struct cddpi_dataset_memory *memory, bool split)
{
    const char *first = memory->paths.names[0];
    const char *others = memory->paths.count > 1 ? " and the files behind it" : "";

    memory->labels[TRAIN] = cddpi_format("%s%s%s", first, others,
                                         split ? " without the end held back for tests" : "");
    memory->labels[TEST] = cddpi_format("%s%s: the end held back for tests", first, others);
    if (memory->labels[TRAIN] == NULL || memory->labels[TEST] == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", first);
    }
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
                                 .token_bytes = cddpi_text_token_bytes(tokenizer),
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
    if (together) {
        status = cddpi_agree(group, status);
    }
    if (status == CDDP_OK) {
        status = together ? make_together(&memory->paths, tokenizer, group, &memory->files[0])
                          : make_alone(&memory->paths, tokenizer, &memory->files[0]);
    }
    if (status == CDDP_OK) {
        status = describe(options, tokenizer, memory, split, out);
        if (together) {
            status = cddpi_agree(group, status);
        }
    }
    if (status == CDDP_OK && together) {
        status = cddpi_tokens_agree(group, &out[TRAIN]);
    }
    if (status == CDDP_OK && together) {
        status = compare_texts(group, memory);
    }
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
