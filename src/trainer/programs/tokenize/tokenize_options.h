/* tokenize_options.h - owns the command line of cddp-tokenize. */
#ifndef CDDPI_PROGRAMS_TOKENIZE_OPTIONS_H
#define CDDPI_PROGRAMS_TOKENIZE_OPTIONS_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stdio.h>

enum cddpi_tokenize_mode {
    CDDPI_TOKENIZE_ENCODE,
    CDDPI_TOKENIZE_TRAIN,
    CDDPI_TOKENIZE_DECODE,
    CDDPI_TOKENIZE_CHECK,
    CDDPI_TOKENIZE_HELP,
    CDDPI_TOKENIZE_VERSION
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
    char **paths;         /* part of argv, before the options */
    int path_count;
};

/** Read the command line. Error texts are complete sentences for the user.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT. */
CDDP_CHECKED cddp_status cddpi_tokenize_options_parse(int argc, char **argv,
                                                      struct cddpi_tokenize_options *out);

void cddpi_tokenize_options_help(FILE *to);

#endif
