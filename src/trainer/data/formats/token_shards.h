/* token_shards.h - writes tokens to llm.c's .bin files: a header of 256 int32 (magic, version,
 * number of tokens), then the tokens as uint16, or as uint32 with Llama 3's magic. */
#ifndef CDDPI_DATA_FORMATS_TOKEN_SHARDS_H
#define CDDPI_DATA_FORMATS_TOKEN_SHARDS_H

#include "base/replace.h"

#include <stdbool.h>

enum {
    CDDPI_SHARD_HEADER_BYTES = 1024,
    CDDPI_SHARD_MAGIC_U16 = 20240520, /* GPT-2; its version is 1 */
    CDDPI_SHARD_MAGIC_U32 = 20240801, /* Llama 3; its version is 7 */
    CDDPI_SHARD_TOKENS_MAX = INT32_MAX,
    CDDPI_U16_VOCABULARY_MAX = 65536
};

struct cddpi_token_shards {
    char *name;           /* files are NAME.bin, or NAME_000000.bin and so on */
    int64_t shard_tokens; /* at most this many tokens per file */
    bool is_numbered;
    bool is_wide;                  /* uint32 */
    struct cddpi_replacement file; /* the file being written */
    int64_t in_shard;
    int64_t tokens; /* in all files */
    int files;      /* number of finished files */
};

/** Prepare to write; the first token creates the first file.
 *  @param shard_tokens  At most this many tokens per file, in numbered files; 0: all tokens in one
 *                       file, or in numbered files where they are more than CDDPI_SHARD_TOKENS_MAX.
 *  @param vocabulary    Decides the width of a token. */
CDDP_CHECKED cddp_status cddpi_shards_init(struct cddpi_token_shards *shards, const char *name,
                                           int64_t shard_tokens, int vocabulary);
CDDP_CHECKED cddp_status cddpi_shards_put(struct cddpi_token_shards *shards, const int32_t *tokens,
                                          size_t count);

/** Give the last file its name. */
CDDP_CHECKED cddp_status cddpi_shards_finish(struct cddpi_token_shards *shards);

/** Release; an unfinished file is removed. Accepts a zeroed one. */
void cddpi_shards_fini(struct cddpi_token_shards *shards);

/** The path of a file that an earlier run has left under this name; a reader of NAME's files would
 *  read that file, too. NULL: there is no such file. Call it after cddpi_shards_finish(). Release
 *  with cddpi_free(). */
char *cddpi_shards_leftover(const struct cddpi_token_shards *shards);

#endif
