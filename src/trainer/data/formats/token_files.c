/* token_files.c - owns datasets in llm.c's token files, and checks their headers. The files may be
 * larger than memory, so they are mapped, and tokens are read only when a batch needs them. */
#include "base/error.h"
#include "base/foreign.h"
#include "data/dataset_memory.h"
#include "data/files/data_file_exchange.h"
#include "group/join/group_agree.h"

#include <inttypes.h>

enum { HEADER_BYTES = 1024 };

struct form {
    uint32_t magic;
    int version, token_bytes, vocabulary;
    const char *name;
};

static const struct form forms[] = {{20240520, 1, 2, 50257, "GPT-2"},
                                    {20240801, 7, 4, 128256, "Llama 3"}};
enum { FORMS = sizeof forms / sizeof *forms };

/* Other llm.c files with the same kind of header. */
static const struct {
    uint32_t magic;
    const char *name;
} others[] = {{20240326, "a GPT-2 model"},        {20240327, "a debug state"},
              {20240328, "a tokenizer"},          {20240522, "questions for evaluation"},
              {20240527, "an optimizer's state"}, {20240803, "a Llama 3 model"}};

static uint32_t read_u32(const uint8_t *in)
{
    return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static cddp_status find_form(const struct cddpi_data_file *file, const struct form **out)
{
    uint32_t magic = read_u32(file->data);
    char words[CDDPI_FOREIGN_WORDS_BYTES];

    for (size_t i = 0; i < FORMS; i++) {
        if (forms[i].magic == magic) {
            *out = &forms[i];
            return CDDP_OK;
        }
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i].magic == magic) {
            return cddpi_fail(CDDP_ERR_FORMAT, "byte 0: the file holds %s of llm.c, not tokens",
                              others[i].name);
        }
    }
    return cddpi_fail(
        CDDP_ERR_FORMAT,
        "byte 0: the file begins with the number %" PRIu32
        ", but a file of tokens begins with %" PRIu32 " (GPT-2's) or %" PRIu32 " (Llama 3's)%s",
        magic, forms[0].magic, forms[1].magic, cddpi_foreign_words(file->data, file->bytes, words));
}

/* Check everything in the header against the file's contents. */
static cddp_status read_header(const struct cddpi_data_file *file, const struct form **out_form,
                               struct cddpi_token_shard *out)
{
    const struct form *form = NULL;
    char words[CDDPI_FOREIGN_WORDS_BYTES];
    uint32_t version, count;
    uint64_t bytes;

    if (cddpi_is_gzip(file->data, file->bytes)) {
        return cddpi_fail(
            CDDP_ERR_FORMAT,
            "the file is gzip'd, but files of tokens are read in place: gunzip it first");
    }
    if (file->bytes < HEADER_BYTES) {
        bool own = file->bytes >= 4 && (read_u32(file->data) == forms[0].magic ||
                                        read_u32(file->data) == forms[1].magic);

        return cddpi_fail(CDDP_ERR_FORMAT,
                          "truncated: the file has %zu bytes, too few for its header of %d%s",
                          file->bytes, HEADER_BYTES,
                          own ? "" : cddpi_foreign_words(file->data, file->bytes, words));
    }
    CDDPI_TRY(find_form(file, &form));
    version = read_u32(file->data + 4);
    if (version != (uint32_t)form->version) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "byte 4: the file has version %" PRIu32
                          ", but only version %d can be read",
                          version, form->version);
    }
    count = read_u32(file->data + 8);
    if (count == 0 || count > INT32_MAX) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "byte 8: the header says %" PRId32
                          " tokens, but there must be 1 at least",
                          (int32_t)count);
    }
    bytes = (uint64_t)count * (uint64_t)form->token_bytes;
    if (bytes != file->bytes - HEADER_BYTES) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: the header says %" PRIu32
                          " tokens of %d bytes from byte %d on, but %zu bytes are there",
                          bytes > file->bytes - HEADER_BYTES ? "truncated" : "too long", count,
                          form->token_bytes, HEADER_BYTES, file->bytes - HEADER_BYTES);
    }
    *out_form = form;
    *out = (struct cddpi_token_shard){.tokens = file->data + HEADER_BYTES, .token_count = count};
    return CDDP_OK;
}

static cddp_status open_files(struct cddpi_dataset_memory *memory, const struct form **out)
{
    const struct form *first = NULL;

    for (size_t i = 0; i < memory->file_count; i++) {
        const char *path = memory->paths.names[i];
        const struct form *form = NULL;
        cddp_status status;

        CDDPI_TRY(cddpi_data_file_open_plain(path, &memory->files[i]));
        status = read_header(&memory->files[i], &form, &memory->shards[i]);
        CDDPI_TRY(cddpi_data_file_check(&memory->files[i]));
        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "%s", path);
        }
        memory->shards[i].path = path;
        if (i > 0 && form != first) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s: the file holds tokens of %s, but %s those of %s", path,
                              form->name, memory->paths.names[0], first->name);
        }
        first = form;
    }
    *out = first;
    return CDDP_OK;
}

static cddp_status describe(char *const *patterns, size_t pattern_count, int context,
                            int vocabulary, struct cddpi_dataset *out)
{
    struct cddpi_dataset dataset = {.context = context};
    const struct form *form = NULL;
    struct cddpi_paths paths = {NULL, 0};
    cddp_status status;

    CDDPI_TRY(cddpi_paths_find(patterns, pattern_count, &paths));
    dataset.memory = cddpi_dataset_memory_create(paths.count, paths.count, NULL);
    if (dataset.memory == NULL) {
        cddpi_paths_fini(&paths);
        return CDDP_ERR_NO_MEMORY;
    }
    dataset.memory->paths = paths;
    status = open_files(dataset.memory, &form);
    if (status == CDDP_OK) {
        dataset.token_bytes = form->token_bytes;
        dataset.classes = vocabulary > 0 ? vocabulary : form->vocabulary;
        status = cddpi_tokens_lay_out(dataset.memory->shards, paths.count, &dataset);
    }
    if (status != CDDP_OK) {
        cddpi_dataset_memory_release(dataset.memory);
        return status;
    }
    *out = dataset;
    return CDDP_OK;
}

cddp_status cddpi_dataset_open_tokens(char *const *patterns, size_t pattern_count, int context,
                                      int vocabulary, cddp_group *group, struct cddpi_dataset *out)
{
    struct cddpi_dataset dataset = {0};
    cddp_status status;

    if (context < 1 || vocabulary < 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "data: the context is %d, which must be at least 1, and the vocabulary "
                          "%d, which must not be negative",
                          context, vocabulary);
    }
    status = describe(patterns, pattern_count, context, vocabulary, &dataset);
    if (group != NULL && cddp_group_world_size(group) > 1) {
        CDDPI_TRY_GOTO(fail, status, cddpi_agree(group, status));
        CDDPI_TRY_GOTO(fail, status, cddpi_tokens_agree(group, &dataset));
        status = cddpi_agree_on_files(group, dataset.memory->paths.names,
                                      dataset.memory->paths.count, true);
    }
    if (status == CDDP_OK) {
        *out = dataset;
        return CDDP_OK;
    }

fail:
    cddpi_dataset_close(&dataset);
    return status;
}
