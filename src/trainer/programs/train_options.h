/* train_options.h - owns the command line of cddp-train. */
#ifndef CDDPI_PROGRAMS_TRAIN_OPTIONS_H
#define CDDPI_PROGRAMS_TRAIN_OPTIONS_H

#include <cddp/status.h>

#include <stdio.h>

enum cddpi_train_mode {
    CDDPI_TRAIN_RUN,
    CDDPI_TRAIN_DRY_RUN,
    CDDPI_TRAIN_VALIDATE,
    CDDPI_TRAIN_GENERATE,
    CDDPI_TRAIN_PRINT_NPROC,
    CDDPI_TRAIN_KEYS,
    CDDPI_TRAIN_HELP,
    CDDPI_TRAIN_VERSION
};

/* Strings point into argv. */
struct cddpi_train_options {
    enum cddpi_train_mode mode;
    const char *prompt; /* only for CDDPI_TRAIN_GENERATE */
    char **words;       /* train.conf and its key=value texts; into argv */
    int word_count;     /* at least 1 in all modes before KEYS, which need a train.conf */
};

/** Read the command line, and move its options after its other words. Error texts are complete
 *  sentences for the user.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT. */
CDDP_CHECKED cddp_status cddpi_train_options_parse(int argc, char **argv,
                                                   struct cddpi_train_options *out);

void cddpi_train_options_help(FILE *to);

#endif
