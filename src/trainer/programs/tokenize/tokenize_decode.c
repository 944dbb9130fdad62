/* tokenize_decode.c - cddp-tokenize --decode: prints the text of .bin files. */
#include "programs/tokenize/run.h"

#include "base/error.h"
#include "base/foreign.h"
#include "data/files/data_file.h"
#include "data/formats/token_shards.h"
#include "data/tokenizer/tokenizer.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static uint32_t word_at(const struct cddpi_data_file *data_file, size_t index)
{
    uint32_t word;

    memcpy(&word, data_file->data + 4 * index, sizeof word);
    return le32toh(word);
}

/* Read the number of tokens, and the size of a token in bytes. */
static cddp_status read_header(const char *path, const struct cddpi_data_file *data_file,
                               uint32_t *out_count, int *out_width)
{
    uint32_t magic = data_file->bytes >= CDDPI_SHARD_HEADER_BYTES ? word_at(data_file, 0) : 0;
    int width = magic == CDDPI_SHARD_MAGIC_U16 ? 2 : magic == CDDPI_SHARD_MAGIC_U32 ? 4 : 0;
    char words[CDDPI_FOREIGN_WORDS_BYTES];
    uint64_t wanted;

    if (width == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: it is not a .bin file of tokens: it does not begin with %d or %d%s",
                          path, CDDPI_SHARD_MAGIC_U16, CDDPI_SHARD_MAGIC_U32,
                          cddpi_foreign_words(data_file->data, data_file->bytes, words));
    }
    if (word_at(data_file, 1) != (width == 2 ? 1 : 7)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: its version is %u, not %d", path,
                          (unsigned)word_at(data_file, 1), width == 2 ? 1 : 7);
    }
    wanted = CDDPI_SHARD_HEADER_BYTES + (uint64_t)word_at(data_file, 2) * (unsigned)width;
    if (data_file->bytes != wanted) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: %u tokens need %llu bytes, but the file has %zu",
                          path, (unsigned)word_at(data_file, 2), (unsigned long long)wanted,
                          data_file->bytes);
    }
    *out_count = word_at(data_file, 2);
    *out_width = width;
    return CDDP_OK;
}

static int64_t token_at(const struct cddpi_data_file *data_file, uint32_t index, int width)
{
    const uint8_t *tokens = data_file->data + CDDPI_SHARD_HEADER_BYTES;
    uint16_t narrow;

    if (width == 4) {
        return word_at(data_file, CDDPI_SHARD_HEADER_BYTES / 4 + (size_t)index);
    }
    memcpy(&narrow, tokens + 2 * (size_t)index, sizeof narrow);
    return le16toh(narrow);
}

static cddp_status output_failed(void)
{
    return cddpi_fail_errno(CDDP_ERR_IO, errno, "write to standard output");
}

/* Print a token. An end-of-document token prints the separator line, if there is one. */
static cddp_status put_token(const struct cddpi_tokenize *run,
                             const struct cddpi_tokenizer *tokenizer, int32_t token)
{
    size_t bytes;
    const char *text = cddpi_tokenizer_token(tokenizer, token, &bytes);

    if (token != cddpi_tokenizer_end(tokenizer)) {
        return fwrite(text, 1, bytes, stdout) == bytes ? CDDP_OK : output_failed();
    }
    if (run->options->separator != NULL && printf("%s\n", run->options->separator) < 0) {
        return output_failed();
    }
    return CDDP_OK;
}

static cddp_status decode_file(const struct cddpi_tokenize *run,
                               const struct cddpi_tokenizer *tokenizer, const char *path,
                               const struct cddpi_data_file *data_file)
{
    int vocabulary = cddpi_tokenizer_vocabulary(tokenizer);
    uint32_t count = 0;
    int width = 0;

    CDDPI_TRY(read_header(path, data_file, &count, &width));
    for (uint32_t i = 0; i < count; i++) {
        int64_t token = token_at(data_file, i, width);

        if (token >= vocabulary) {
            return cddpi_fail(
                CDDP_ERR_FORMAT,
                "%s: the token at byte %llu is %lld, but the vocabulary has only %d tokens (%s)",
                path, CDDPI_SHARD_HEADER_BYTES + (unsigned long long)i * (unsigned)width,
                (long long)token, vocabulary,
                run->options->vocabulary[0] != '\0' ? run->options->vocabulary
                                                    : "bytes: give --vocabulary");
        }
        if (run->is_stopped()) {
            return cddpi_tokenize_stopped();
        }
        CDDPI_TRY(put_token(run, tokenizer, (int32_t)token));
    }
    return CDDP_OK;
}

cddp_status cddpi_tokenize_decode(struct cddpi_tokenize *run)
{
    struct cddpi_tokenizer *tokenizer = NULL;
    cddp_status status;

    CDDPI_TRY_GOTO(out, status, cddpi_tokenizer_open(run->options->vocabulary, &tokenizer));
    for (int i = 0; i < run->options->path_count; i++) {
        struct cddpi_data_file data_file = {0};

        status = cddpi_data_file_open(run->options->paths[i], false, NULL, &data_file);
        if (status == CDDP_OK) {
            status = decode_file(run, tokenizer, run->options->paths[i], &data_file);
        }
        CDDPI_TRY_GOTO(out, status, cddpi_data_file_finish(&data_file, status));
    }
    status = fflush(stdout) == 0 ? CDDP_OK : output_failed();
out:
    cddpi_tokenizer_close(tokenizer);
    return status;
}
