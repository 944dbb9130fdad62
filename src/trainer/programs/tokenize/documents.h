/* documents.h - reads the documents of many files in pieces, so that memory does not grow with
 * their size. */
#ifndef CDDPI_PROGRAMS_TOKENIZE_DOCUMENTS_H
#define CDDPI_PROGRAMS_TOKENIZE_DOCUMENTS_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_documents;

struct cddpi_documents_options {
    char *const *paths; /* "-": standard input */
    int path_count;
    const char *separator; /* the line between two documents; NULL: each file is one document */
    double val_fraction;   /* fraction of all bytes, at the end, that is for validation; 0: none */
    bool (*is_stopped)(void); /* asked while a pipe has nothing to read, and between pieces */
};

/* A piece of a document. It begins with the unused rest of the previous piece. */
struct cddpi_piece {
    const char *text;
    size_t bytes;
    bool last;    /* the document ends here: all of it must be used */
    bool is_val;  /* the document is for validation */
    bool goes_on; /* it is the rest of a document whose beginning is not */
};

/** Check that all files exist and can be read.
 *  @param options  What it points to outlives the handle.
 *  @param out      Release with cddpi_documents_close(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_documents_open(const struct cddpi_documents_options *options,
                                              struct cddpi_documents **out);
void cddpi_documents_close(struct cddpi_documents *documents);

/** Read the next piece. Empty documents are left out.
 *  @param used     How many bytes of the previous piece were used.
 *  @param out      Valid until the next call.
 *  @param out_end  True: no piece is left.
 *  @return CDDP_OK; CDDP_ERR_CLOSED: is_stopped returned true; else the error. */
CDDP_CHECKED cddp_status cddpi_documents_next(struct cddpi_documents *documents, size_t used,
                                              struct cddpi_piece *out, bool *out_end);

/** Bytes of all files; 0: unknown, because one of them is a pipe or a device. */
uint64_t cddpi_documents_bytes(const struct cddpi_documents *documents);

/** Bytes read so far. */
uint64_t cddpi_documents_read(const struct cddpi_documents *documents);

#endif
