/* refused.h - the list of clients that the job's store has refused, published to all nodes.
 * Otherwise only a machine with the wrong token would know why it cannot join. */
#ifndef CDDPI_LAUNCHER_REFUSED_H
#define CDDPI_LAUNCHER_REFUSED_H

#include "launcher/nodes/job_rendezvous.h"
#include "store/message.h"

#include <cddp/store.h>

enum { CDDPI_REFUSED_ROWS = 16, CDDPI_REFUSED_BYTES = 512 };

/* The first clients that were refused, each once. Zeroed is empty. Owns nothing. */
struct cddpi_refused_list {
    int count;
    struct cddpi_refused_row {
        char address[64];
        int why; /* enum cddpi_refused */
    } rows[CDDPI_REFUSED_ROWS];
};

extern const struct cddpi_message_form cddpi_refused_form;

/** Publish in the store which clients its server has refused, if the list differs from @p known.
 *  Updates @p known. */
void cddpi_refused_publish(const struct cddpi_job_rendezvous *rendezvous,
                           struct cddpi_refused_list *known);

/** Read the published list. Returns true, and updates @p known, if the list differs from it. */
bool cddpi_refused_read(cddp_store *store, const char *job, struct cddpi_refused_list *known);

/** Write the list as "10.0.0.7 (it does not know the job's token), ...", cut to the size of @p out;
 *  "" if no client was refused. */
void cddpi_refused_say(const struct cddpi_refused_list *list, char out[CDDPI_REFUSED_BYTES]);

#endif
