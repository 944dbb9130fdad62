/* run.h - the modes of cddp-tokenize, one function each. */
#ifndef CDDPI_PROGRAMS_TOKENIZE_RUN_H
#define CDDPI_PROGRAMS_TOKENIZE_RUN_H

#include "programs/tokenize/tokenize_options.h"
#include "programs/tokenize/tokenize_progress.h"

#include <stdbool.h>

struct cddpi_tokenize {
    const struct cddpi_tokenize_options *options;
    struct cddpi_tokenize_progress progress;
    bool (*is_stopped)(void); /* by a signal */
};

/** Do one mode: print a summary to standard output, and leave no half-written files.
 *  @return CDDP_OK; CDDP_ERR_CLOSED when is_stopped said so; else what failed. */
CDDP_CHECKED cddp_status cddpi_tokenize_encode(struct cddpi_tokenize *run);
CDDP_CHECKED cddp_status cddpi_tokenize_check(struct cddpi_tokenize *run);
CDDP_CHECKED cddp_status cddpi_tokenize_train(struct cddpi_tokenize *run);
CDDP_CHECKED cddp_status cddpi_tokenize_decode(struct cddpi_tokenize *run);

/** The failure of a run that a signal ended. */
cddp_status cddpi_tokenize_stopped(void);

#endif
