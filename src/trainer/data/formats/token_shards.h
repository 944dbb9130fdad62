/* token_shards.h - writing tokens into llm.c's .bin files: 256 int32 (magic, version, number of
 * tokens), then the tokens as uint16, or as uint32 with Llama-3's magic. */
#ifndef CDDPI_DATA_FORMATS_TOKEN_SHARDS_H
#define CDDPI_DATA_FORMATS_TOKEN_SHARDS_H

#include "base/replace.h"

#include <stdbool.h>

enum {
    CDDPI_SHARD_HEADER_BYTES = 1024,
    CDDPI_SHARD_MAGIC_U16 = 20240520, /* GPT-2's: version 1 */
    CDDPI_SHARD_MAGIC_U32 = 20240801, /* Llama-3's: version 7 */
    CDDPI_SHARD_TOKENS_MAX = INT32_MAX,
    CDDPI_U16_VOCABULARY_MAX = 65536
};

struct cddpi_token_shards {
    char *name;           /* files are NAME.bin, or NAME_000000.bin and so on */
    int64_t shard_tokens; /* most of a file */
    bool is_numbered;
    bool is_wide;                  /* uint32 */
    struct cddpi_replacement file; /* being written */
    int64_t in_shard;
    int64_t tokens; /* of all files */
    int files;      /* finished */
};

/** Nothing is written before the first token.
 *  @param shard_tokens  Most tokens of a file; 0: one file as long as it can, else numbered ones.
 *  @param vocabulary    Decides the width. */
CDDP_CHECKED cddp_status cddpi_shards_init(struct cddpi_token_shards *shards, const char *name,
                                           int64_t shard_tokens, int vocabulary);
CDDP_CHECKED cddp_status cddpi_shards_put(struct cddpi_token_shards *shards, const int32_t *tokens,
                                          size_t count);

/** Give the last file its name. */
CDDP_CHECKED cddp_status cddpi_shards_finish(struct cddpi_token_shards *shards);

/** What is not finished is removed; accepts a zeroed one. */
void cddpi_shards_fini(struct cddpi_token_shards *shards);

/** A file that an earlier run has left and that a reader of all files of this name would read, too;
 * or NULL. To be asked after cddpi_shards_finish(). Release with cddpi_free(). */
char *cddpi_shards_leftover(const struct cddpi_token_shards *shards);

#endif
