/* build.h - builds a tokenizer from the JSON objects of a vocabulary file, which may be
 * malformed. */
#ifndef CDDPI_DATA_TOKENIZER_BUILD_H
#define CDDPI_DATA_TOKENIZER_BUILD_H

#include "data/tokenizer/tokenizer_impl.h"

#include <jansson.h>

enum { CDDPI_TOKEN_TEXT_MAX = 8192, CDDPI_SHOWN_BYTES = 64 };

struct cddpi_tokenizer_build {
    struct cddpi_tokenizer *tokenizer;
    const char *path;    /* the file of the tokens, for error texts */
    const json_t *vocab; /* token, as GPT-2's files write it: id */
    const json_t *added; /* array of Hugging Face's added tokens, or NULL */
    bool *special;       /* by id: a special token, which no text contains */
    char *text;          /* room for two tokens */
    uint32_t rank;       /* rank of the next merge */
};

/** Set everything but the merges. Release with cddpi_tokenizer_build_fini(), also after a
 *  failure. */
CDDP_CHECKED cddp_status cddpi_tokenizer_build_tokens(struct cddpi_tokenizer_build *build);

/** Add the next merge. @p path and @p where, such as "line 3", locate it in error texts. */
CDDP_CHECKED cddp_status cddpi_tokenizer_build_merge(struct cddpi_tokenizer_build *build,
                                                     const char *path, const char *where,
                                                     const char *left, size_t left_bytes,
                                                     const char *right, size_t right_bytes);

/** The same for a merge written as "left right". */
CDDP_CHECKED cddp_status cddpi_tokenizer_build_merge_text(struct cddpi_tokenizer_build *build,
                                                          const char *path, const char *where,
                                                          const char *text, size_t bytes);

void cddpi_tokenizer_build_fini(struct cddpi_tokenizer_build *build);

/** Make a part of an input file fit for an error text: bounded and printable. Returns @p buffer. */
const char *cddpi_tokenizer_shown(const char *text, size_t bytes, char buffer[CDDPI_SHOWN_BYTES]);

/** Read a tokenizer.json that has been parsed. */
CDDP_CHECKED cddp_status cddpi_tokenizer_load_json(struct cddpi_tokenizer *tokenizer,
                                                   const char *path, const json_t *root);

#endif
