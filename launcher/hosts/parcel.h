/* parcel.h - what cddp-run --hosts sends to the cddp-run that it starts on another machine, through
 * that one's standard input, since other users can read a command line. */
#ifndef CDDPI_LAUNCHER_PARCEL_H
#define CDDPI_LAUNCHER_PARCEL_H

#include "launcher/nodes/node_message.h"
#include "launcher/supervise/job.h"

enum { CDDPI_PARCEL_BYTES = 1 << 20, CDDPI_PARCEL_VARIABLES = 4096 };

struct cddpi_parcel {
    char *token;
    char *folder; /* to work in */
    char *host;   /* what the machine is called in messages */
    int variable_count;
    char **variables; /* "NAME=value" */
};

/** To encode one, all that is in it is borrowed. */
extern const struct cddpi_message_form cddpi_parcel_form;

/** Put @p parcel into place: its token and its name for this machine in @p job, its variables in
 *  the environment. */
CDDP_CHECKED cddp_status cddpi_parcel_unpack(struct cddpi_job *job,
                                             const struct cddpi_parcel *parcel);

/** Read it from standard input, which becomes job->head_fd, and work in its folder. */
CDDP_CHECKED cddp_status cddpi_parcel_receive(struct cddpi_job *job);

#endif
