/* parcel.h - what cddp-run --hosts gives to the cddp-run that it starts on another machine, through
 * its standard input: what does not belong on a command line, which others can read. */
#ifndef CDDPI_LAUNCHER_PARCEL_H
#define CDDPI_LAUNCHER_PARCEL_H

#include "launcher/nodes/node_message.h"
#include "launcher/supervise/job.h"

enum { CDDPI_PARCEL_BYTES = 1 << 20, CDDPI_PARCEL_VARIABLES = 4096 };

struct cddpi_parcel {
    const char *token;
    const char *folder; /* to work in */
    const char *host;   /* what the machine is called in messages */
    char **variables;   /* "NAME=value" */
    int variable_count;
};

/** The bytes to write: a head with their number, and the parcel.
 *  @param out  Release with cddpi_buffer_fini(). */
CDDP_CHECKED cddp_status cddpi_parcel_pack(const struct cddpi_parcel *parcel,
                                           struct cddpi_message *out);

/** Whether @p data is a parcel; then it is put into place: token and name in @p job, variables in
 *  the environment. *@p out_folder points into memory of the process's life. */
CDDP_CHECKED cddp_status cddpi_parcel_unpack(struct cddpi_job *job, const uint8_t *data,
                                             size_t bytes, const char **out_folder);

/** Read it from standard input, which becomes job->head_fd, and work in its folder. */
CDDP_CHECKED cddp_status cddpi_parcel_receive(struct cddpi_job *job);

#endif
