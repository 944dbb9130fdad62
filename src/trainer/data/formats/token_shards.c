/* token_shards.c - writes tokens to one file after the other. */
#include "data/formats/token_shards.h"

#include "base/alloc.h"
#include "base/error.h"

#include <endian.h>
#include <stdio.h>
#include <unistd.h>

enum { BLOCK = 4096 };

static cddp_status no_memory(const char *name)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for a name", name);
}

cddp_status cddpi_shards_init(struct cddpi_token_shards *shards, const char *name,
                              int64_t shard_tokens, int vocabulary)
{
    *shards = (struct cddpi_token_shards){.name = cddpi_strdup(name),
                                          .is_numbered = shard_tokens > 0,
                                          .shard_tokens = shard_tokens > 0 ? shard_tokens
                                                                           : CDDPI_SHARD_TOKENS_MAX,
                                          .is_wide = vocabulary > CDDPI_U16_VOCABULARY_MAX};
    return shards->name != NULL ? CDDP_OK : no_memory(name);
}

static char *path_of(const struct cddpi_token_shards *shards, bool is_numbered, int index)
{
    return is_numbered ? cddpi_format("%s_%06d.bin", shards->name, index)
                       : cddpi_format("%s.bin", shards->name);
}

static cddp_status begin_shard(struct cddpi_token_shards *shards)
{
    static const unsigned char header[CDDPI_SHARD_HEADER_BYTES];
    char *path = path_of(shards, shards->is_numbered, shards->files);
    cddp_status status = path != NULL ? cddpi_replacement_open(path, &shards->file)
                                      : no_memory(shards->name);

    cddpi_free(path);
    shards->in_shard = 0;
    return status == CDDP_OK ? cddpi_writer_put(&shards->file.writer, header, sizeof header)
                             : status;
}

static cddp_status end_shard(struct cddpi_token_shards *shards)
{
    uint32_t header[CDDPI_SHARD_HEADER_BYTES / 4] = {
        htole32(shards->is_wide ? CDDPI_SHARD_MAGIC_U32 : CDDPI_SHARD_MAGIC_U16),
        htole32(shards->is_wide ? 7 : 1), htole32((uint32_t)shards->in_shard)};
    char *path = path_of(shards, shards->is_numbered, shards->files);
    cddp_status status = path != NULL
                             ? cddpi_writer_put_head(&shards->file.writer, header, sizeof header)
                             : no_memory(shards->name);

    status = status == CDDP_OK ? cddpi_replacement_finish(&shards->file, path) : status;
    cddpi_free(path);
    shards->files += status == CDDP_OK;
    return status;
}

static cddp_status put_block(struct cddpi_token_shards *shards, const int32_t *tokens, size_t count)
{
    uint16_t narrow[BLOCK];
    uint32_t wide[BLOCK];

    for (size_t i = 0; i < count; i++) {
        narrow[i] = htole16((uint16_t)tokens[i]);
        wide[i] = htole32((uint32_t)tokens[i]);
    }
    shards->in_shard += (int64_t)count;
    shards->tokens += (int64_t)count;
    return shards->is_wide ? cddpi_writer_put(&shards->file.writer, wide, count * sizeof *wide)
                           : cddpi_writer_put(&shards->file.writer, narrow, count * sizeof *narrow);
}

cddp_status cddpi_shards_put(struct cddpi_token_shards *shards, const int32_t *tokens, size_t count)
{
    while (count > 0) {
        size_t taken = count < BLOCK ? count : BLOCK;
        int64_t room;

        if (shards->file.path != NULL && shards->in_shard == shards->shard_tokens) {
            shards->is_numbered = true; /* one file was not enough */
            CDDPI_TRY(end_shard(shards));
        }
        if (shards->file.path == NULL) {
            CDDPI_TRY(begin_shard(shards));
        }
        room = shards->shard_tokens - shards->in_shard;
        taken = (int64_t)taken < room ? taken : (size_t)room;
        CDDPI_TRY(put_block(shards, tokens, taken));
        tokens += taken;
        count -= taken;
    }
    return CDDP_OK;
}

cddp_status cddpi_shards_finish(struct cddpi_token_shards *shards)
{
    return shards->file.path != NULL ? end_shard(shards) : CDDP_OK;
}

void cddpi_shards_fini(struct cddpi_token_shards *shards)
{
    cddpi_replacement_discard(&shards->file);
    cddpi_free(shards->name);
    shards->name = NULL;
}

char *cddpi_shards_leftover(const struct cddpi_token_shards *shards)
{
    bool has_single = shards->files > 0 && !shards->is_numbered;
    char *single = path_of(shards, false, 0);
    char *numbered = path_of(shards, true, shards->is_numbered ? shards->files : 0);

    if (single != NULL && !has_single && access(single, F_OK) == 0) {
        cddpi_free(numbered);
        return single;
    }
    cddpi_free(single);
    if (numbered != NULL && access(numbered, F_OK) == 0) {
        return numbered;
    }
    cddpi_free(numbered);
    return NULL;
}
