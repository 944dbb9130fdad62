/* text.h - encodes text files to tokens in memory, one piece at a time. */
#ifndef CDDPI_DATA_FORMATS_TEXT_H
#define CDDPI_DATA_FORMATS_TEXT_H

#include "data/files/data_file.h"
#include "data/files/paths.h"
#include "data/tokenizer/tokenizer.h"

/* The state of reading: the tokens of the files one after the other, with an end-of-text token
 * between two files. */
struct cddpi_text {
    const struct cddpi_paths *paths;         /* borrowed */
    const struct cddpi_tokenizer *tokenizer; /* borrowed */
    int token_bytes;
    bool shareable;
    struct cddpi_data_file file; /* the file being read */
    size_t next_file;
    size_t at;                             /* byte offset in file */
    struct cddpi_growable_mapping mapping; /* the tokens so far */
    size_t used;                           /* bytes of mapping in use */
    bool done;
};

/** Begin to read. Release with cddpi_text_fini().
 *  @param shareable  Put the tokens into memory that other processes can map, if the system has
 *                    it. */
void cddpi_text_init(const struct cddpi_paths *paths, const struct cddpi_tokenizer *tokenizer,
                     bool shareable, struct cddpi_text *out);
void cddpi_text_fini(struct cddpi_text *text);

/** Go on for about @p most_ns nanoseconds; `done` is set at the end of the text.
 *  @return CDDP_OK, or as cddpi_data_file_open() and cddpi_tokenizer_encode(). */
CDDP_CHECKED cddp_status cddpi_text_read(struct cddpi_text *text, int64_t most_ns);

/** Turn the tokens of a text that is `done` into read-only memory.
 *  @param out  Release with cddpi_data_file_close(). */
CDDP_CHECKED cddp_status cddpi_text_finish(struct cddpi_text *text, struct cddpi_data_file *out);

#endif
