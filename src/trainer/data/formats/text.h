/* text.h - text files to tokens in memory, a piece at a time. */
#ifndef CDDPI_DATA_FORMATS_TEXT_H
#define CDDPI_DATA_FORMATS_TEXT_H

#include "data/files/data_file.h"
#include "data/files/paths.h"
#include "data/tokenizer/tokenizer.h"

/* A text that is being read: tokens of its files, one after the other, with the token that ends a
 * text between two of them. */
struct cddpi_text {
    const struct cddpi_paths *paths;         /* borrowed */
    const struct cddpi_tokenizer *tokenizer; /* borrowed */
    int token_bytes;
    bool shareable;
    struct cddpi_data_file file; /* the one being read */
    size_t next_file;
    size_t at;                             /* byte of it */
    struct cddpi_growable_mapping mapping; /* what there is of the tokens */
    size_t used;                           /* bytes of them */
    bool done;
};

/** 2 or 4: what a token of this vocabulary takes in memory. */
int cddpi_text_token_bytes(const struct cddpi_tokenizer *tokenizer);

/** Begin to read. @p shareable: into memory that other processes can map, if the system has such.
 *  Release with cddpi_text_fini(). */
void cddpi_text_init(const struct cddpi_paths *paths, const struct cddpi_tokenizer *tokenizer,
                     bool shareable, struct cddpi_text *out);
void cddpi_text_fini(struct cddpi_text *text);

/** Go on for about @p most_ns, until `done` is set.
 *  @return CDDP_OK, what cddpi_data_file_open() and cddpi_tokenizer_encode() say. */
CDDP_CHECKED cddp_status cddpi_text_read(struct cddpi_text *text, int64_t most_ns);

/** The tokens of a text that is done; read-only. @param out  Release
 *  with cddpi_data_file_close(). */
CDDP_CHECKED cddp_status cddpi_text_finish(struct cddpi_text *text, struct cddpi_data_file *out);

#endif
