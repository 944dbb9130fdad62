/* refused.h - what the one who serves the job's store knows of clients that it has refused, told to
 * all: only a machine with another token knows otherwise why it does not come. */
#ifndef CDDPI_LAUNCHER_REFUSED_H
#define CDDPI_LAUNCHER_REFUSED_H

#include "launcher/nodes/job_rendezvous.h"

#include <cddp/store.h>

enum { CDDPI_REFUSED_BYTES = 512 };

/** Put into the store whom its server has refused, if that is not @p known, which it becomes. */
void cddpi_refused_publish(const struct cddpi_job_rendezvous *rendezvous,
                           char known[CDDPI_REFUSED_BYTES]);

/** Read that: "10.0.0.7 (it does not know the job's token), ...". True if it is not @p known, which
 *  it becomes. */
bool cddpi_refused_read(cddp_store *store, const char *job, char known[CDDPI_REFUSED_BYTES]);

#endif
