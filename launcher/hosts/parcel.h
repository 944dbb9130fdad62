/* parcel.h - the data that cddp-run --hosts sends to the cddp-run that it starts on another
 * machine. It goes through standard input because other users can read a command line. */
#ifndef CDDPI_LAUNCHER_PARCEL_H
#define CDDPI_LAUNCHER_PARCEL_H

#include "launcher/supervise/job.h"
#include "store/message.h"

enum { CDDPI_PARCEL_BYTES = 1 << 20, CDDPI_PARCEL_VARIABLES = 4096 };

struct cddpi_parcel {
    char *token;
    char *folder; /* working directory */
    char *host;   /* the machine's name in messages */
    int variable_count;
    char **variables; /* "NAME=value" */
};

/** For encoding, all strings are borrowed. */
extern const struct cddpi_message_form cddpi_parcel_form;

/** Apply @p parcel: its token and its name for this machine to @p job, its variables to the
 *  environment. */
CDDP_CHECKED cddp_status cddpi_parcel_unpack(struct cddpi_job *job,
                                             const struct cddpi_parcel *parcel);

/** Read a parcel from standard input, which becomes job->head_fd, unpack it, and change to its
 *  folder. */
CDDP_CHECKED cddp_status cddpi_parcel_receive(struct cddpi_job *job);

#endif
