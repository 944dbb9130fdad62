/* run.h - runs the modes of cddp-tokenize, one function each. */
#ifndef CDDPI_PROGRAMS_TOKENIZE_RUN_H
#define CDDPI_PROGRAMS_TOKENIZE_RUN_H

#include "report/report_progress.h"

#include <cddp/status.h>

enum cddpi_tokenize_mode {
    CDDPI_TOKENIZE_ENCODE,
    CDDPI_TOKENIZE_TRAIN,
    CDDPI_TOKENIZE_DECODE,
    CDDPI_TOKENIZE_CHECK
};

/* Strings point into argv. */
struct cddpi_tokenize_options {
    enum cddpi_tokenize_mode mode;
    int train_vocabulary;
    bool words;             /* learn a vocabulary of words, not of byte pairs */
    const char *vocabulary; /* "": each byte is a token */
    const char *output;
    const char *separator; /* NULL: each file is a document */
    double val_fraction;
    int64_t shard_tokens; /* 0: one file */
    char *const *paths;
    int path_count;
};

struct cddpi_tokenize {
    const struct cddpi_tokenize_options *options;
    struct cddpi_progress progress;
    int64_t begin_ns;
    bool (*is_stopped)(void); /* whether a signal has come */
};

/** Run one mode: print a summary to standard output, and leave no incomplete files.
 *  @return CDDP_OK; CDDP_ERR_CLOSED: is_stopped returned true; else the error. */
CDDP_CHECKED cddp_status cddpi_tokenize_encode(struct cddpi_tokenize *run);
CDDP_CHECKED cddp_status cddpi_tokenize_check(struct cddpi_tokenize *run);
CDDP_CHECKED cddp_status cddpi_tokenize_train(struct cddpi_tokenize *run);
CDDP_CHECKED cddp_status cddpi_tokenize_decode(struct cddpi_tokenize *run);

/** Fail as a run that a signal ended: CDDP_ERR_CLOSED. */
cddp_status cddpi_tokenize_stopped(void);

#endif
