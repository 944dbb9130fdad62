/* digest.c - owns the choice of bytes that are hashed to recognise the data at the next start. */
#include "data/digest.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The same sizes as where ranks compare their data at each start (files/exchange_contents.c). At
 * most FILES image files are opened, which takes about a second even on a distant file server. */
enum { PIECE_BYTES = 4096, PIECES = 1024, PIECES_OF_EACH = 8, FILES = 64 };

static uint64_t hash_bytes(uint64_t hash, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = cddpi_hash_add(hash, data[i]);
    }
    return hash;
}

static uint64_t hash_number(uint64_t hash, uint64_t number)
{
    for (int i = 0; i < 8; i++) {
        hash = cddpi_hash_add(hash, number >> (8 * i) & 0xFF);
    }
    return hash;
}

/* Entry @p i of @p count numbers that are spread evenly over [0, @p all). */
static uint64_t spread(uint64_t i, uint64_t count, uint64_t all)
{
    return count == all ? i : (uint64_t)((double)i * (double)(all - 1) / (double)(count - 1));
}

/* Hash the number of bytes, then all bytes or @p most pieces of them. */
static uint64_t hash_pieces(uint64_t hash, const void *data, uint64_t bytes, uint64_t most)
{
    uint64_t all = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    uint64_t count = all < most ? all : most;

    hash = hash_number(hash, bytes);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = spread(i, count, all) * PIECE_BYTES;
        uint64_t left = bytes - at;

        hash = hash_bytes(hash, (const uint8_t *)data + at,
                          left < PIECE_BYTES ? (size_t)left : PIECE_BYTES);
    }
    return hash;
}

/* Hash the size and the first bytes of an image file. */
static bool hash_file(const char *path, uint64_t *hash)
{
    uint8_t piece[PIECE_BYTES];
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
        *hash = hash_bytes(hash_number(*hash, (uint64_t)info.st_size), piece, (size_t)got);
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

        hash = hash_number(hash_bytes(hash, (const uint8_t *)name, strlen(name) + 1),
                           files->labels[i]);
    }
    for (uint64_t i = 0; is_known && i < count; i++) {
        const char *name = files->names + files->offsets[spread(i, count, files->count)];
        char *path = cddpi_format("%s/%s", files->root, name);

        is_known = path != NULL && hash_file(path, &hash);
        cddpi_free(path);
    }
    return is_known ? hash : 0;
}

static uint64_t hash_tokens(const struct cddpi_dataset *dataset)
{
    uint64_t most = PIECES / dataset->shard_count;
    uint64_t hash = cddpi_hash_start;

    for (size_t i = 0; i < dataset->shard_count; i++) {
        const struct cddpi_token_shard *shard = &dataset->shards[i];

        hash = hash_pieces(hash, shard->tokens, shard->token_count * (uint64_t)dataset->token_bytes,
                           most > PIECES_OF_EACH ? most : PIECES_OF_EACH);
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
    } else if (dataset->files != NULL) {
        out[0] = hash_image_files(dataset->files);
    } else if (dataset->images != NULL) {
        out[0] = hash_pieces(cddpi_hash_start, dataset->images, dataset->count * pixels, PIECES);
        for (uint64_t i = 0; i < dataset->count && dataset->labels != NULL; i++) {
            out[1] = hash_number(i == 0 ? cddpi_hash_start : out[1], dataset->labels[i]);
        }
        for (uint64_t i = 0; i < dataset->count && dataset->wide_labels != NULL; i++) {
            out[1] = hash_number(i == 0 ? cddpi_hash_start : out[1], dataset->wide_labels[i]);
        }
    }
}
