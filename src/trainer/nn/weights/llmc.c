/* llmc.c - owns llm.c's model files: 256 int32 (magic, version, context, vocabulary, blocks, heads,
 * embed, padded vocabulary), then 16 tensors without gaps, each for all blocks. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/foreign.h"
#include "base/mapped_file.h"
#include "base/replace.h"
#include "nn/weights/weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "llm.c's files are little-endian");

enum { MAGIC = 20240326, VERSION_F32 = 3, VERSION_BF16 = 5 };
enum { HEADER_WORDS = 256, HEADER_BYTES = 4 * HEADER_WORDS, VOCAB_MULTIPLE = 128 };
/* indices in the header */
enum { AT_MAGIC, AT_VERSION, AT_CONTEXT, AT_VOCAB, AT_BLOCKS, AT_HEADS, AT_EMBED, AT_PADDED };

/* Which other kind of llm.c file begins with @p magic; NULL: none. */
static const char *other_kind(int32_t magic)
{
    static const struct {
        int32_t magic;
        const char *kind;
    } others[] = {
        {20240520, "tokens"},
        {20240801, "tokens"},
        {20240522, "evaluation data"},
        {20240327, "a debug state"},
        {20240328, "a tokenizer"},
        {20240803, "a Llama model"},
        {20240527, "the state of an optimizer"},
    };

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (others[i].magic == magic) {
            return others[i].kind;
        }
    }
    return NULL;
}

/* The first bytes of the file @p path. */
static cddp_status read_begin(const char *path, unsigned char begin[CDDPI_FOREIGN_LOOKED_AT],
                              size_t *out_bytes)
{
    int fd = cddpi_file_open_read(path);
    ssize_t got;

    if (fd < 0) {
        return cddpi_fail_errno(errno == ENOENT ? CDDP_ERR_NOT_FOUND : CDDP_ERR_IO, errno,
                                "open %s", path);
    }
    got = pread(fd, begin, CDDPI_FOREIGN_LOOKED_AT, 0);
    close(fd);
    *out_bytes = got > 0 ? (size_t)got : 0;
    return CDDP_OK;
}

cddp_status cddpi_weights_sniff(const char *path, bool *out_llmc)
{
    enum { LEAST_BYTES = 12, AT_BRACE = 8 }; /* where the JSON of a safetensors file begins */
    unsigned char begin[CDDPI_FOREIGN_LOOKED_AT];
    char text[CDDPI_FOREIGN_WORDS_BYTES];
    int32_t words[2];
    size_t bytes = 0;

    CDDPI_TRY(read_begin(path, begin, &bytes));
    *out_llmc = false;
    if (bytes < LEAST_BYTES) { /* if it is too short, the reader says so */
        return CDDP_OK;
    }
    memcpy(words, begin, sizeof words);
    /* a safetensors file whose header length equals the magic has 0 in its second word */
    *out_llmc = words[AT_MAGIC] == MAGIC && words[AT_VERSION] != 0;
    if (*out_llmc || begin[AT_BRACE] == '{') {
        return CDDP_OK;
    }
    if (other_kind(words[AT_MAGIC]) != NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: a file of llm.c's, but not a model: %s", path,
                          other_kind(words[AT_MAGIC]));
    }
    return cddpi_fail(CDDP_ERR_FORMAT,
                      "%s: neither a safetensors file nor a model of llm.c (it begins with %d, not "
                      "with %d)%s",
                      path, words[AT_MAGIC], MAGIC, cddpi_foreign_words(begin, bytes, text));
}

static cddp_status map_file(struct cddpi_weights *weights, const char *path)
{
    int fd = cddpi_file_open_read(path);
    struct stat info;
    cddp_status status = CDDP_OK;

    if (fd < 0 || fstat(fd, &info) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "open %s", path);
    } else if (!S_ISREG(info.st_mode) || info.st_size < HEADER_BYTES) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: %lld bytes are too few for an llm.c model", path,
                            (long long)info.st_size);
    } else {
        status = cddpi_mapped_file_open(fd, path, &info, &weights->mapped);
        if (status == CDDP_OK) {
            weights->map = cddpi_mapped_file_data(weights->mapped);
            weights->map_bytes = (size_t)info.st_size;
        }
    }
    cddpi_fd_close(&fd);
    return status;
}

static cddp_status check_header(const char *path, const int32_t header[HEADER_WORDS])
{
    static const struct {
        int at;
        const char *what;
        int32_t most;
    } fields[] = {{AT_CONTEXT, "context", CDDPI_GPT2_TOKENS_MAX},
                  {AT_VOCAB, "vocabulary", CDDPI_GPT2_TOKENS_MAX},
                  {AT_BLOCKS, "number of blocks", CDDPI_GPT2_BLOCKS_MAX},
                  {AT_HEADS, "number of heads", CDDPI_GPT2_EMBED_MAX},
                  {AT_EMBED, "embed size", CDDPI_GPT2_EMBED_MAX},
                  {AT_PADDED, "padded vocabulary", CDDPI_GPT2_TOKENS_MAX}};

    if (header[AT_VERSION] != VERSION_F32 && header[AT_VERSION] != VERSION_BF16) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: an llm.c model of version %d; known are %d (f32) and %d (bf16)",
                          path, header[AT_VERSION], VERSION_F32, VERSION_BF16);
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        int32_t value = header[fields[i].at];

        if (value < 1 || value > fields[i].most) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s: %s %d in llm.c's header; 1 to %d are possible",
                              path, fields[i].what, value, fields[i].most);
        }
    }
    if (header[AT_EMBED] % header[AT_HEADS] != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: llm.c's header has %d heads, which do not divide the embed size of "
                          "%d",
                          path, header[AT_HEADS], header[AT_EMBED]);
    }
    if (header[AT_PADDED] < header[AT_VOCAB]) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: llm.c's header pads a vocabulary of %d tokens to %d, which is less",
                          path, header[AT_VOCAB], header[AT_PADDED]);
    }
    return CDDP_OK;
}

/* Set the views into the complete data; @p padded is the number of the vocabulary's rows in it. */
static void place_views(struct cddpi_weights *weights, cddp_type type, int64_t padded)
{
    const unsigned char *at = weights->map + HEADER_BYTES;

    for (size_t place = 0; place < weights->count; place++) {
        size_t index = cddpi_gpt2_llmc_index(&weights->shape, place);
        struct cddpi_gpt2_tensor tensor;

        cddpi_gpt2_tensor_at(&weights->shape, index, &tensor);
        weights->views[index] = (struct cddpi_weights_view){.data = at, .type = type};
        at += (size_t)(index == 0 ? padded : tensor.rows) * (size_t)tensor.columns *
              cddp_type_bytes(type);
    }
}

/* Of the whole file. The limits on the header's values keep it below 2^60. */
static uint64_t file_bytes(const struct cddpi_gpt2_shape *shape, cddp_type type, int64_t padded)
{
    uint64_t embed = (uint64_t)shape->embed;
    uint64_t tables = (uint64_t)padded + (uint64_t)shape->context;
    uint64_t block = 12 * embed * embed + 13 * embed;

    return HEADER_BYTES +
           (tables * embed + (uint64_t)shape->blocks * block + 2 * embed) * cddp_type_bytes(type);
}

cddp_status cddpi_weights_open_llmc(struct cddpi_weights *weights, const char *path)
{
    int32_t header[HEADER_WORDS];
    uint64_t bytes;
    cddp_type type;

    CDDPI_TRY(map_file(weights, path));
    memcpy(header, weights->map, sizeof header);
    CDDPI_TRY(check_header(path, header));
    weights->format = CDDPI_WEIGHTS_LLMC;
    weights->shape = (struct cddpi_gpt2_shape){.vocab = header[AT_VOCAB],
                                               .context = header[AT_CONTEXT],
                                               .blocks = header[AT_BLOCKS],
                                               .embed = header[AT_EMBED],
                                               .heads = header[AT_HEADS]};
    type = header[AT_VERSION] == VERSION_F32 ? CDDP_F32 : CDDP_BF16;
    bytes = file_bytes(&weights->shape, type, header[AT_PADDED]);
    if (bytes != weights->map_bytes) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: %zu bytes, but the model that llm.c's header describes takes "
                          "%" PRIu64 ": %s",
                          path, weights->map_bytes, bytes,
                          weights->map_bytes < bytes ? "cut short" : "something follows it");
    }
    CDDPI_TRY(cddpi_weights_make_views(weights, path));
    place_views(weights, type, header[AT_PADDED]);
    return CDDP_OK;
}

/* The content of the file that is written. */
struct llmc_content {
    const struct cddpi_weights *weights;
    cddp_type type;
    int64_t heads;
};

static int64_t padded_vocab(int64_t vocab)
{
    return (vocab + VOCAB_MULTIPLE - 1) / VOCAB_MULTIPLE * VOCAB_MULTIPLE;
}

static cddp_status put_header(const struct llmc_content *content, struct cddpi_writer *writer)
{
    const struct cddpi_gpt2_shape *shape = &content->weights->shape;
    int32_t header[HEADER_WORDS] = {0};

    header[AT_MAGIC] = MAGIC;
    header[AT_VERSION] = content->type == CDDP_F32 ? VERSION_F32 : VERSION_BF16;
    header[AT_CONTEXT] = (int32_t)shape->context;
    header[AT_VOCAB] = (int32_t)shape->vocab;
    header[AT_BLOCKS] = (int32_t)shape->blocks;
    header[AT_HEADS] = (int32_t)content->heads;
    header[AT_EMBED] = (int32_t)shape->embed;
    header[AT_PADDED] = (int32_t)padded_vocab(shape->vocab);
    return cddpi_writer_put(writer, header, sizeof header);
}

/* The rows of zeros that pad the vocabulary. */
static cddp_status put_padding(const struct llmc_content *content, struct cddpi_writer *writer)
{
    const struct cddpi_gpt2_shape *shape = &content->weights->shape;
    size_t bytes = (size_t)(padded_vocab(shape->vocab) - shape->vocab) * (size_t)shape->embed *
                   cddp_type_bytes(content->type);
    void *zeros = cddpi_zalloc(bytes);
    cddp_status status;

    CDDPI_TRY_MEMORY(zeros != NULL, "%s: no memory for %zu bytes", writer->shown, bytes);
    status = cddpi_writer_put(writer, zeros, bytes);
    cddpi_free(zeros);
    return status;
}

static cddp_status put_content(void *context, struct cddpi_writer *writer)
{
    const struct llmc_content *content = context;

    CDDPI_TRY(put_header(content, writer));
    for (size_t place = 0; place < content->weights->count; place++) {
        size_t index = cddpi_gpt2_llmc_index(&content->weights->shape, place);

        CDDPI_TRY(cddpi_weights_put(content->weights, index, false, content->type, writer));
        if (index == 0) {
            CDDPI_TRY(put_padding(content, writer));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_weights_write_llmc(const struct cddpi_weights *weights, const char *path,
                                     cddp_type type, int64_t heads)
{
    struct llmc_content content = {weights, type, heads};

    return cddpi_file_replace(path, put_content, &content);
}
