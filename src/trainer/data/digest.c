/* digest.c - owns the choice of bytes that are hashed to recognise the data at the next start. */
#include "data/dataset.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/files/data_file_exchange.h"
#include "data/numbers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* At most this many image files are opened, which takes about a second even on a distant file
 * server. */
enum { FILES = 64 };

static uint64_t hash_number(uint64_t hash, uint64_t number)
{
    for (int i = 0; i < 8; i++) {
        hash = cddpi_hash_add(hash, number >> (8 * i) & 0xFF);
    }
    return hash;
}

/* Hash the number of bytes, then all bytes or @p most samples of them. */
static uint64_t hash_contents(uint64_t hash, const void *data, uint64_t bytes, uint64_t most)
{
    hash = hash_number(hash, bytes);
    (void)cddpi_hash_samples(data, -1, bytes, most, &hash); /* memory can always be read */
    return hash;
}

/* Hash the size and the first bytes of an image file. */
static bool hash_file(const char *path, uint64_t *hash)
{
    uint8_t piece[CDDPI_SAMPLE_BYTES];
    struct stat info;
    ssize_t got = -1;
    int fd = -1;

    if (cddpi_file_open_regular(path, O_RDONLY, 0, &fd) != CDDP_OK) {
        return false;
    }
    if (fstat(fd, &info) == 0) {
        do {
            got = pread(fd, piece, sizeof piece, 0);
        } while (got < 0 && errno == EINTR);
    }
    close(fd);
    if (got >= 0) {
        *hash = cddpi_hash_bytes(hash_number(*hash, (uint64_t)info.st_size), piece, (size_t)got);
    }
    return got >= 0;
}

/* Hash the names of all files, their labels, and the contents of some files. */
static uint64_t hash_image_files(const struct cddpi_image_files *files)
{
    uint64_t hash = cddpi_hash_start;
    uint64_t count = files->count < FILES ? files->count : FILES;
    bool is_known = true;

    for (size_t i = 0; i < files->count; i++) {
        const char *name = files->names + files->offsets[i];

        hash = hash_number(cddpi_hash_bytes(hash, (const uint8_t *)name, strlen(name) + 1),
                           files->labels[i]);
    }
    for (uint64_t i = 0; is_known && i < count; i++) {
        const char *name = files->names + files->offsets[cddpi_spread(i, count, files->count)];
        char *path = cddpi_format("%s/%s", files->root, name);

        is_known = path != NULL && hash_file(path, &hash);
        cddpi_free(path);
    }
    return is_known ? hash : 0;
}

static uint64_t hash_tokens(const struct cddpi_dataset *dataset)
{
    uint64_t most = cddpi_samples_of_each(dataset->shard_count);
    uint64_t hash = cddpi_hash_start;

    for (size_t i = 0; i < dataset->shard_count; i++) {
        const struct cddpi_token_shard *shard = &dataset->shards[i];

        hash = hash_contents(hash, shard->tokens,
                             shard->token_count * (uint64_t)dataset->token_bytes, most);
    }
    return hash;
}

/* Hash the samples, or their labels. */
static uint64_t hash_numbers(const struct cddpi_dataset *dataset, bool labels)
{
    uint64_t most = cddpi_samples_of_each(dataset->number_shard_count);
    uint64_t elements = labels ? cddpi_dataset_labels(dataset)
                               : (uint64_t)dataset->channels * (uint64_t)dataset->height *
                                     (uint64_t)dataset->width;
    uint64_t hash = cddpi_hash_start;

    for (size_t i = 0; i < dataset->number_shard_count; i++) {
        const struct cddpi_number_shard *shard = &dataset->number_shards[i];
        const struct cddpi_numbers *numbers = labels ? &shard->targets : &shard->inputs;
        uint64_t bytes = shard->count * elements * cddpi_number_bytes(numbers->type);

        hash = hash_contents(hash_number(hash, numbers->type), numbers->values, bytes, most);
    }
    return hash;
}

void cddpi_dataset_digest(const struct cddpi_dataset *dataset, uint64_t out[CDDPI_DATA_DIGESTS])
{
    uint64_t pixels = (uint64_t)dataset->channels * (uint64_t)dataset->height *
                      (uint64_t)dataset->width;

    out[0] = out[1] = 0;
    if (dataset->kind == CDDPI_DATASET_TOKENS) {
        out[0] = dataset->shard_count > 0 ? hash_tokens(dataset) : 0;
    } else if (dataset->kind == CDDPI_DATASET_NUMBERS) {
        out[0] = dataset->number_shard_count > 0 ? hash_numbers(dataset, false) : 0;
        out[1] = dataset->number_shard_count > 0 ? hash_numbers(dataset, true) : 0;
    } else if (dataset->files != NULL) {
        out[0] = hash_image_files(dataset->files);
    } else if (dataset->images != NULL) {
        out[0] = hash_contents(cddpi_hash_start, dataset->images, dataset->count * pixels,
                               CDDPI_SAMPLES);
        out[1] = dataset->count > 0 ? cddpi_hash_start : 0;
        for (uint64_t i = 0; i < dataset->count; i++) {
            out[1] = hash_number(out[1], dataset->labels != NULL ? dataset->labels[i]
                                                                 : dataset->wide_labels[i]);
        }
    }
}
