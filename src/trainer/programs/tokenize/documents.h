/* documents.h - the texts of many files as documents, in pieces: memory does not grow with them. */
#ifndef CDDPI_PROGRAMS_TOKENIZE_DOCUMENTS_H
#define CDDPI_PROGRAMS_TOKENIZE_DOCUMENTS_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_documents;

struct cddpi_documents_options {
    char *const *paths; /* "-": standard input */
    int path_count;
    const char *separator;    /* a line between documents; NULL: each file is one */
    double val_fraction;      /* the last part of all bytes, from the next line on; 0: none */
    bool (*is_stopped)(void); /* asked while a pipe has nothing to read, and between pieces */
};

/* A piece of a document: what was not used of the one before, and more. */
struct cddpi_piece {
    const char *text;
    size_t bytes;
    bool last;   /* the document ends with it, so that all of it has to be used */
    bool is_val; /* the document is of the last part */
};

/** Looks at all files, which must exist.
 *  @param options  What it points to outlives the handle.
 *  @param out      Release with cddpi_documents_close(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_documents_open(const struct cddpi_documents_options *options,
                                              struct cddpi_documents **out);
void cddpi_documents_close(struct cddpi_documents *documents);

/** The next piece. Documents without a byte are left out.
 *  @param used     Bytes used of the piece before.
 *  @param out      Valid until the next call.
 *  @param out_end  There is none: all has been read.
 *  @return CDDP_OK; CDDP_ERR_CLOSED when is_stopped said so; else what failed. */
CDDP_CHECKED cddp_status cddpi_documents_next(struct cddpi_documents *documents, size_t used,
                                              struct cddpi_piece *out, bool *out_end);

/** Bytes of all files; 0: not known, since not all of them are plain files. */
uint64_t cddpi_documents_bytes(const struct cddpi_documents *documents);

/** Bytes read so far. */
uint64_t cddpi_documents_read(const struct cddpi_documents *documents);

#endif
