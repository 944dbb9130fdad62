/* run.h - runs the modes of cddp-tokenize, one function each. */
#ifndef CDDPI_PROGRAMS_TOKENIZE_RUN_H
#define CDDPI_PROGRAMS_TOKENIZE_RUN_H

#include "programs/tokenize/tokenize_options.h"
#include "programs/tokenize/tokenize_progress.h"

#include <stdbool.h>

struct cddpi_tokenize {
    const struct cddpi_tokenize_options *options;
    struct cddpi_tokenize_progress progress;
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
