/* refused.h - what the process that serves the job's store knows of the clients that it has
 * refused, told to all nodes: only a machine with another token knows otherwise why it does not
 * come. */
#ifndef CDDPI_LAUNCHER_REFUSED_H
#define CDDPI_LAUNCHER_REFUSED_H

#include "launcher/nodes/job_rendezvous.h"
#include "launcher/nodes/node_message.h"

#include <cddp/store.h>

enum { CDDPI_REFUSED_ROWS = 16, CDDPI_REFUSED_BYTES = 512 };

/* The first clients that were refused; no two rows are the same. Zeroed is empty. It owns
 * nothing. */
struct cddpi_refused_list {
    int count;
    struct cddpi_refused_row {
        char address[64];
        int why; /* enum cddpi_refused */
    } rows[CDDPI_REFUSED_ROWS];
};

extern const struct cddpi_message_form cddpi_refused_form;

/** Put into the store whom its server has refused, if that is not @p known, which it becomes. */
void cddpi_refused_publish(const struct cddpi_job_rendezvous *rendezvous,
                           struct cddpi_refused_list *known);

/** Read that. True if it is not @p known, which it becomes. */
bool cddpi_refused_read(cddp_store *store, const char *job, struct cddpi_refused_list *known);

/** "10.0.0.7 (it does not know the job's token), ...", as far as there is room; "": nobody was
 *  refused. */
void cddpi_refused_say(const struct cddpi_refused_list *list, char out[CDDPI_REFUSED_BYTES]);

#endif
